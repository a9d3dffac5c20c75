// The official OpenAI client for JavaScript stores responses at a server of Rouse with a store, whose URL is the first argument, finds
// them again and goes on from them. The second argument is the model. Prints one line per check and ends with status 1 if one fails.
import assert from 'node:assert/strict';
import OpenAI from 'openai';
import { fails, run } from './checks.mjs';

const [url, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL: url + '/v1', apiKey: 'none', maxRetries: 0 });
const create = (input, more = {}) => client.responses.create({ model, input, temperature: 0, max_output_tokens: 8, ...more });
const texts = (items) => items.flatMap((item) => item.content.map((part) => part.text));

// ended waits until a response has ended; the program that runs the checks bounds how long.
async function ended(id) {
  for (;;) {
    const got = await client.responses.retrieve(id);
    if (!['queued', 'in_progress'].includes(got.status)) return got;
    await new Promise((done) => setTimeout(done, 50));
  }
}

await run({
  async 'stored, found and gone on from'() {
    const first = await create('echo apple', { store: true });
    assert.equal(first.store, true);
    assert.match(first.id, /^resp_/);
    const again = await client.responses.retrieve(first.id);
    assert.deepEqual(again, JSON.parse(JSON.stringify({ ...first, output_text: again.output_text })));
    assert.equal(again.output[0].content[0].text, first.output[0].content[0].text);
    const second = await create('echo pear', { store: true, previous_response_id: first.id });
    assert.equal(second.previous_response_id, first.id);
    assert.ok(second.usage.input_tokens > first.usage.input_tokens, `${first.usage.input_tokens} tokens, then ${second.usage.input_tokens}`);
    const items = [];
    for await (const item of client.responses.inputItems.list(second.id, { limit: 1, order: 'asc' })) items.push(item);
    assert.deepEqual(texts(items), ['echo apple', first.output_text, 'echo pear']);
    assert.equal(new Set(items.map((item) => item.id)).size, 3);
    await client.responses.delete(first.id);
    assert.equal((await fails(client.responses.retrieve(first.id))).status, 404);
    const gone = await fails(create('echo plum', { previous_response_id: second.id }));
    assert.equal(gone.status, 400);
    assert.equal(gone.code, 'previous_response_not_found');
    assert.equal(gone.param, 'previous_response_id');
  },
  async 'streamed'() {
    const first = await client.responses.stream({ model, input: 'echo apple', temperature: 0, max_output_tokens: 8, store: true }).finalResponse();
    const ids = new Set();
    let last;
    for await (const event of await create('echo pear', { store: true, stream: true, previous_response_id: first.id })) {
      if (event.response) ids.add(event.response.id);
      last = event;
    }
    assert.deepEqual([...ids], [last.response.id]);
    assert.equal(last.response.previous_response_id, first.id);
    const kept = await client.responses.retrieve(last.response.id);
    assert.deepEqual(kept.output, last.response.output);
    assert.equal(kept.status, last.response.status);
  },
  async 'not stored where it is not asked for'() {
    const got = await create('echo apple');
    assert.equal((await fails(client.responses.retrieve(got.id))).status, 404);
    assert.equal((await fails(create('echo apple', { previous_response_id: got.id }))).code, 'previous_response_not_found');
  },
  async 'cut short, and stored as such'() {
    const got = await create('echo apple pear plum', { store: true, max_output_tokens: 1 });
    const kept = await client.responses.retrieve(got.id);
    assert.equal(kept.status, got.status);
    assert.deepEqual(kept.incomplete_details, got.incomplete_details);
  },
  async 'in the background'() {
    const made = await create('echo plum', { background: true });
    assert.equal(made.status, 'queued');
    const got = await ended(made.id);
    assert.ok(['completed', 'incomplete'].includes(got.status), got.status);
    assert.equal(got.background, true);
    assert.equal((await client.responses.cancel(made.id)).status, got.status);
    const next = await create('echo pear', { background: true, previous_response_id: made.id });
    assert.equal((await ended(next.id)).previous_response_id, made.id);
    await client.responses.delete(next.id);
    assert.equal((await fails(client.responses.retrieve(next.id))).status, 404);
    assert.equal((await fails(client.responses.cancel('resp_none'))).status, 404);
    assert.equal((await fails(create('x', { background: true, model: 'nobody' }))).status, 404);
  },
});
