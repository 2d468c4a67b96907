// postgres.js that reads and writes columns of the type snowflake as BigInt.  Without this they
// are strings, which are exact, too.
//
//   const sql = await connectWithBigInt({ host: 'db.example.com' });
const postgres = require('postgres');

async function connectWithBigInt(options = {}) {
  const first = postgres({ ...options, max: 1 });
  const [{ oid }] = await first`SELECT 'snowflake'::regtype::oid::integer AS oid`;

  await first.end();
  return postgres({
    ...options,
    types: { ...options.types, snowflake: { to: oid, from: [oid], serialize: String, parse: BigInt } },
  });
}

module.exports = { connectWithBigInt };
