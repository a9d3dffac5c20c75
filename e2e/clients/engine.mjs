// The official OpenAI client for JavaScript asks a server of Rouse, whose URL is
// the argument, for all that the engine can. Prints one line per check and ends
// with status 1 if one fails.
import assert from 'node:assert/strict';
import OpenAI from 'openai';
import { zodResponseFormat, zodTextFormat } from 'openai/helpers/zod';
import { z } from 'zod';
import { ask, fails, run } from './checks.mjs';

const client = new OpenAI({ baseURL: process.argv[2] + '/v1', apiKey: 'none', maxRetries: 0 });
const chat = (model, content, more = {}) => client.chat.completions.create(ask(model, content, { temperature: 0, ...more }));
const object = (properties) => ({ type: 'object', properties, required: Object.keys(properties), additionalProperties: false });

// Two tools; each has one thing to say.
const tool = (name, color) => ({ type: 'function', function: { name, parameters: object({ color: { enum: [color] } }) } });
const tools = [tool('paint', 'red'), tool('dye', 'blue')];
const colors = { paint: 'red', dye: 'blue' };

function checkCall(call) {
  assert.match(call.id, /^call_/);
  assert.deepEqual(JSON.parse(call.function.arguments), { color: colors[call.function.name] });
}

const checks = {
  async 'adapters by their names'() {
    assert.equal((await chat('shout', 'echo apple pear')).choices[0].message.content, 'APPLE PEAR');
    assert.equal((await chat('pirate', 'echo apple pear')).choices[0].message.content, 'apple pear arr!');
    assert.equal((await chat('pico', 'echo apple pear')).choices[0].message.content, 'apple pear');
    assert.equal((await client.models.retrieve('shout')).parent, 'pico');
  },
  async 'a JSON schema, parsed'() {
    const schema = object({ name: { type: 'string' }, age: { type: 'integer' } });
    const got = await client.chat.completions.parse(ask('pico', 'json name=bob age=7', {
      temperature: 0, response_format: { type: 'json_schema', json_schema: { name: 'person', strict: true, schema } },
    }));
    assert.equal(got.choices[0].message.content, '{"name":"bob","age":7}');
    assert.deepEqual(got.choices[0].message.parsed, { name: 'bob', age: 7 });
  },
  async 'JSON mode'() {
    const got = await chat('pico', 'json item=lamp count=12', { response_format: { type: 'json_object' } });
    assert.equal(got.choices[0].message.content, '{"item":"lamp","count":12}');
  },
  async 'tools'() {
    const auto = await chat('pico', 'echo red', { tools });
    assert.equal(auto.choices[0].message.content, 'red');
    assert.equal(auto.choices[0].message.tool_calls, undefined);
    for (const tool_choice of ['required', { type: 'function', function: { name: 'paint' } }, { type: 'function', function: { name: 'dye' } }]) {
      const { message, finish_reason } = (await chat('pico', 'echo red', { tools, tool_choice, parallel_tool_calls: false })).choices[0];
      assert.equal(finish_reason, 'tool_calls');
      assert.equal(message.content, null);
      assert.equal(message.tool_calls.length, 1);
      checkCall(message.tool_calls[0]);
      if (tool_choice.function) assert.equal(message.tool_calls[0].function.name, tool_choice.function.name);
    }
  },
  async 'streamed tools'() {
    const deltas = [];
    const runner = client.chat.completions.stream(ask('pico', 'echo red', { temperature: 0, tools, tool_choice: 'required', parallel_tool_calls: false }));
    runner.on('tool_calls.function.arguments.delta', (event) => deltas.push(event.arguments_delta));
    const { message, finish_reason } = (await runner.finalChatCompletion()).choices[0];
    assert.equal(finish_reason, 'tool_calls');
    assert.equal(message.tool_calls.length, 1);
    checkCall(message.tool_calls[0]);
    assert.ok(deltas.length > 1, deltas.length + ' deltas');
    assert.equal(deltas.join(''), message.tool_calls[0].function.arguments);
  },
  async 'the helper that calls tools'() {
    const called = [];
    const paint = { ...tools[0].function, parse: JSON.parse, function: ({ color }) => (called.push(color), 'done') };
    const runner = client.chat.completions.runTools(ask('pico', 'echo red', {
      temperature: 0, tools: [{ type: 'function', function: paint }], tool_choice: { type: 'function', function: { name: 'paint' } },
    }));
    await runner.done();
    assert.deepEqual(called, ['red']);
  },
  async 'vectors'() {
    const input = ['echo red', 'echo blue'];
    const get = async (more) => (await client.embeddings.create({ model: 'pico', input, ...more })).data;
    const plain = await get({ encoding_format: 'float' });
    const decoded = await get({}); // the client asks for Base64 by itself and decodes it
    plain.forEach(({ index, embedding }, i) => {
      assert.equal(index, i);
      assert.ok(Math.abs(embedding.reduce((sum, x) => sum + x * x, 0) - 1) < 1e-5);
      assert.deepEqual(decoded[i].embedding.map(Math.fround), embedding.map(Math.fround));
    });
    const [few] = await get({ dimensions: 8, encoding_format: 'float' });
    const length = Math.hypot(...plain[0].embedding.slice(0, 8));
    assert.equal(few.embedding.length, 8);
    few.embedding.forEach((x, i) => assert.ok(Math.abs(x - plain[0].embedding[i] / length) < 1e-6));
  },
  async 'log probabilities, of the prompt too'() {
    const got = await chat('pico', 'echo apple pear', { logprobs: true, top_logprobs: 2, prompt_logprobs: 1 });
    const { content } = got.choices[0].logprobs;
    assert.equal(content.map(({ token }) => token).join(''), 'apple pear');
    for (const { token, logprob, bytes, top_logprobs } of content) {
      assert.equal(Buffer.from(bytes).toString(), token);
      assert.equal(top_logprobs[0].logprob, logprob);
      assert.ok(logprob <= 0 && top_logprobs[1].logprob <= logprob);
    }
    assert.equal(got.prompt_logprobs.length, got.usage.prompt_tokens);
    assert.equal(got.prompt_logprobs[0], null);
  },
  async 'several texts'() {
    const same = await chat('pico', 'upper apple pear', { n: 3 });
    assert.deepEqual(same.choices.map(({ message }) => message.content), ['APPLE PEAR', 'APPLE PEAR', 'APPLE PEAR']);
    const drawn = async () => (await chat('pico', 'story cat boat', { n: 3, seed: 4, temperature: 1.5 })).choices.map(({ message }) => message.content);
    const first = await drawn();
    assert.equal(new Set(first).size, 3);
    assert.deepEqual(await drawn(), first);
  },
  async 'cached tokens, salt and priority'() {
    const cached = [];
    for (const cache_salt of ['node', 'node', 'other']) {
      const { usage } = await chat('pico', 'echo' + ' blue red'.repeat(60), { max_tokens: 2, cache_salt, priority: -1 });
      cached.push(usage.prompt_tokens_details.cached_tokens);
      assert.ok(usage.prompt_tokens > 100);
    }
    assert.equal(cached[0], 0);
    assert.ok(cached[1] > 100 && cached[1] % 16 === 0, 'cached ' + cached[1]);
    assert.equal(cached[2], 0);
  },
  async 'an object by zod, parsed'() {
    const person = z.object({ name: z.string(), age: z.number().int() });
    const got = await client.chat.completions.parse(ask('pico', 'json name=bob age=7', { temperature: 0, response_format: zodResponseFormat(person, 'person') }));
    assert.deepEqual(got.choices[0].message.parsed, { name: 'bob', age: 7 });
    const again = await client.responses.parse({ model: 'pico', input: 'json name=bob age=7', temperature: 0, text: { format: zodTextFormat(person, 'person') } });
    assert.deepEqual(again.output_parsed, { name: 'bob', age: 7 });
  },
  async 'what the engine does not do'() {
    for (const [field, value] of Object.entries({ modalities: ['text', 'audio'], audio: { voice: 'x', format: 'wav' }, web_search_options: {}, verbosity: 'low', store: true })) {
      const error = await fails(chat('pico', 'echo red', { [field]: value }));
      assert.ok(error instanceof OpenAI.BadRequestError, `${field}: ${error}`);
      assert.equal(error.param, field);
    }
  },
  async 'fields out of range'() {
    for (const [field, value] of Object.entries({ priority: 'high', cache_salt: '', prompt_logprobs: 10000, n: 0, top_logprobs: -1, repetition_penalty: 1e-300, tool_choice: 'required' })) {
      const error = await fails(chat('pico', 'echo red', { logprobs: true, [field]: value }));
      assert.ok(error instanceof OpenAI.BadRequestError, `${field}: ${error}`);
      assert.equal(error.param, field);
    }
  },
};

await run(checks);
