// pg-promise, with node-postgres below it.  To be run by clients.pl.

const pgp = require('pg-promise')();
const { FAR, OLD, client, fails, form, from, is, rows, run, to, version } = require('./tap');

run(async () => {
  const db = pgp({});

  client(`pg-promise ${version('pg-promise')}`);
  await db.none(`
    CREATE TABLE orders (id snowflake PRIMARY KEY DEFAULT snowflake_next(), item text);
    CREATE VIEW orders_view AS SELECT id, item, @ id AS created_at FROM orders`);
  await db.none('INSERT INTO orders VALUES ($1, $2), ($3, $4)', [OLD, 'old', String(FAR), 'far']);

  const { id } = await db.one('INSERT INTO orders (item) VALUES ($1) RETURNING id', ['tea']);
  const row = await db.one('SELECT * FROM orders WHERE id = $1', [id]);
  const batch = await db.any(pgp.helpers.insert(rows, ['item'], 'orders') + ' RETURNING id');
  const other = batch[0].id;
  const some = await db.any('SELECT * FROM orders WHERE id IN ($1:csv)', [[id, other]]);
  const newest = await db.any('SELECT * FROM orders ORDER BY id DESC LIMIT 20');
  const next = await db.any('SELECT * FROM orders WHERE id < $1 ORDER BY id DESC LIMIT 20', [newest.at(-1).id]);
  const period = await db.any('SELECT * FROM orders_view WHERE created_at >= $1 AND created_at < $2', [from, to]);
  form('string', { id, row, some, newest, next, period, batch });
  is(period.every((one) => one.created_at instanceof Date), true, 'the time of the view is a Date');

  const since = await db.any('SELECT * FROM orders WHERE id >= $1::timestamptz', [from]);
  is(since.length, period.length + 1, 'rows since a Date, by the key, with a cast');
  await fails(db.any('SELECT * FROM orders WHERE id >= $1', [from]), '22P02', 'a Date without a cast is refused');
  is((await db.any('SELECT * FROM orders WHERE id = $1', [BigInt(id)])).length, 1, 'filter by a BigInt');
  is((await db.any('SELECT * FROM orders WHERE id = ANY ($1)', [[BigInt(id)]])).length, 1, 'filter by an array of BigInt');
  is((await db.any('SELECT * FROM orders WHERE id = $1', [Number(OLD)])).length, 0, 'a number is rounded, and finds nothing');
  await fails(db.any('SELECT * FROM orders WHERE id = ANY ($1)', [[id, other]]), '42883', 'an array of strings is refused');
  is((await db.any('SELECT * FROM orders WHERE id = ANY ($1::snowflake[])', [[id, other]])).length, 2,
    'filter by an array of strings, with a cast');
  pgp.pg.types.setTypeParser((await db.one("SELECT 'snowflake'::regtype::oid AS oid")).oid, BigInt);
  is((await db.one('SELECT id FROM orders WHERE id = $1', [id])).id, BigInt(id), 'parser set: a BigInt');
  await db.$pool.end();
});
