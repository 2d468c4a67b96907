// node-postgres.  To be run by clients.py.

const { createInterface } = require('readline');
const { Readable } = require('stream');
const { pipeline } = require('stream/promises');
const { Client } = require('pg');
const { from } = require('pg-copy-streams');

const db = new Client();

async function copy(into, lines) {
  await pipeline(Readable.from(lines), db.query(from(`COPY ${into} FROM STDIN`)));
}

const line = ([n, item]) => `${n}\t${item}\n`;

const ways = {
  async single(table, rows) {
    const text = `INSERT INTO ${table} (n, item) VALUES ($1, $2) RETURNING id`;

    for (const values of rows) {
      await db.query({ name: table, text, values });
    }
  },

  async batch(table, rows) {
    for (let first = 0; first < rows.length; first += 1000) {
      const some = rows.slice(first, first + 1000);
      await db.query(
        `INSERT INTO ${table} (n, item) SELECT * FROM unnest($1::integer[], $2::text[]) RETURNING id`,
        [some.map(([n]) => n), some.map(([, item]) => item)]);
    }
  },

  async copy(table, rows) {
    await copy(`${table} (n, item)`, rows.map(line));
  },

  async staging(table, rows) {
    await db.query('BEGIN');
    await db.query('CREATE TEMPORARY TABLE staging (n integer, item text) ON COMMIT DROP');
    await copy('staging', rows.map(line));
    await db.query(`INSERT INTO ${table} (n, item) SELECT n, item FROM staging`);
    await db.query('COMMIT');
  },

  async ids(table, rows) {
    const { rows: ids } = await db.query('SELECT snowflake_next_batch($1) AS id', [rows.length]);
    await copy(`${table} (id, n, item)`, rows.map((row, i) => `${ids[i].id}\t${line(row)}`));
  },

  async arrays(table, rows) {
    await db.query(`INSERT INTO ${table} (n, item) SELECT * FROM unnest($1::integer[], $2::text[])`,
      [rows.map(([n]) => n), rows.map(([, item]) => item)]);
  },
};

(async () => {
  await db.connect();
  console.log('ready');
  for await (const request of createInterface({ input: process.stdin })) {
    const [way, table, count] = request.split(' ');
    await db.query(`TRUNCATE ${table}`);
    const rows = Array.from({ length: Number(count) }, (_, n) => [n, `the item of row ${n}`]);
    const start = process.hrtime.bigint();
    await ways[way](table, rows);
    console.log(Number(process.hrtime.bigint() - start) / 1e9);
  }
  await db.end();
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
