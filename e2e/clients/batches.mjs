// The official OpenAI client for JavaScript leaves files and batches at a server of Rouse with a store, whose URL is the argument.
// Prints one line per check and ends with status 1 if one fails.
import assert from 'node:assert/strict';
import OpenAI, { toFile } from 'openai';
import { ask, fails, run } from './checks.mjs';

const client = new OpenAI({ baseURL: process.argv[2] + '/v1', apiKey: 'none', maxRetries: 0 });
const line = (id, body) => JSON.stringify({ custom_id: id, method: 'POST', url: '/v1/chat/completions', body }) + '\n';
const upload = async (text) => client.files.create({ file: await toFile(Buffer.from(text), 'in.jsonl'), purpose: 'batch' });
const create = async (text, window = '24h') =>
  client.batches.create({ input_file_id: (await upload(text)).id, endpoint: '/v1/chat/completions', completion_window: window, metadata: { made: 'here' } });

// ended waits until a batch has ended; the program that runs the checks bounds how long.
async function ended(id) {
  for (;;) {
    const batch = await client.batches.retrieve(id);
    if (['completed', 'failed', 'expired', 'cancelled'].includes(batch.status)) return batch;
    await new Promise((done) => setTimeout(done, 50));
  }
}
const lines = async (id) => (await (await client.files.content(id)).text()).trim().split('\n').map((text) => JSON.parse(text));

await run({
  async 'files'() {
    const file = await upload('{}\n');
    assert.equal(file.object, 'file');
    assert.equal(file.bytes, 3);
    assert.equal((await client.files.retrieve(file.id)).filename, 'in.jsonl');
    assert.equal(await (await client.files.content(file.id)).text(), '{}\n');
    const second = await upload('{ }\n');
    const ids = [];
    for await (const one of client.files.list({ limit: 1, order: 'asc', purpose: 'batch' })) ids.push(one.id);
    assert.deepEqual(ids, [file.id, second.id]);
    assert.equal((await client.files.delete(file.id)).deleted, true);
    assert.equal((await fails(client.files.retrieve(file.id))).status, 404);
    assert.equal((await fails(client.files.create({ file: await toFile(Buffer.from('x'), 'x'), purpose: 'vision' }))).param, 'purpose');
    const kept = await client.files.create({ file: await toFile(Buffer.from('x'), 'x'), purpose: 'batch', expires_after: { anchor: 'created_at', seconds: 3600 } });
    assert.equal(kept.expires_at - kept.created_at, 3600);
  },
  async 'a batch that is due wakes its model'() {
    let text = '';
    for (let k = 0; k < 20; k++) text += line('id-' + k, ask('pico', 'echo w' + k, { temperature: 0 }));
    const made = await create(text, '1m');
    assert.equal(made.object, 'batch');
    assert.equal(made.status, 'validating');
    const batch = await ended(made.id);
    assert.equal(batch.status, 'completed');
    assert.deepEqual(batch.request_counts, { total: 20, completed: 20, failed: 0 });
    assert.equal(batch.error_file_id, null);
    assert.equal(batch.model, 'pico');
    const words = Object.fromEntries((await lines(batch.output_file_id)).map((l) => [l.custom_id, l.response.body.choices[0].message.content]));
    for (let k = 0; k < 20; k++) assert.equal(words['id-' + k], 'w' + k);
  },
  async 'cancelled'() {
    let text = '';
    for (let k = 0; k < 2000; k++) text += line('id-' + k, ask('pico', 'echo apple pear plum', { temperature: 0 }));
    const made = await create(text);
    const asked = await client.batches.cancel(made.id);
    assert.ok(['cancelling', 'cancelled'].includes(asked.status), asked.status);
    const batch = await ended(made.id);
    assert.equal(batch.status, 'cancelled');
    const counts = batch.request_counts;
    assert.ok(counts.total === 0 || counts.completed + counts.failed === counts.total, JSON.stringify(counts));
    assert.equal((await fails(client.batches.cancel(made.id))).status, 409);
  },
  async 'a wrong line'() {
    const batch = await ended((await create(line('a', ask('pico', 'x')) + line('a', ask('pico', 'y')))).id);
    assert.equal(batch.status, 'failed');
    assert.equal(batch.errors.data[0].line, 2);
    assert.equal(batch.errors.data[0].code, 'duplicate_custom_id');
  },
  async 'lists'() {
    let n = 0;
    for await (const batch of client.batches.list({ limit: 1 })) n += batch.metadata.made === 'here';
    assert.equal(n, 3);
    assert.equal((await fails(client.batches.retrieve('batch_none'))).status, 404);
  },
  async 'an answer later'() {
    const { data, response } = await client.chat.completions.create(ask('pico', 'echo later', { temperature: 0 }), { headers: { Prefer: 'respond-async' } }).withResponse();
    assert.equal(response.status, 202);
    const url = response.headers.get('location');
    assert.equal(url, data.url);
    for (;;) {
      const got = await client.get(url.replace(/^\/v1/, '')).asResponse();
      if (got.status === 202) continue;
      assert.equal((await got.json()).choices[0].message.content, 'later');
      break;
    }
  },
});
