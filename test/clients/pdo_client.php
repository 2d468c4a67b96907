<?php
// PHP's PDO.  To be run by clients.pl.

const BIG = 2 ** 53 + 1;
$hour_ago = date('c', time() - 3600);
$count = 0;

// Equal, and of the same type.
function is($got, $expected, $name)
{
    global $count;

    printf("%s %d - %s\n", $got === $expected ? 'ok' : 'not ok', ++$count, $name);
    if ($got !== $expected)
        printf("# got: %s\n# expected: %s\n", json_encode($got), json_encode($expected));
}

$db = new PDO('pgsql:');

// The first column of all rows.
function column($sql, ...$parameters)
{
    global $db;

    $statement = $db->prepare($sql);
    foreach ($parameters as $i => $parameter)
        $statement->bindValue($i + 1, $parameter, is_int($parameter) ? PDO::PARAM_INT : PDO::PARAM_STR);
    $statement->execute();
    return $statement->fetchAll(PDO::FETCH_COLUMN);
}

function value($sql, ...$parameters)
{
    [$value] = column($sql, ...$parameters);
    return $value;
}

// The function must fail with this SQLSTATE.
function fails($function, $state, $name)
{
    try {
        is($function(), "an error $state", $name);
    } catch (PDOException $error) {
        is($error->getCode(), $state, $name);
    }
}

printf("# client: PHP PDO %s\n", PHP_VERSION);
$db->exec('
    CREATE TABLE orders (
        id   snowflake PRIMARY KEY DEFAULT snowflake_next(),
        ref  bigint NOT NULL UNIQUE DEFAULT snowflake_next(),
        item text
    )');
$insert = $db->prepare('INSERT INTO orders (item) VALUES (?) RETURNING id, ref');
$insert->execute(['default']);
[$id, $ref] = $insert->fetch(PDO::FETCH_NUM);
is([gettype($id), gettype($ref)], ['string', 'integer'], 'a snowflake is a string, a bigint an integer');
is((int) $id < $ref && (int) $id > BIG, true, 'both columns get an ID by default');
fails(fn() => $db->lastInsertId(), '55000', 'lastInsertId() knows sequences only');

// prepared by the server, and with the parameters written into the statement
foreach (['prepared: ' => false, 'emulated: ' => true] as $how => $emulate) {
    $db->setAttribute(PDO::ATTR_EMULATE_PREPARES, $emulate);
    is(value('SELECT item FROM orders WHERE id = ?', $id), 'default', $how . 'filter by a string');
    is(value('SELECT item FROM orders WHERE id = ?', (int) $id), 'default', $how . 'filter by an integer');
    is(value('SELECT item FROM orders WHERE ref = ?', $ref), 'default', $how . 'filter the bigint column');
    $many = [...range(1, 999), $id];
    $places = implode(', ', array_fill(0, 1000, '?'));
    is(value("SELECT item FROM orders WHERE id IN ($places)", ...$many), 'default', $how . 'filter by IN');
    is(value('SELECT item FROM orders WHERE id = ANY (?)', '{' . implode(',', $many) . '}'), 'default',
        $how . 'filter by a list in the form of an array');
    is(value('SELECT count(*) FROM orders WHERE @@ id >= ?', $hour_ago), 1,
        $how . 'filter by a time, with a cast');
    is(value('SELECT item FROM orders WHERE ref >= snowflake_lower_bound(?)', $hour_ago), 'default',
        $how . 'filter the bigint column by a time');
    fails(fn() => value('SELECT FROM orders WHERE id >= ?', $hour_ago), '22P02',
        $how . 'a time without a cast is refused');
    $big = BIG + (int) $emulate;
    is(value('INSERT INTO orders VALUES (?, ?) RETURNING id', $big, (string) $big), (string) $big,
        $how . 'insert an integer beyond 2^53');
}
is(column('SELECT id FROM orders WHERE id < ? ORDER BY id DESC LIMIT 2', $id), [(string) (BIG + 1), (string) BIG],
    'the next page, by key');
is(value('SELECT max(id) FROM orders'), (int) $id, 'max() is an integer');
is(value('SELECT id::bigint FROM orders WHERE id = ?', $id), (int) $id, 'so is what is cast to bigint');
is(json_decode(value('SELECT row_to_json(o) FROM orders o WHERE id = ?', BIG), true),
    ['id' => (string) BIG, 'ref' => BIG, 'item' => null], 'JSON has a string for snowflake');

// The form of all sections: rows of 2010 and of 2045 are there, then come one of now and 1,000.
const FAR = 2 ** 62 + 1;
$from = new DateTimeImmutable('-1 hour');
$to = new DateTimeImmutable('+1 hour');
$rows = array_map(fn($number) => ['item' => "item $number"], range(1, 1000));
$db->exec('TRUNCATE orders; CREATE VIEW orders_view AS SELECT id, item, @@ id AS created_at FROM orders');
$db->exec(sprintf('INSERT INTO orders VALUES (%d, 1), (%d, 2)', BIG, FAR));

function run($sql, $parameters = [])
{
    global $db;

    $statement = $db->prepare($sql);
    $statement->execute($parameters);
    return $statement;
}

foreach (['prepared: ' => false, 'emulated: ' => true] as $how => $emulate) {
    $db->setAttribute(PDO::ATTR_EMULATE_PREPARES, $emulate);
    $id = (int) run('INSERT INTO orders (item) VALUES (?) RETURNING id', ['tea'])->fetchColumn();
    $batch = run('INSERT INTO orders (item) SELECT item FROM json_to_recordset(?) AS (item text) RETURNING id',
        [json_encode($rows)])->fetchAll(PDO::FETCH_COLUMN);
    $some = run('SELECT * FROM orders WHERE id = ANY (?)', ['{' . implode(',', [$id, $batch[0]]) . '}']);
    $newest = run('SELECT * FROM orders ORDER BY id DESC LIMIT 20')->fetchAll(PDO::FETCH_COLUMN);
    $next = run('SELECT * FROM orders WHERE id < ? ORDER BY id DESC LIMIT 20', [end($newest)]);
    $period = run('SELECT * FROM orders_view WHERE created_at >= ? AND created_at < ?',
        [$from->format(DATE_ATOM), $to->format(DATE_ATOM)]);
    $minted = [(string) $id, ...$batch];
    $back = array_reverse($minted);
    $sorted = $batch;
    sort($sorted);
    is(value('SELECT id FROM orders WHERE id = ?', $id), (string) $id, $how . 'insert, and read back exactly');
    is([count(array_unique($minted)), $batch], [1001, $sorted], $how . 'a batch of 1,000, whose keys ascend');
    $keys = $some->fetchAll(PDO::FETCH_COLUMN);
    sort($keys);
    is($keys, array_slice($minted, 0, 2), $how . 'a list of keys');
    is($newest, [(string) FAR, ...array_slice($back, 0, 19)], $how . 'newest first');
    is($next->fetchAll(PDO::FETCH_COLUMN), array_slice($back, 19, 20), $how . 'the next page');
    $keys = $period->fetchAll(PDO::FETCH_COLUMN);
    sort($keys);
    is($keys, $minted, $how . 'rows of a period, by DateTimes');
    run('DELETE FROM orders WHERE id >= ? AND id < ?', [$id, FAR]);
}

printf("1..%d\n", $count);
