// node-postgres.  To be run by clients.pl.

const { Client, types } = require('pg');
const { readBigInt } = require('./node_postgres');
const { FAR, OLD, client, fails, form, from, is, ok, rows, run, to } = require('./tap');

const BIG = 2n ** 53n + 1n;
const hourAgo = new Date(Date.now() - 3600 * 1000);

// The form of all sections.
async function sections(type, db) {
  const { rows: [{ id }] } = await db.query('INSERT INTO orders (item) VALUES ($1) RETURNING id', ['tea']);
  const { rows: [row] } = await db.query('SELECT * FROM orders WHERE id = $1', [id]);
  const items = rows.map((one) => one.item);
  const batch = await db.query('INSERT INTO orders (item) SELECT unnest($1::text[]) RETURNING id', [items]);
  const other = batch.rows[0].id;
  const some = await db.query('SELECT * FROM orders WHERE id = ANY ($1)', [[id, other]]);
  const newest = await db.query('SELECT * FROM orders ORDER BY id DESC LIMIT 20');
  const next = await db.query('SELECT * FROM orders WHERE id < $1 ORDER BY id DESC LIMIT 20', [newest.rows.at(-1).id]);
  const period = await db.query('SELECT * FROM orders_view WHERE created_at >= $1 AND created_at < $2', [from, to]);

  form(type, {
    id, row, some: some.rows, newest: newest.rows, next: next.rows, period: period.rows, batch: batch.rows,
  });
  is(period.rows.every((one) => one.created_at instanceof Date), true, 'the time of the view is a Date');
}

run(async () => {
  const db = new Client();

  await db.connect();
  client(`node-postgres ${require('pg/package.json').version}, Node.js ${process.versions.node}`);

  // The only column of the only row.
  const value = async (text, values) => {
    const { rows } = await db.query({ text, values, rowMode: 'array' });
    if (rows.length !== 1) {
      throw new Error(`${rows.length} rows: ${text}`);
    }
    return rows[0][0];
  };

  await db.query(`
    CREATE TABLE orders (
      id   snowflake PRIMARY KEY DEFAULT snowflake_next(),
      ref  bigint NOT NULL UNIQUE DEFAULT snowflake_next(),
      item text
    )`);

  // without any preparation
  const { rows: [order] } = await db.query(
    'INSERT INTO orders (item) VALUES ($1) RETURNING id, ref', ['default']);
  is(typeof order.id, 'string', 'a snowflake is a string');
  is(typeof order.ref, 'string', 'so is a bigint');
  ok(BigInt(order.ref) > BigInt(order.id), 'both columns get an ID by default');
  is(await value('SELECT item FROM orders WHERE id = $1', [order.id]), 'default',
    'filter by a string');
  is(await value('SELECT item FROM orders WHERE id = $1', [BigInt(order.id)]), 'default',
    'filter by a BigInt');
  is(await value('SELECT item FROM orders WHERE id = ANY($1)', [[5n, BigInt(order.id)]]), 'default',
    'filter by an array of BigInts');
  ok(await value('SELECT @@ id FROM orders') instanceof Date, 'the time of an ID is a Date');
  is(await value('SELECT count(*) FROM orders WHERE @@ id >= $1', [hourAgo]), '1', 'filter its time by a Date');
  await fails(db.query('SELECT FROM orders WHERE id >= $1', [hourAgo]), '22P02',
    'a Date beside the key is refused');
  is(await value('INSERT INTO orders VALUES ($1, $2) RETURNING id', [BIG, BIG]), String(BIG),
    'insert a BigInt beyond 2^53');

  // rounding
  is(await value('SELECT count(*) FROM orders WHERE id = $1', [Number(BIG)]), '0',
    'a number is rounded before it is sent, and finds nothing');
  is(await value('SELECT row_to_json(o) FROM orders o WHERE id = $1', [BIG]),
    { id: String(BIG), ref: Number(BIG - 1n), item: null },
    'in JSON a snowflake is exact, a bigint is rounded');

  // as BigInt, once parsers have been set
  const oid = await value("SELECT 'snowflake'::regtype::oid");

  is(await value('SELECT array_agg(id) FROM orders WHERE id = $1', [BIG]), `{${BIG}}`,
    'an array of snowflakes is a string');
  await readBigInt(db);
  is(await value('SELECT id FROM orders WHERE id = $1', [BIG]), BIG, 'parser set: a BigInt');
  is(await value('SELECT array_agg(id) FROM orders WHERE id = $1', [BIG]), [BIG],
    'parser set: an array of BigInt');
  is(await value('SELECT NULL::snowflake'), null, 'parser set: a null is null');

  // The binary protocol: not to be used with this client, which takes all that
  // it receives for UTF-8 before a parser sees it, and so loses bytes from 0x80
  // on, of a bigint like of a snowflake.
  const parseBinary = (buffer) => buffer.readBigInt64BE();
  const id = BIG + 0x80n;

  types.setTypeParser(oid, 'binary', parseBinary);
  types.setTypeParser(types.builtins.INT8, 'binary', parseBinary);
  for (const type of ['snowflake', 'bigint']) {
    const { rows: [row] } = await db.query({
      text: `SELECT ($1::text)::${type} AS id`, values: [id], binary: true,
    });
    ok(typeof row.id === 'bigint' && row.id !== id, `binary: true destroys a ${type}`);
  }

  await db.query(`
    TRUNCATE orders;
    CREATE VIEW orders_view AS SELECT id, item, @@ id AS created_at FROM orders`);
  await db.query('INSERT INTO orders (id, item) VALUES ($1, $2), ($3, $4)', [OLD, 'old', String(FAR), 'far']);
  await sections('bigint', db);
  await db.end();
  types.setTypeParser(oid, String);

  const other = new Client();
  await other.connect();
  await other.query('DELETE FROM orders WHERE id NOT IN ($1, $2)', [OLD, FAR]);
  await sections('string', other);
  await other.end();
});
