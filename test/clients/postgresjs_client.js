// postgres.js.  To be run by clients.pl.

const postgres = require('postgres');
const { connectWithBigInt } = require('./postgres_js');
const { FAR, OLD, client, fails, form, from, is, rows, run, to, version } = require('./tap');

run(async () => {
  const sql = postgres();

  client(`postgres.js ${version('postgres')}`);
  await sql`CREATE TABLE orders (id snowflake PRIMARY KEY DEFAULT snowflake_next(), item text)`;
  await sql`CREATE VIEW orders_view AS SELECT id, item, @@ id AS created_at FROM orders`;
  await sql`INSERT INTO orders ${sql([{ id: OLD, item: 'old' }, { id: String(FAR), item: 'far' }])}`;

  const [{ id }] = await sql`INSERT INTO orders (item) VALUES ('tea') RETURNING id`;
  const [row] = await sql`SELECT * FROM orders WHERE id = ${id}`;
  const batch = await sql`INSERT INTO orders ${sql(rows)} RETURNING id`;
  const other = batch[0].id;
  const some = await sql`SELECT * FROM orders WHERE id IN ${sql([id, other])}`;
  const newest = await sql`SELECT * FROM orders ORDER BY id DESC LIMIT 20`;
  const next = await sql`SELECT * FROM orders WHERE id < ${newest.at(-1).id} ORDER BY id DESC LIMIT 20`;
  const period = await sql`SELECT * FROM orders_view WHERE created_at >= ${from} AND created_at < ${to}`;
  const seen = await sql`SELECT * FROM orders_view WHERE created_at >= ${from} AND created_at < ${to}`;
  form('string', { id, row, some, newest, next, period, batch });
  is(seen.length, period.length, 'rows of a period, by the view');
  is(seen.every((one) => one.created_at instanceof Date), true, 'whose time is a Date');

  is((await sql`SELECT * FROM orders WHERE id = ${BigInt(id)}`).length, 1, 'filter by a BigInt');
  is((await sql`SELECT * FROM orders WHERE id = ${Number(OLD)}`).length, 0, 'a number is rounded, and finds nothing');
  is((await sql`SELECT * FROM orders WHERE id = ANY (${[id, other]})`).length, 2, 'filter by an array of strings');
  await fails(sql`SELECT * FROM orders WHERE id = ANY (${[BigInt(id)]})`, '42809', 'an array of BigInt is refused');
  is((await sql`SELECT array_agg(id) AS ids FROM orders WHERE item = 'tea'`)[0].ids, [id], 'an array is one of strings');
  await sql.end();

  const big = await connectWithBigInt();
  is((await big`SELECT id FROM orders WHERE id = ${BigInt(id)}`)[0].id, BigInt(id), 'with the type: a BigInt');
  is((await big`SELECT array_agg(id) AS ids FROM orders WHERE item = 'tea'`)[0].ids, [BigInt(id)],
    'with the type: an array of BigInt');
  is((await big`INSERT INTO orders ${big({ id: OLD + 1n })} RETURNING id`)[0].id, OLD + 1n, 'with the type: insert one');
  is((await big`SELECT NULL::snowflake AS id`)[0].id, null, 'with the type: a null is null');
  await big.end();
});
