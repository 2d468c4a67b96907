// Kysely, with node-postgres below it.  To be run by clients.pl.

const { Kysely, PostgresDialect, sql } = require('kysely');
const { Pool } = require('pg');
const { FAR, OLD, client, fails, form, from, is, rows, run, to, version } = require('./tap');

run(async () => {
  const db = new Kysely({ dialect: new PostgresDialect({ pool: new Pool() }) });

  client(`Kysely ${version('kysely')}`);
  await db.schema.createTable('orders')
    .addColumn('id', sql`snowflake`, (column) => column.primaryKey().defaultTo(sql`snowflake_next()`))
    .addColumn('item', 'text')
    .execute();
  await db.schema.createView('orders_view')
    .as(db.selectFrom('orders').selectAll().select(sql`@ id`.as('created_at')))
    .execute();
  await db.insertInto('orders').values([{ id: OLD, item: 'old' }, { id: String(FAR), item: 'far' }]).execute();

  const { id } = await db.insertInto('orders').values({ item: 'tea' }).returning('id').executeTakeFirstOrThrow();
  const row = await db.selectFrom('orders').selectAll().where('id', '=', id).executeTakeFirst();
  const batch = await db.insertInto('orders').values(rows).returning('id').execute();
  const other = batch[0].id;
  const some = await db.selectFrom('orders').selectAll().where('id', 'in', [id, other]).execute();
  const newest = await db.selectFrom('orders').selectAll().orderBy('id', 'desc').limit(20).execute();
  const next = await db.selectFrom('orders').selectAll()
    .where('id', '<', newest.at(-1).id).orderBy('id', 'desc').limit(20).execute();
  const period = await db.selectFrom('orders_view').selectAll()
    .where('created_at', '>=', from).where('created_at', '<', to).execute();
  form('string', { id, row, some, newest, next, period, batch });
  is(period.every((one) => one.created_at instanceof Date), true, 'the time of the view is a Date');

  const orders = db.selectFrom('orders').selectAll();
  const since = await orders.where('id', '>=', sql`${from}::timestamptz`).execute();
  is(since.length, period.length + 1, 'rows since a Date, by the key, with a cast');
  await fails(orders.where('id', '>=', from).execute(), '22P02', 'a Date without a cast is refused');
  is((await orders.where('id', '=', BigInt(id)).execute()).length, 1, 'filter by a BigInt');
  is((await orders.where('id', '=', Number(OLD)).execute()).length, 0, 'a number is rounded, and finds nothing');
  const table = (await db.introspection.getTables()).find((one) => one.name === 'orders');
  const { dataType, hasDefaultValue } = table.columns.find((one) => one.name === 'id');
  is([dataType, hasDefaultValue], ['snowflake', true], 'introspection names the type');
  await db.destroy();
});
