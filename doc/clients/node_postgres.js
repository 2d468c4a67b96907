// node-postgres that reads columns of the type snowflake, and arrays of them, as BigInt.  Without
// this they are strings, which are exact, too.  Call it once, with any connection to the database.
const { types } = require('pg');

async function readBigInt(db) {
  const { rows: [{ oid, array }] } = await db.query(
    "SELECT oid, typarray AS array FROM pg_type WHERE oid = 'snowflake'::regtype");
  const parseTexts = types.getTypeParser(1009);   // text[]

  types.setTypeParser(oid, BigInt);
  types.setTypeParser(array, (text) => parseTexts(text).map((id) => id && BigInt(id)));
}

module.exports = { readBigInt };
