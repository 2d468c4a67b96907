// Sequelize, with node-postgres below it.  To be run by clients.pl.

const { Sequelize, DataTypes, Op, QueryTypes } = require('sequelize');
const { FAR, OLD, client, fails, form, from, is, ok, rows, run, to } = require('./tap');

const BIG = 2n ** 53n + 1n;
const hourAgo = new Date(Date.now() - 3600 * 1000);

// The form of all sections.
async function sections(db, Order) {
  const OrderView = db.define('orderView', {
    id: { type: 'snowflake', primaryKey: true },
    item: DataTypes.TEXT,
    createdAt: { type: DataTypes.DATE, field: 'created_at' },
  }, { timestamps: false, tableName: 'orders_view' });
  await db.query('CREATE VIEW orders_view AS SELECT id, item, @ id AS created_at FROM orders');

  const { id } = await Order.create({ item: 'tea' });
  const row = await Order.findByPk(id);
  const batch = await Order.bulkCreate(rows);
  const other = batch[0].id;
  const some = await Order.findAll({ where: { id: [id, other] } });
  const newest = await Order.findAll({ order: [['id', 'DESC']], limit: 20 });
  const next = await Order.findAll({ where: { id: { [Op.lt]: newest.at(-1).id } }, order: [['id', 'DESC']], limit: 20 });
  const period = await OrderView.findAll({ where: { createdAt: { [Op.gte]: from, [Op.lt]: to } } });

  form('string', { id, row, some, newest, next, period, batch });
  is(period.every((one) => one.createdAt instanceof Date), true, 'the time of the view is a Date');
}

run(async () => {
  const { PGHOST, PGPORT, PGUSER, PGDATABASE } = process.env;
  const db = new Sequelize(PGDATABASE, PGUSER, undefined,
    { dialect: 'postgres', host: PGHOST, port: PGPORT, logging: false });
  const Order = db.define('order', {
    id: { type: 'snowflake', primaryKey: true, defaultValue: db.fn('snowflake_next') },
    ref: { type: DataTypes.BIGINT, allowNull: false, defaultValue: db.fn('snowflake_next') },
    item: DataTypes.TEXT,
  }, { timestamps: false });

  client(`Sequelize 6 ${Sequelize.version}`);
  await Order.sync();
  is(await db.query(`
    SELECT attname, format_type(atttypid, atttypmod) AS type
    FROM pg_attribute WHERE attrelid = 'orders'::regclass AND attnum IN (1, 2) ORDER BY attnum`,
  { type: QueryTypes.SELECT }),
  [{ attname: 'id', type: 'snowflake' }, { attname: 'ref', type: 'bigint' }],
  'sync() creates the columns');

  const order = await Order.create({ item: 'default' });
  is(typeof order.id, 'string', 'a snowflake is a string');
  is(typeof order.ref, 'string', 'so is a bigint');
  ok(BigInt(order.ref) > BigInt(order.id), 'both columns get an ID by default');

  const several = await Order.bulkCreate([{ item: 'bulk' }, { item: 'bulk' }]);
  ok(BigInt(several[0].id) < BigInt(several[1].id), 'bulkCreate() mints an ID for each row');

  is((await Order.findByPk(order.id)).item, 'default', 'findByPk()');
  is((await Order.findOne({ where: { id: BigInt(order.id) } })).item, 'default', 'filter by a BigInt');
  is((await Order.findOne({ where: { ref: order.ref } })).item, 'default',
    'filter the bigint column');
  is(await Order.count({ where: { id: ['5', order.id, several[0].id] } }), 2,
    'filter by an array of strings');
  is(await Order.count({ where: { id: [...Array(999).keys(), order.id] } }), 1, 'filter by an array of 1000');
  await fails(Order.count({ where: { id: { [Op.any]: [order.id] } } }), '42883',
    'Op.any makes an array of text of it, which is refused');
  is((await Order.findOne({ where: { id: { [Op.lt]: several[0].id } }, order: [['id', 'DESC']] })).item,
    'default', 'the next page, by key');

  const since = await Order.findAll({ where: { id: { [Op.gte]: db.cast(hourAgo, 'timestamptz') } } });
  is(since.length, 3, 'filter by a Date, with a cast');
  is(await Order.count({ where: { id: { [Op.lt]: db.cast(hourAgo, 'timestamptz') } } }), 0,
    'filter by a Date, the rest');
  is(await Order.count({ where: { ref: { [Op.gte]: db.fn('snowflake_lower_bound', hourAgo) } } }), 3,
    'filter the bigint column by a Date');
  await fails(Order.count({ where: { id: { [Op.gte]: hourAgo } } }), '22P02',
    'a Date without a cast is refused');
  is(await db.query('SELECT count(*) FROM orders WHERE id = $1 AND id >= $2::timestamptz',
    { bind: [order.id, hourAgo], type: QueryTypes.SELECT }), [{ count: '1' }],
  'bound parameters of a raw query');

  is((await Order.create({ id: String(BIG), ref: String(BIG) })).id, String(BIG),
    'insert a string beyond 2^53');
  is((await Order.create({ id: BIG + 2n, ref: BIG + 2n })).id, String(BIG + 2n),
    'insert a BigInt beyond 2^53');
  is(await Order.count({ where: { id: Number(BIG) } }), 0,
    'a number is rounded before it is sent, and finds nothing');
  is(JSON.parse(JSON.stringify(await Order.findByPk(String(BIG)))),
    { id: String(BIG), ref: String(BIG), item: null }, 'the JSON of a model is exact');

  order.item = 'changed';
  await order.save();
  is((await Order.findByPk(order.id)).item, 'changed', 'save()');
  is(await order.destroy().then(() => Order.count({ where: { id: order.id } })), 0, 'destroy()');

  // a model that leaves the default to the table
  const Plain = db.define('plain', {
    id: { type: 'snowflake', primaryKey: true },
    item: DataTypes.TEXT,
  }, { timestamps: false, tableName: 'orders' });
  await fails(Plain.create({ item: 'null' }), '23502',
    'a model without a defaultValue sends a null for the key');

  await Order.destroy({ where: {} });
  await Order.bulkCreate([{ id: OLD, item: 'old' }, { id: String(FAR), item: 'far' }]);
  await sections(db, Order);
  await fails(Order.sync({ alter: true }), '0A000', 'sync({ alter: true }) of any table fails with a view');
  await db.query('DROP VIEW orders_view');
  await Order.sync({ alter: true });
  is((await db.getQueryInterface().describeTable('orders')).id.type, 'USER-DEFINED',
    'without one it passes, though describeTable() does not know the type');
  is(await db.query(`
    SELECT format_type(atttypid, atttypmod) AS type, pg_get_expr(adbin, adrelid) AS default
    FROM pg_attribute JOIN pg_attrdef ON (adrelid, adnum) = (attrelid, attnum)
    WHERE attrelid = 'orders'::regclass AND attname = 'id'`, { type: QueryTypes.SELECT }),
  [{ type: 'snowflake', default: 'snowflake_next()' }], 'and leaves the key as it was');

  await db.close();
});
