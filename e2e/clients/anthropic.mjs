// The official Anthropic client for JavaScript asks a server of Rouse, whose URL is the argument, for all that
// /v1/messages can be had for. The second argument is "ollama" where the model runs on Ollama, which speaks that
// API itself; otherwise the answer of a chat completion is translated. Prints one line per check and ends with
// status 1 if one fails.
import assert from 'node:assert/strict';
import Anthropic from '@anthropic-ai/sdk';
import { ask, fails, run } from './checks.mjs';

const [url, runtime] = process.argv.slice(2);
const client = new Anthropic({ baseURL: url, apiKey: 'none', maxRetries: 0 });
const create = (content, more = {}) => client.messages.create(ask('pico', content, { max_tokens: 40, temperature: 0, ...more }));
const text = (message) => message.content.filter((b) => b.type === 'text').map((b) => b.text).join('');

const common = {
  async 'a message'() {
    const got = await create('echo apple pear');
    assert.equal(text(got), 'apple pear');
    assert.equal(got.type, 'message');
    assert.equal(got.role, 'assistant');
    assert.equal(got.stop_reason, 'end_turn');
    assert.match(got.id, /^msg_/);
    assert.ok(got.usage.input_tokens + (got.usage.cache_read_input_tokens ?? 0) > 0 && got.usage.output_tokens > 0, JSON.stringify(got.usage));
  },
  async 'a limit'() {
    const got = await create('echo apple pear plum', { max_tokens: 1 });
    assert.equal(got.stop_reason, 'max_tokens');
  },
  async 'a stream'() {
    const types = new Set();
    const stream = client.messages.stream(ask('pico', 'echo apple pear', { max_tokens: 40, temperature: 0 }));
    stream.on('streamEvent', (event) => types.add(event.type));
    const got = await stream.finalMessage();
    assert.equal(text(got), 'apple pear');
    assert.equal(got.stop_reason, 'end_turn');
    assert.ok(got.usage.output_tokens > 0);
    for (const type of ['message_start', 'content_block_start', 'content_block_delta', 'content_block_stop', 'message_delta', 'message_stop']) assert.ok(types.has(type), type);
  },
  async 'a stream that its client leaves'() {
    const stream = await client.messages.create(ask('pico', 'count red blue', { max_tokens: 40, temperature: 0, stream: true }));
    for await (const event of stream) {
      if (event.type === 'content_block_delta') break;
    }
    assert.equal(text(await create('echo still there')), 'still there');
  },
  async 'an unknown model'() {
    const error = await fails(client.messages.create(ask('other', 'x', { max_tokens: 1 })));
    assert.equal(error.status, 404);
    assert.equal(error.error.error.type, 'not_found_error');
  },
};

const schema = { type: 'object', properties: { color: { enum: ['red'] } }, required: ['color'], additionalProperties: false };
const tools = [{ name: 'dye', description: 'Dyes.', input_schema: schema }];

const translated = {
  async 'a conversation with blocks, a system and a stop sequence'() {
    const got = await create([{ type: 'text', text: 'echo apple pear plum', cache_control: { type: 'ephemeral' } }], {
      system: [{ type: 'text', text: 'Be brief.' }], stop_sequences: [' plum'], metadata: { user_id: 'u' },
    });
    assert.equal(text(got), 'apple pear');
    assert.equal(got.stop_reason, 'stop_sequence');
    assert.equal(got.stop_sequence, ' plum');
  },
  async 'the number of tokens'() {
    const { input_tokens } = await client.messages.countTokens(ask('pico', 'echo apple pear'));
    const { usage } = await create('echo apple pear');
    assert.equal(input_tokens, usage.input_tokens + usage.cache_read_input_tokens);
  },
  async 'a tool, used and answered'() {
    const got = await create('echo red', { tools, tool_choice: { type: 'tool', name: 'dye' }, max_tokens: 200 });
    assert.equal(got.stop_reason, 'tool_use');
    const call = got.content.find((b) => b.type === 'tool_use');
    assert.equal(call.name, 'dye');
    assert.deepEqual(call.input, { color: 'red' });
    const next = await client.messages.create({ model: 'pico', max_tokens: 40, temperature: 0, tools, messages: [
      { role: 'user', content: 'echo red' }, { role: 'assistant', content: got.content },
      { role: 'user', content: [{ type: 'tool_result', tool_use_id: call.id, content: 'done' }, { type: 'text', text: 'echo plum' }] },
    ] });
    assert.ok(next.usage.output_tokens > 0);
  },
  async 'a streamed tool'() {
    const parts = [];
    const stream = client.messages.stream(ask('pico', 'echo red', { max_tokens: 200, temperature: 0, tools, tool_choice: { type: 'any' } }));
    stream.on('inputJson', (part) => parts.push(part));
    const got = await stream.finalMessage();
    assert.equal(got.stop_reason, 'tool_use');
    assert.deepEqual(got.content.find((b) => b.type === 'tool_use').input, { color: 'red' });
    assert.ok(parts.length > 0);
  },
  async 'a document, and thoughts that a model without them does not have'() {
    const got = await create([{ type: 'document', source: { type: 'text', media_type: 'text/plain', data: 'echo plum' } }], { max_tokens: 80, thinking: { type: 'enabled', budget_tokens: 40 } });
    assert.equal(text(got), 'plum');
    assert.deepEqual(got.content.map((b) => b.type), ['text']);
  },
  async 'an answer that goes on from a beginning'() {
    const got = await create('', { messages: [{ role: 'user', content: 'echo apple pear plum' }, { role: 'assistant', content: 'apple' }] });
    assert.equal(text(got), ' pear plum');
  },
  async 'a JSON schema'() {
    const format = { type: 'json_schema', schema: { type: 'object', properties: { name: { type: 'string' }, age: { type: 'integer' } }, required: ['name', 'age'], additionalProperties: false } };
    const got = await create('json name=bob age=7', { output_config: { format } });
    assert.deepEqual(JSON.parse(text(got)), { name: 'bob', age: 7 });
  },
  async 'what cannot be kept is refused'() {
    for (const [more, says] of [
      [{ thinking: { type: 'enabled', budget_tokens: 40 } }, 'budget_tokens'],
      [{ container: 'c' }, 'container'],
      [{ tools: [{ type: 'web_search_20250305', name: 'web_search' }] }, 'web_search'],
      [{ messages: [{ role: 'user', content: 'x' }, { role: 'assistant', content: '' }] }, 'assistant'],
      [{ messages: [{ role: 'user', content: [{ type: 'document', source: { type: 'url', url: 'https://example.com/x.pdf' } }] }] }, 'document'],
      [{ temperature: 900 }, 'temperature'],
    ]) {
      const error = await fails(create('x', more));
      assert.equal(error.status, 400, says + ': ' + error.message);
      assert.equal(error.error.error.type, 'invalid_request_error');
      assert.match(error.error.error.message, new RegExp(says));
    }
  },
};

await run(runtime === 'ollama' ? common : { ...common, ...translated });
