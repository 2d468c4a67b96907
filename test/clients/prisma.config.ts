import { defineConfig } from 'prisma/config';

const { PGHOST, PGPORT, PGUSER, PGDATABASE } = process.env;

export default defineConfig({
  schema: './schema.prisma',
  migrations: { path: './migrations' },
  datasource: { url: `postgresql://${PGUSER}@localhost:${PGPORT}/${PGDATABASE}?host=${encodeURIComponent(PGHOST ?? '')}` },
});
