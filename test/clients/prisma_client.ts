// Prisma, with its adapter for node-postgres.  To be run by clients.pl, after prisma generate.

import { PrismaPg } from '@prisma/adapter-pg';
import { PrismaClient } from './generated/client.ts';
import { FAR, OLD, client, form, from, is, ok, rows, run, to, version } from './tap.js';

run(async () => {
  const { PGHOST, PGPORT, PGUSER, PGDATABASE } = process.env;
  const db = new PrismaClient({
    adapter: new PrismaPg({ host: PGHOST, port: Number(PGPORT), user: PGUSER, database: PGDATABASE }),
  });

  client(`Prisma ${version('prisma')}, @prisma/adapter-pg ${version('@prisma/adapter-pg')}`);
  await db.$executeRaw`CREATE TABLE orders (id snowflake PRIMARY KEY DEFAULT snowflake_next(), item text)`;
  await db.$executeRaw`CREATE VIEW orders_view AS SELECT id, item, @ id AS created_at FROM orders`;
  await db.order.createMany({ data: [{ id: OLD, item: 'old' }, { id: FAR, item: 'far' }] });

  const { id } = await db.order.create({ data: { item: 'tea' } });
  const row = await db.order.findUniqueOrThrow({ where: { id } });
  const batch = await db.order.createManyAndReturn({ data: rows });
  const other = batch[0].id;
  const some = await db.order.findMany({ where: { id: { in: [id, other] } } });
  const newest = await db.order.findMany({ orderBy: { id: 'desc' }, take: 20 });
  const next = await db.order.findMany({ where: { id: { lt: newest.at(-1)!.id } }, orderBy: { id: 'desc' }, take: 20 });
  const period = await db.orderView.findMany({ where: { createdAt: { gte: from, lt: to } } });
  form('bigint', { id, row, some, newest, next, period, batch });
  is(period.every((one) => one.createdAt instanceof Date), true, 'the time of the view is a Date');

  const cursor = await db.order.findMany({ cursor: { id: newest.at(-1)!.id }, skip: 1, orderBy: { id: 'desc' }, take: 20 });
  is(cursor.map((one) => one.id), next.map((one) => one.id), 'the next page, by a cursor');
  const since = await db.$queryRaw<{ id: string }[]>`SELECT id, item FROM orders WHERE id >= ${from}::timestamptz`;
  is(since.length, period.length + 1, 'rows since a Date, by the key, with a cast');
  is(typeof since[0].id, 'string', 'a raw query has strings');
  const [{ id: cast }] = await db.$queryRaw<{ id: bigint }[]>`SELECT id::bigint FROM orders WHERE id = ${id}`;
  is(cast, id, 'and a bigint, if it is cast to one');
  const refused = await db.$queryRaw`SELECT id FROM orders WHERE id >= ${from}`.catch((error) => error);
  ok(refused.message.includes('22P02'), 'a Date without a cast is refused');
  is(await db.order.count({ where: { id: Number(OLD) } }), 0, 'a number is rounded, and finds nothing');
  is((await db.order.aggregate({ where: { id: { lte: id } }, _max: { id: true } }))._max.id, id, 'the greatest key');
  let message = '';
  try {
    JSON.stringify(row);
  } catch (error) {
    message = (error as Error).message;
  }
  ok(message.includes('BigInt'), 'JSON.stringify() refuses a BigInt');
  await db.$disconnect();
});
