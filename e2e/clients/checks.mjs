// What the checks of the clients have in common.
import assert from 'node:assert/strict';

export const ask = (model, content, more = {}) => ({ model, messages: [{ role: 'user', content }], ...more });

// fails returns the error that a promise ends with, and fails where there is none.
export async function fails(promise) {
  let value;
  try {
    value = await promise;
  } catch (error) {
    return error;
  }
  assert.fail('no error, but ' + JSON.stringify(value));
}

// run runs the checks one after the other, prints a line for each and ends the
// program, with status 1 if one fails.
export async function run(checks) {
  let failed = 0;
  for (const [name, check] of Object.entries(checks)) {
    try {
      await check();
      console.log('ok   ' + name);
    } catch (error) {
      failed++;
      console.log('FAIL ' + name + ': ' + error.message);
    }
  }
  process.exit(failed > 0 ? 1 : 0);
}
