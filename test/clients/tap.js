// Results in the TAP format, as the programs of this directory print them.

const util = require('util');

let count = 0;

// Say which client in which version is tested.
function client(text) {
  console.log(`# client: ${text}`);
}

function ok(condition, name) {
  console.log(`${condition ? 'ok' : 'not ok'} ${++count} - ${name}`);
}

// Equal, and of the same type.
function is(got, expected, name) {
  const same = util.isDeepStrictEqual(got, expected);

  ok(same, name);
  if (!same) {
    console.log(`# got: ${util.inspect(got)}\n# expected: ${util.inspect(expected)}`
      .replace(/\n(?!#)/g, '\n# '));
  }
}

// The promise must fail with this SQLSTATE.
async function fails(promise, sqlstate, name) {
  let got;

  try {
    got = await promise;
  } catch (error) {
    is((error.cause || error.original || error).code, sqlstate, name);
    return;
  }
  is(got, `an error ${sqlstate}`, name);
}

// Run the test; an error is the end of it, without a plan.
function run(test) {
  test().then(
    () => console.log(`1..${count}`),
    (error) => {
      console.error(error);
      process.exit(1);
    });
}

// The version of a package, which package.json names exactly.
function version(name) {
  return require('./package.json').dependencies[name];
}

// What each section of doc/clients/ does, in the words of its client, with a table of orders: OLD
// and FAR are in it, of 2010 and of 2045, then a row of now, then a batch of 1,000.
const OLD = 2n ** 53n + 1n;
const FAR = 2n ** 62n + 1n;
const from = new Date(Date.now() - 3600 * 1000);
const to = new Date(Date.now() + 3600 * 1000);
const rows = [...Array(1000).keys()].map((number) => ({ item: `item ${number}` }));

// Whether it has, with keys of a type of JavaScript.
function form(type, { id, row, some, newest, next, period, batch }) {
  const keys = (list) => list.map((one) => one.id);
  const numbers = (list) => keys(list).map(BigInt);
  const descend = (list) => list.every((number, i) => i === 0 || number < list[i - 1]);
  const minted = [BigInt(id), ...numbers(batch)];

  is([id, row.id, ...keys(batch)].every((key) => typeof key === type), true, `a key is a ${type}`);
  ok(BigInt(id) > OLD && row.id === id && row.item === 'tea', 'insert, and read back exactly');
  is(numbers(some).sort(), minted.slice(0, 2), 'a list of keys');
  is(numbers(newest), [FAR, ...minted.toReversed().slice(0, 19)], 'newest first');
  is(numbers(next), minted.toReversed().slice(19, 39), 'the next page');
  is(numbers(period).sort(), minted, 'rows of a period, by Dates');
  ok(minted.length === 1001 && descend(minted.toReversed()), 'a batch of 1,000, whose keys ascend');
}

module.exports = { FAR, OLD, client, ok, is, fails, form, from, rows, run, to, version };
