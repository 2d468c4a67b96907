// node-postgres.  To be run by clients.pl.

const { Client, types } = require('pg');
const { readBigInt } = require('./node_postgres');
const { FAR, OLD, client, fails, form, from, is, ok, rows, run, to } = require('./tap');

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
    CREATE TABLE orders (id snowflake PRIMARY KEY DEFAULT snowflake_next(), item text);
    CREATE VIEW orders_view AS SELECT id, item, @@ id AS created_at FROM orders`);
  await db.query('INSERT INTO orders VALUES ($1, $2), ($3, $4)', [OLD, 'old', String(FAR), 'far']);

  // without any preparation
  await sections('string', db);
  is(await value('SELECT item FROM orders WHERE id = ANY($1)', [[5n, OLD]]), 'old', 'filter by an array of BigInts');
  is((await db.query('SELECT * FROM orders WHERE @@ id >= $1;', [from])).rowCount, 1002, 'filter the time of an ID by a Date');
  await fails(db.query('SELECT FROM orders WHERE id >= $1', [from]), '22P02', 'a Date beside the key is refused');
  is(await value('SELECT count(*) FROM orders WHERE id = $1', [Number(OLD)]), '0',
    'a number is rounded before it is sent, and finds nothing');
  is(await value('SELECT row_to_json(o) FROM (SELECT id, id::bigint AS number FROM orders WHERE id = $1) o', [OLD]),
    { id: String(OLD), number: Number(OLD - 1n) }, 'in JSON a snowflake is exact, a bigint is rounded');
  is(await value('SELECT array_agg(id) FROM orders WHERE id = $1', [OLD]), `{${OLD}}`, 'an array of snowflakes is a string');

  // as BigInt, once parsers have been set
  await readBigInt(db);
  await db.query('DELETE FROM orders WHERE id NOT IN ($1, $2)', [OLD, FAR]);
  await sections('bigint', db);
  is(await value('SELECT array_agg(id) FROM orders WHERE id = $1', [OLD]), [OLD], 'parser set: an array of BigInt');
  is(await value('SELECT NULL::snowflake'), null, 'parser set: a null is null');

  // The binary protocol: not to be used with this client, which takes all that
  // it receives for UTF-8 before a parser sees it, and so loses bytes from 0x80
  // on, of a bigint like of a snowflake.
  const id = OLD + 0x80n;

  types.setTypeParser(await value("SELECT 'snowflake'::regtype::oid"), 'binary', (buffer) => buffer.readBigInt64BE());
  const { rows: [row] } = await db.query({ text: 'SELECT ($1::text)::snowflake AS id', values: [id], binary: true });
  ok(typeof row.id === 'bigint' && row.id !== id, 'binary: true destroys a snowflake');
  await db.end();
});
