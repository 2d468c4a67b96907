// Prisma, with its adapter for node-postgres.  To be run by clients.pl, after prisma generate.

import { spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { PrismaPg } from '@prisma/adapter-pg';
import { PrismaClient } from './generated/client.ts';
import { FAR, OLD, client, form, from, is, ok, rows, run, to, version } from './tap.js';

// Prisma's command line; what it prints
function prisma(...command: string[]) {
  const { stdout, stderr } = spawnSync(process.execPath, ['node_modules/prisma/build/index.js', ...command], { encoding: 'utf8' });

  return stdout + stderr;
}

run(async () => {
  const { PGHOST, PGPORT, PGUSER, PGDATABASE } = process.env;
  const db = new PrismaClient({
    adapter: new PrismaPg({ host: PGHOST, port: Number(PGPORT), user: PGUSER, database: PGDATABASE }),
  });

  client(`Prisma ${version('prisma')}, @prisma/adapter-pg ${version('@prisma/adapter-pg')}`);
  mkdirSync('migrations/1_orders', { recursive: true });
  writeFileSync('migrations/migration_lock.toml', 'provider = "postgresql"\n');
  writeFileSync('migrations/1_orders/migration.sql', `
    CREATE TABLE orders (id snowflake PRIMARY KEY DEFAULT snowflake_next(), item text);
    CREATE VIEW orders_view AS SELECT id, item, @@ id AS created_at FROM orders`);
  const deployed = prisma('migrate', 'deploy');
  console.log(deployed.replace(/^/gm, '# '));
  is(await db.$queryRaw`SELECT migration_name FROM _prisma_migrations WHERE finished_at IS NOT NULL`,
    [{ migration_name: '1_orders' }], 'migrate deploy runs SQL of your own');
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

  const since = await db.$queryRaw<{ id: string }[]>`SELECT id, item FROM orders WHERE @@ id >= ${from}`;
  is(since.length, period.length + 1, 'rows since a Date, by the time of the key');
  is(typeof since[0].id, 'string', 'a raw query has strings');
  const [{ id: cast }] = await db.$queryRaw<{ id: bigint }[]>`SELECT id::bigint FROM orders WHERE id = ${id}`;
  is(cast, id, 'and a bigint, if it is cast to one');
  const refused = await db.$queryRaw`SELECT id FROM orders WHERE id >= ${from}`.catch((error) => error);
  ok(refused.message.includes('22P02'), 'a Date beside the key is refused');
  is(await db.order.count({ where: { id: Number(OLD) } }), 0, 'a number is rounded, and finds nothing');

  // what the tools say of the type
  const diff = ['migrate', 'diff', '--to-schema', 'schema.prisma', '--script'];
  const pulled = prisma('db', 'pull', '--print');
  ok(pulled.includes('id   Unsupported("snowflake") @id @default(dbgenerated("snowflake_next()"))'),
    'db pull knows the default, but not the type of the key');
  ok(/createdAt +DateTime +@map\("created_at"\) +@db\.Timestamptz\(6\)/.test(pulled), "and that of the view's time");
  ok(pulled.includes('view snowflake_status {'), 'and takes the views of the extension for yours');
  ok(prisma(...diff, '--from-empty').includes('"id" BIGINT NOT NULL DEFAULT snowflake_next()'),
    'migrate makes a bigint of such a key');
  ok(prisma(...diff, '--from-config-datasource').includes('ALTER COLUMN "id" SET DATA TYPE BIGINT'),
    'migrate wants to make a bigint of a snowflake');
  ok(prisma('db', 'push').includes('will be cast from `snowflake` to `BigInt`'), 'and so does db push, which warns');
  await db.$executeRaw`DROP VIEW orders_view`;
  await db.$executeRaw`ALTER TABLE orders ALTER id TYPE bigint`;
  await db.$executeRaw`CREATE VIEW orders_view AS SELECT id, item, snowflake_timestamp(id) AS created_at FROM orders`;
  await db.$executeRaw`DROP TABLE _prisma_migrations`;
  ok(prisma(...diff, '--from-config-datasource').includes('empty migration'), 'and leaves a bigint alone');
  is((await db.orderView.findMany({ where: { createdAt: { gte: from, lt: to } } })).length, period.length,
    'whose period is found by a view as well');
  await db.$disconnect();
});
