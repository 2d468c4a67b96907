#!/usr/bin/env node
// Prisma's schema engine from npm, as WebAssembly, in place of the program that Prisma downloads.
// PRISMA_SCHEMA_ENGINE_BINARY names this; Prisma's command line sends requests in JSON, one a line.

import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { PrismaPg } from '@prisma/adapter-pg';
import { bindMigrationAwareSqlAdapterFactory, ColumnTypeEnum } from '@prisma/driver-adapter-utils';
import pg from 'pg';
import * as glue from '@prisma/schema-engine-wasm/schema_engine_bg';

// "cli can-connect-to-database" and the like succeed: they have no answer but that
if (process.argv.includes('cli')) {
  process.exit(0);
}

const { types } = pg;
globalThis.PRISMA_WASM_PANIC_REGISTRY = { set_message: (text) => console.error(text) };
const file = new URL('schema_engine_bg.wasm', import.meta.resolve('@prisma/schema-engine-wasm'));
const { instance } = await WebAssembly.instantiate(readFileSync(file), { './schema_engine_bg.js': glue });
glue.__wbg_set_wasm(instance.exports);
instance.exports.__wbindgen_start();

const { PGHOST, PGPORT, PGUSER, PGDATABASE } = process.env;

// The adapter does not know the type "char" of the catalogs.
class Factory extends PrismaPg {
  async connect() {
    const connection = await super.connect();
    const perform = connection.performIO.bind(connection);
    const query = connection.queryRaw.bind(connection);
    const characters = new WeakMap();

    connection.performIO = async (text) => {
      const { fields, rows } = await perform(text);
      const found = [...fields.keys()].filter((i) => fields[i].dataTypeID === types.builtins.CHAR);

      characters.set(rows, found);
      return { fields: fields.map((field, i) => found.includes(i) ? { ...field, dataTypeID: types.builtins.TEXT } : field), rows };
    };
    connection.queryRaw = async (text) => {
      const result = await query(text);

      for (const i of characters.get(result.rows)) {
        result.columnTypes[i] = ColumnTypeEnum.Character;
        result.rows.forEach((row) => { row[i] ||= '\0'; });
      }
      return result;
    };
    return connection;
  }
}

const adapter = bindMigrationAwareSqlAdapterFactory(
  new Factory({ host: PGHOST, port: Number(PGPORT), user: PGUSER, database: PGDATABASE }));
const datamodels = process.argv.flatMap((one, i) =>
  process.argv[i - 1] === '--datamodels' ? [[one, readFileSync(one, 'utf8')]] : []);
const engine = await glue.SchemaEngine.new({ datamodels: datamodels.length ? datamodels : undefined }, () => {}, adapter);
const reply = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);

for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params } = JSON.parse(line);

  if (method) {
    try {
      const result = await engine[method === 'getDatabaseVersion' ? 'version' : method](params);

      if (result?.stdout) {
        reply({ id: 0, method: 'print', params: { content: result.stdout } });
      }
      reply({ id, result: result ?? {} });
    } catch (error) {
      reply({ id, error: { code: 4466, message: String(error), data: { message: String(error), is_panic: false } } });
    }
  }
}
process.exit(0);
