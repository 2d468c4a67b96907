// Sequelize 7, with node-postgres below it.  To be run by clients.pl.

const { DataTypes, Op, Sequelize, sql } = require('@sequelize/core');
const { PostgresDialect } = require('@sequelize/postgres');
const { FAR, OLD, client, fails, form, from, is, ok, rows, run, to, version } = require('./tap');

run(async () => {
  const { PGHOST, PGPORT, PGUSER, PGDATABASE } = process.env;
  const db = new Sequelize({
    dialect: PostgresDialect, host: PGHOST, port: Number(PGPORT), user: PGUSER, database: PGDATABASE, logging: false,
  });
  const Order = db.define('order', {
    id: { type: 'snowflake', primaryKey: true, defaultValue: sql.fn('snowflake_next') },
    item: DataTypes.TEXT,
  }, { timestamps: false, tableName: 'orders' });
  const OrderView = db.define('orderView', {
    id: { type: 'snowflake', primaryKey: true },
    item: DataTypes.TEXT,
    createdAt: { type: DataTypes.DATE, columnName: 'created_at' },
  }, { timestamps: false, tableName: 'orders_view' });

  client(`Sequelize 7 ${version('@sequelize/core')}`);
  await Order.sync();
  await db.query('CREATE VIEW orders_view AS SELECT id, item, @ id AS created_at FROM orders');
  await Order.bulkCreate([{ id: OLD, item: 'old' }, { id: String(FAR), item: 'far' }]);

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

  is(await Order.count({ where: { id: { [Op.gte]: sql`${from}::timestamptz` } } }), period.length + 1,
    'rows since a Date, by the key, with a cast');
  await fails(Order.findAll({ where: { id: { [Op.gte]: from } } }), '22P02', 'a Date without a cast is refused');
  is(await Order.count({ where: { id: BigInt(id) } }), 1, 'filter by a BigInt');
  const refused = await Order.count({ where: { id: Number(OLD) } }).catch((error) => error);
  ok(/not a safely represented/.test(refused.cause?.message), 'a number is refused, by Sequelize');
  const { id: column } = await db.queryInterface.describeTable('orders');
  is(column.type, 'USER-DEFINED', 'describeTable() does not know the type');
  await db.close();
});
