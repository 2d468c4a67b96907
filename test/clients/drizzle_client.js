// drizzle, with node-postgres below it, and drizzle-kit.  To be run by clients.pl.

const { spawnSync } = require('child_process');
const { globSync, readFileSync } = require('fs');
const { and, desc, eq, gte, inArray, lt, sql } = require('drizzle-orm');
const { drizzle } = require('drizzle-orm/node-postgres');
const { Pool } = require('pg');
const { orders, ordersView } = require('./drizzle_schema.ts');
const { FAR, OLD, client, fails, form, from, is, ok, rows, run, to, version } = require('./tap');

const { PGHOST, PGPORT, PGUSER, PGDATABASE } = process.env;

// drizzle-kit, which may not find a terminal; what it prints
function kit(command, ...options) {
  const { stdout, stderr } = spawnSync(process.execPath,
    ['node_modules/drizzle-kit/bin.cjs', command, '--dialect=postgresql', ...options], { encoding: 'utf8' });

  return stdout + stderr;
}

run(async () => {
  const pool = new Pool();
  const db = drizzle({ client: pool });
  const url = `--url=postgres://${PGUSER}@${encodeURIComponent(PGHOST)}:${PGPORT}/${PGDATABASE}`;

  client(`drizzle ${version('drizzle-orm')}, drizzle-kit ${version('drizzle-kit')}`);
  kit('generate', '--schema=./drizzle_schema.ts', '--out=migrations');
  const made = readFileSync(globSync('migrations/*.sql')[0], 'utf8');
  ok(made.includes('"id" "snowflake" PRIMARY KEY DEFAULT snowflake_next() NOT NULL'),
    'generate writes the type and the default');
  await pool.query(made);
  await pool.query('CREATE VIEW orders_view AS SELECT id, item, @@ id AS created_at FROM orders');
  await db.insert(orders).values([{ id: String(OLD), item: 'old' }, { id: String(FAR), item: 'far' }]);

  const [{ id }] = await db.insert(orders).values({ item: 'tea' }).returning();
  const [row] = await db.select().from(orders).where(eq(orders.id, id));
  const batch = await db.insert(orders).values(rows).returning({ id: orders.id });
  const other = batch[0].id;
  const some = await db.select().from(orders).where(inArray(orders.id, [id, other]));
  const newest = await db.select().from(orders).orderBy(desc(orders.id)).limit(20);
  const next = await db.select().from(orders).where(lt(orders.id, newest.at(-1).id)).orderBy(desc(orders.id)).limit(20);
  const period = await db.select().from(ordersView)
    .where(and(gte(ordersView.createdAt, from), lt(ordersView.createdAt, to)));
  form('string', { id, row, some, newest, next, period, batch });
  is(period.every((one) => one.createdAt instanceof Date), true, 'the time of the view is a Date');

  const since = await db.select().from(orders).where(gte(sql`@@ ${orders.id}`, from));
  is(since.length, period.length + 1, 'rows since a Date, by the time of the key');
  await fails(db.select().from(orders).where(gte(orders.id, from)), '22P02', 'a Date beside the key is refused');
  is((await db.select().from(orders).where(eq(orders.id, BigInt(id)))).length, 1, 'filter by a BigInt');
  is((await db.select().from(orders).where(eq(orders.id, Number(OLD)))).length, 0,
    'a number is rounded, and finds nothing');

  // what the tools say of the type
  kit('pull', url, '--out=pulled');
  const pulled = readFileSync('pulled/schema.ts', 'utf8');
  ok(/id: unknown\("id"\)\.primaryKey\(\)\.notNull\(\),/.test(pulled), 'pull knows neither the type nor the default');
  ok(/pgView\("snowflake_status"/.test(pulled), 'pull takes the views of the extension for yours');
  ok(!/unknown.*snowflake_status/s.test(kit('pull', url, '--out=filtered', '--tablesFilter=orders*')) &&
    !readFileSync('filtered/schema.ts', 'utf8').includes('snowflake_status'), 'unless tablesFilter leaves them out');
  ok(kit('push', url, '--schema=./drizzle_schema.ts').includes('cannot drop view snowflake_'),
    'push wants to drop these');
  ok(kit('push', url, '--schema=./drizzle_schema.ts', '--tablesFilter=orders*').includes('No changes detected'),
    'with tablesFilter, push finds nothing to do');
  await pool.end();
});
