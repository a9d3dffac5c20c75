// The official Anthropic client for JavaScript leaves batches of messages at a server of Rouse with a store, whose URL is the argument.
// Prints one line per check and ends with status 1 if one fails.
import assert from 'node:assert/strict';
import Anthropic from '@anthropic-ai/sdk';
import { ask, fails, run } from './checks.mjs';

const client = new Anthropic({ baseURL: process.argv[2], apiKey: 'none', maxRetries: 0 });
const { batches } = client.messages;
const soon = { headers: { 'X-Request-Timeout': '1m' } }; // it is due at once
const request = (id, content, more = {}) => ({ custom_id: id, params: ask('pico', content, { max_tokens: 20, temperature: 0, ...more }) });

// ended waits until a batch has ended; the program that runs the checks bounds how long.
async function ended(id) {
  for (;;) {
    const batch = await batches.retrieve(id);
    if (batch.processing_status === 'ended') return batch;
    await new Promise((done) => setTimeout(done, 50));
  }
}

let first;
await run({
  async 'a batch that is due wakes its model'() {
    const requests = [];
    for (let k = 0; k < 20; k++) requests.push(request('id-' + k, 'echo w' + k));
    requests.push(request('wrong', 'x', { max_tokens: -1 }), { custom_id: 'nobody', params: ask('nobody', 'x', { max_tokens: 1 }) });
    first = await batches.create({ requests }, soon);
    assert.equal(first.processing_status, 'in_progress');
    assert.equal(first.type, 'message_batch');
    assert.equal(first.results_url, null);
    const batch = await ended(first.id);
    assert.deepEqual(batch.request_counts, { processing: 0, succeeded: 20, errored: 2, canceled: 0, expired: 0 });
    const got = {};
    for await (const one of await batches.results(batch.id)) got[one.custom_id] = one.result;
    for (let k = 0; k < 20; k++) assert.equal(got['id-' + k].message.content[0].text, 'w' + k);
    assert.equal(got.wrong.type, 'errored');
    assert.equal(got.wrong.error.error.type, 'invalid_request_error');
    assert.equal(got.nobody.error.error.type, 'not_found_error');
  },
  async 'cancelled'() {
    const requests = [];
    for (let k = 0; k < 1000; k++) requests.push(request('id-' + k, 'echo apple pear plum'));
    const made = await batches.create({ requests });
    assert.ok(['canceling', 'ended'].includes((await batches.cancel(made.id)).processing_status));
    const { request_counts: counts } = await ended(made.id);
    assert.equal(counts.succeeded + counts.canceled, 1000);
    assert.ok(counts.canceled > 0, JSON.stringify(counts));
    assert.equal((await fails(batches.cancel(made.id))).status, 409);
  },
  async 'lists, and what is deleted'() {
    const ids = [];
    for await (const batch of batches.list({ limit: 1 })) ids.push(batch.id);
    assert.equal(ids.length, 2);
    assert.equal(ids[1], first.id);
    assert.equal((await batches.list({ before_id: ids[1] })).data[0].id, ids[0]);
    assert.equal((await batches.delete(first.id)).type, 'message_batch_deleted');
    const error = await fails(batches.retrieve(first.id));
    assert.equal(error.status, 404);
    assert.equal(error.error.error.type, 'not_found_error');
  },
  async 'a wrong request'() {
    const error = await fails(batches.create({ requests: [request('a', 'x'), request('a', 'y')] }));
    assert.equal(error.status, 400);
    assert.match(error.message, /requests\.1/);
  },
});
