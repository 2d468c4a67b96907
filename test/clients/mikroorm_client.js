// MikroORM, with its driver for node-postgres.  To be run by clients.pl.

const { defineEntity, p } = require('@mikro-orm/core');
const { MikroORM, PostgreSqlDriver, raw } = require('@mikro-orm/postgresql');
const { FAR, OLD, client, fails, form, from, is, ok, rows, run, to, version } = require('./tap');

const Order = defineEntity({
  name: 'Order',
  tableName: 'orders',
  properties: {
    id: p.bigint('string').primary().columnType('snowflake').defaultRaw('snowflake_next()'),
    item: p.text().nullable(),
  },
});
const OrderView = defineEntity({
  name: 'OrderView',
  tableName: 'orders_view',
  view: true,
  expression: 'SELECT id, item, @ id AS created_at FROM orders',
  properties: { id: p.bigint('string').primary(), item: p.text().nullable(), createdAt: p.datetime() },
});

run(async () => {
  const { PGHOST, PGPORT, PGUSER, PGDATABASE } = process.env;
  const orm = await MikroORM.init({
    driver: PostgreSqlDriver, host: PGHOST, port: Number(PGPORT), user: PGUSER, dbName: PGDATABASE,
    entities: [Order, OrderView],
  });
  const em = orm.em.fork();

  client(`MikroORM ${version('@mikro-orm/core')}`);
  await orm.schema.create();
  ok((await orm.schema.getCreateSchemaSQL()).includes('"id" snowflake not null default snowflake_next()'),
    'schema.create() makes the column, with its default');
  is((await orm.schema.getUpdateSchemaSQL()).trim(), '', 'and then finds nothing to do');
  await em.insertMany(Order, [{ id: OLD, item: 'old' }, { id: String(FAR), item: 'far' }]);

  const order = em.create(Order, { item: 'tea' });
  await em.flush();
  const { id } = order;
  em.clear();
  const row = await em.findOneOrFail(Order, { id });
  const batch = rows.map((one) => em.create(Order, one));
  await em.flush();
  const other = batch[0].id;
  const some = await em.find(Order, { id: [id, other] });
  const newest = await em.find(Order, {}, { orderBy: { id: 'desc' }, limit: 20 });
  const next = await em.find(Order, { id: { $lt: newest.at(-1).id } }, { orderBy: { id: 'desc' }, limit: 20 });
  const period = await em.find(OrderView, { createdAt: { $gte: from, $lt: to } });
  form('string', { id, row, some, newest, next, period, batch });
  is(period.every((one) => one.createdAt instanceof Date), true, 'the time of the view is a Date');

  is(await em.count(Order, { id: { $gte: raw('?::timestamptz', [from]) } }), period.length + 1,
    'rows since a Date, by the key, with a cast');
  await fails(em.find(Order, { id: { $gte: from } }), '22P02', 'a Date without a cast is refused');
  is(await em.count(Order, { id: BigInt(id) }), 1, 'filter by a BigInt');
  is(await em.count(Order, { id: Number(OLD) }), 0, 'a number is rounded, and finds nothing');
  is((await em.insertMany(Order, rows.slice(0, 2))).length, 1, 'insertMany() returns the first key alone');
  await orm.close();
});
