// Knex, with node-postgres below it.  To be run by clients.pl.

const knex = require('knex');
const { FAR, OLD, client, fails, form, from, is, ok, rows, run, to } = require('./tap');

const BIG = 2n ** 53n + 1n;
const hourAgo = new Date(Date.now() - 3600 * 1000);

// The form of all sections.
async function sections(db) {
  await db.schema.createView('orders_view', (view) => {
    view.columns(['id', 'item', 'created_at']);
    view.as(db('orders').select('id', 'item', db.raw('@ id')));
  });

  const [{ id }] = await db('orders').insert({ item: 'tea' }).returning('id');
  const row = await db('orders').where({ id }).first();
  const batch = await db('orders').insert(rows).returning('id');
  const other = batch[0].id;
  const some = await db('orders').whereIn('id', [id, other]);
  const newest = await db('orders').orderBy('id', 'desc').limit(20);
  const next = await db('orders').where('id', '<', newest.at(-1).id).orderBy('id', 'desc').limit(20);
  const period = await db('orders_view').where('created_at', '>=', from).where('created_at', '<', to);

  form('string', { id, row, some, newest, next, period, batch });
  is(period.every((one) => one.created_at instanceof Date), true, 'the time of the view is a Date');
}

run(async () => {
  const db = knex({ client: 'pg', connection: {} });
  const orders = () => db('orders');
  const count = async (query) => (await query.count())[0].count;

  client(`Knex ${require('knex/package.json').version}`);
  await db.schema.createTable('orders', (table) => {
    table.specificType('id', 'snowflake').primary().defaultTo(db.raw('snowflake_next()'));
    table.bigInteger('ref').notNullable().unique().defaultTo(db.raw('snowflake_next()'));
    table.text('item');
  });
  await db.schema.createTable('lines', (table) => {
    table.bigInteger('id').primary().defaultTo(db.raw('snowflake_next()'));
    table.bigInteger('order_id').references('orders.id');
  });

  const [order] = await orders().insert({ item: 'default' }).returning(['id', 'ref']);
  is(typeof order.id, 'string', 'a snowflake is a string');
  ok(BigInt(order.ref) > BigInt(order.id), 'both columns get an ID by default');
  const several = await orders().insert([{ item: 'bulk' }, { item: 'bulk' }]).returning('id');
  ok(BigInt(several[0].id) < BigInt(several[1].id), 'a list of rows gets an ID for each');

  is((await orders().where('id', order.id).first()).item, 'default', 'filter by a string');
  is((await orders().where('id', BigInt(order.id)).first()).item, 'default', 'filter by a BigInt');
  const many = [...Array(999).keys(), order.id];
  is(await count(orders().whereIn('id', many)), '1', 'whereIn()');
  is(await count(orders().whereRaw('id = ANY(?)', [many])), '1', 'filter by an array');
  is(await orders().where('id', '<', several[1].id).orderBy('id', 'desc').limit(1).pluck('id'),
    [several[0].id], 'the next page, by key');
  const since = await db('orders').where('id', '>=', db.raw('?::timestamptz', [hourAgo]));
  is(since.length, 3, 'filter by a Date, with a cast');
  is(await count(orders().where('ref', '>=', db.raw('snowflake_lower_bound(?)', [hourAgo]))), '3',
    'filter the bigint column by a Date');
  await fails(orders().where('id', '>=', hourAgo), '22P02', 'a Date without a cast is refused');
  is(await orders().max('id'), [{ max: several[1].id }], 'max() is a string');

  is(await orders().insert({ id: BIG, ref: String(BIG) }).returning('id'), [{ id: String(BIG) }],
    'insert a BigInt beyond 2^53');
  is(await count(orders().where('id', Number(BIG))), '0',
    'a number is rounded before it is sent, and finds nothing');
  is((await orders().where('id', BIG).select(db.raw('to_json(id)')).first()).to_json, String(BIG),
    'JSON has a string for snowflake');

  await db('lines').insert({ order_id: order.id });
  is(await db('lines').join('orders', 'orders.id', 'lines.order_id').pluck('item'), ['default'],
    'a foreign key, with a join');

  await db('lines').del();
  await orders().del();
  await orders().insert([{ id: OLD, item: 'old' }, { id: String(FAR), item: 'far' }]);
  await sections(db);
  is((await db('orders').columnInfo('id')).type, 'USER-DEFINED', 'columnInfo() does not know the type');
  await db.destroy();
});
