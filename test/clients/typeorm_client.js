// TypeORM, with node-postgres below it.  To be run by clients.pl.

const { And, Any, DataSource, EntitySchema, In, LessThan, MoreThanOrEqual, Raw } = require('typeorm');
const { FAR, OLD, client, fails, form, from, is, ok, rows, run, to } = require('./tap');

const BIG = 2n ** 53n + 1n;
const hourAgo = new Date(Date.now() - 3600 * 1000);

const Order = new EntitySchema({
  name: 'Order',
  tableName: 'orders',
  columns: {
    id: { type: 'snowflake', primary: true, default: () => 'snowflake_next()' },
    ref: { type: 'bigint', unique: true, default: () => 'snowflake_next()' },
    item: { type: 'text', nullable: true },
  },
  relations: { lines: { type: 'one-to-many', target: 'Line', inverseSide: 'order' } },
});
const Line = new EntitySchema({
  name: 'Line',
  tableName: 'lines',
  columns: { id: { type: 'bigint', primary: true, default: () => 'snowflake_next()' } },
  relations: {
    order: {
      type: 'many-to-one', target: 'Order', inverseSide: 'lines', joinColumn: { name: 'order_id' },
    },
  },
});
const OrderView = new EntitySchema({
  name: 'OrderView',
  tableName: 'orders_view',
  type: 'view',
  expression: 'SELECT id, item, @ id AS created_at FROM orders',
  columns: {
    id: { type: 'snowflake', primary: true },
    item: { type: 'text' },
    createdAt: { type: 'timestamptz', name: 'created_at' },
  },
});

// The form of all sections.
async function sections(orders, ordersView) {
  const { id } = await orders.save({ item: 'tea' });
  const row = await orders.findOneBy({ id });
  const batch = await orders.save(rows);
  const other = batch[0].id;
  const some = await orders.findBy({ id: In([id, other]) });
  const newest = await orders.find({ order: { id: 'DESC' }, take: 20 });
  const next = await orders.find({ where: { id: LessThan(newest.at(-1).id) }, order: { id: 'DESC' }, take: 20 });
  const period = await ordersView.findBy({ createdAt: And(MoreThanOrEqual(from), LessThan(to)) });

  form('string', { id, row, some, newest, next, period, batch });
  is(period.every((one) => one.createdAt instanceof Date), true, 'the time of the view is a Date');
}

run(async () => {
  const { PGHOST, PGPORT, PGUSER, PGDATABASE } = process.env;
  const source = () => new DataSource({
    type: 'postgres', host: PGHOST, port: PGPORT, username: PGUSER, database: PGDATABASE, entities: [Order, Line, OrderView],
  });

  client(`TypeORM ${require('./package.json').dependencies.typeorm}`);
  is(await source().initialize().catch((error) => error.name), 'DataTypeNotSupportedError',
    'a type that it does not know is refused');

  const db = source();
  db.driver.supportedDataTypes.push('snowflake');
  await db.initialize();
  await db.synchronize();
  is((await db.driver.createSchemaBuilder().log()).upQueries, [], 'type added: the schema is in sync');
  is(await db.query(`
    SELECT attrelid::regclass || '.' || attname AS name, format_type(atttypid, atttypmod) AS type
    FROM pg_attribute
    WHERE attrelid IN ('orders'::regclass, 'lines'::regclass) AND attname ~ 'id$' AND attnum > 0
    ORDER BY 1`),
  [{ name: 'lines.id', type: 'bigint' }, { name: 'lines.order_id', type: 'snowflake' },
    { name: 'orders.id', type: 'snowflake' }], 'synchronize() creates the columns');

  const orders = db.getRepository('Order');
  const lines = db.getRepository('Line');
  const order = await orders.save({ item: 'default' });
  is(typeof order.id, 'string', 'a snowflake is a string');
  ok(BigInt(order.ref) > BigInt(order.id), 'both columns get an ID by default');
  const { identifiers } = await orders.insert([{ item: 'bulk' }, { item: 'bulk' }]);
  ok(BigInt(identifiers[0].id) < BigInt(identifiers[1].id), 'insert() mints an ID for each row');

  is((await orders.findOneBy({ id: order.id })).item, 'default', 'filter by a string');
  is((await orders.findOneBy({ id: BigInt(order.id) })).item, 'default', 'filter by a BigInt');
  const many = [...Array(999).keys(), order.id];
  is(await orders.countBy({ id: In(many) }), 1, 'In()');
  is(await orders.countBy({ id: Any(many) }), 1, 'Any()');
  const page = await orders.find({
    where: { id: LessThan(identifiers[1].id) }, order: { id: 'DESC' }, take: 1,
  });
  is(page.map((row) => row.id), [identifiers[0].id], 'the next page, by key');
  const since = await
  orders.find({ where: { id: Raw((id) => `${id} >= :time::timestamptz`, { time: hourAgo }) } });
  is(since.length, 3, 'filter by a Date, with a cast');
  is(await orders.countBy({ ref: Raw((ref) => `${ref} >= snowflake_lower_bound(:time)`, { time: hourAgo }) }),
    3, 'filter the bigint column by a Date');
  await fails(orders.countBy({ id: MoreThanOrEqual(hourAgo) }), '22P02', 'a Date without a cast is refused');
  is(await orders.maximum('id') === Number(identifiers[1].id), true, 'maximum() rounds, being a number');
  is(await db.query('SELECT max(id) FROM orders'), [{ max: identifiers[1].id }], 'max() is exact');

  await orders.insert({ id: BIG, ref: String(BIG) });
  is(JSON.stringify(await orders.findOneBy({ id: BIG })), `{"id":"${BIG}","ref":"${BIG}","item":null}`,
    'insert a BigInt beyond 2^53; the JSON of an entity is exact');
  is(await orders.countBy({ id: Number(BIG) }), 0, 'a number is rounded before it is sent, and finds nothing');

  await lines.save({ order });
  is((await lines.find({ relations: { order: true } }))[0].order.id, order.id, 'a foreign key, with a join');
  is((await orders.findOne({ where: { id: order.id }, relations: { lines: true } })).lines.length, 1,
    'the way back');

  await lines.clear();
  await db.query('DELETE FROM orders');
  await orders.insert([{ id: OLD, item: 'old' }, { id: String(FAR), item: 'far' }]);
  await sections(orders, db.getRepository('OrderView'));
  await db.destroy();
});
