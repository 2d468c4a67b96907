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
    is((error.original || error).code, sqlstate, name);
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

module.exports = { client, ok, is, fails, run };
