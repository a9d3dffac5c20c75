// The official OpenAI client for JavaScript asks a server of Rouse, whose URL is the argument, for responses, which are
// translated from chat completions. The second argument is "ollama" where the model runs on Ollama, which has that API itself.
// Prints one line per check and ends with status 1 if one fails.
import assert from 'node:assert/strict';
import OpenAI from 'openai';
import { fails, run } from './checks.mjs';

const [url, runtime] = process.argv.slice(2);
const client = new OpenAI({ baseURL: url + '/v1', apiKey: 'none', maxRetries: 0 });
const create = (input, more = {}) => client.responses.create({ model: 'pico', input, temperature: 0, ...more });
const object = (properties) => ({ type: 'object', properties, required: Object.keys(properties), additionalProperties: false });
const tools = [{ type: 'function', name: 'dye', description: 'Dyes.', strict: true, parameters: object({ color: { enum: ['red'] } }) }];

const common = {
  async 'words'() {
    const got = await create('echo apple pear');
    assert.equal(got.output_text, 'apple pear');
    assert.equal(got.status, 'completed');
  },
  async 'streamed words'() {
    let text = '';
    for await (const event of await create('echo apple pear', { stream: true })) if (event.type === 'response.output_text.delta') text += event.delta;
    assert.equal(text, 'apple pear');
  },
  async 'nobody'() {
    assert.equal((await fails(client.responses.create({ model: 'nobody', input: 'x' }))).status, 404);
  },
};

const translated = {
  async 'a text'() {
    const got = await create('echo apple pear', { instructions: 'Be brief.', metadata: { a: 'b' } });
    assert.equal(got.output_text, 'apple pear');
    assert.equal(got.status, 'completed');
    assert.equal(got.object, 'response');
    assert.match(got.id, /^resp_/);
    assert.equal(got.instructions, 'Be brief.');
    assert.deepEqual(got.metadata, { a: 'b' });
    assert.equal(got.store, false);
    assert.ok(got.usage.input_tokens > 0 && got.usage.total_tokens === got.usage.input_tokens + got.usage.output_tokens);
  },
  async 'items, and the answer as the next input'() {
    const first = await create([{ role: 'developer', content: 'Be brief.' }, { role: 'user', content: [{ type: 'input_text', text: 'echo apple' }] }]);
    assert.equal(first.output_text, 'apple');
    const next = await create([{ role: 'user', content: 'echo apple' }, ...first.output, { role: 'user', content: 'echo pear' }]);
    assert.equal(next.status, 'completed');
  },
  async 'a limit'() {
    const got = await create('echo apple pear plum', { max_output_tokens: 1 });
    assert.equal(got.status, 'incomplete');
    assert.equal(got.incomplete_details.reason, 'max_output_tokens');
  },
  async 'a stream'() {
    const types = new Set();
    let next = 0;
    let text = '';
    const stream = client.responses.stream({ model: 'pico', input: 'echo apple pear', temperature: 0 });
    stream.on('event', (event) => {
      types.add(event.type);
      assert.equal(event.sequence_number, next++);
    });
    stream.on('response.output_text.delta', (event) => (text += event.delta));
    const got = await stream.finalResponse();
    assert.equal(text, 'apple pear');
    assert.equal(got.output_text, 'apple pear');
    for (const type of ['created', 'in_progress', 'output_item.added', 'content_part.added', 'output_text.delta', 'output_text.done', 'content_part.done', 'output_item.done', 'completed']) assert.ok(types.has('response.' + type), type);
  },
  async 'a JSON schema, parsed'() {
    const schema = object({ name: { type: 'string' }, age: { type: 'integer' } });
    const got = await client.responses.parse({ model: 'pico', input: 'json name=bob age=7', temperature: 0, text: { format: { type: 'json_schema', name: 'person', strict: true, schema } } });
    assert.deepEqual(got.output_parsed, { name: 'bob', age: 7 });
  },
  async 'a tool, used and answered'() {
    const input = [{ role: 'user', content: 'echo red' }];
    const got = await create(input, { tools, tool_choice: 'required', parallel_tool_calls: false });
    const call = got.output.find((item) => item.type === 'function_call');
    assert.equal(call.name, 'dye');
    assert.deepEqual(JSON.parse(call.arguments), { color: 'red' });
    const next = await create([...input, ...got.output, { type: 'function_call_output', call_id: call.call_id, output: 'done' }], { tools, tool_choice: 'none' });
    assert.equal(next.status, 'completed');
    assert.equal(next.output[0].type, 'message');
  },
  async 'a streamed tool'() {
    let text = '';
    const stream = client.responses.stream({ model: 'pico', input: 'echo red', temperature: 0, tools, tool_choice: { type: 'function', name: 'dye' } });
    stream.on('response.function_call_arguments.delta', (event) => (text += event.delta));
    const got = await stream.finalResponse();
    assert.deepEqual(JSON.parse(text), { color: 'red' });
    assert.deepEqual(JSON.parse(got.output[0].arguments), { color: 'red' });
  },
  async 'the probabilities of tokens, whole and streamed'() {
    const more = { model: 'pico', input: 'echo apple', temperature: 0, include: ['message.output_text.logprobs'], top_logprobs: 2 };
    const check = (got) => {
      const { logprobs } = got.output[0].content[0];
      assert.equal(logprobs.map(({ token }) => token).join(''), 'apple');
      for (const { logprob, top_logprobs } of logprobs) assert.ok(logprob <= 0 && top_logprobs.length === 2 && top_logprobs[0].logprob === logprob);
    };
    check(await client.responses.create(more));
    check(await client.responses.stream(more).finalResponse());
  },
  async 'some of the tools'() {
    const other = { ...tools[0], name: 'paint' };
    const got = await create('echo red', { tools: [...tools, other], tool_choice: { type: 'allowed_tools', mode: 'required', tools: [{ type: 'function', name: 'paint' }] } });
    assert.ok(got.output.length > 0 && got.output.every((item) => item.type === 'function_call' && item.name === 'paint'), JSON.stringify(got.output));
    assert.equal(got.tools.length, 2);
  },
  async 'what cannot be kept is refused'() {
    for (const [more, says] of [
      [{ store: true }, 'store.*rouse up --store'],
      [{ previous_response_id: 'resp_1' }, 'previous_response_id.*--store'],
      [{ background: true }, 'background.*--store'],
      [{ tools: [{ type: 'web_search' }] }, 'web_search'],
      [{ text: { verbosity: 'low' } }, 'verbosity'],
      [{ reasoning: { effort: 'high' } }, 'reasoning'],
      [{ max_output_tokens: 100000 }, 'max_output_tokens'],
      [{ truncation: 'auto' }, 'truncation'],
      [{ include: ['file_search_call.results'] }, 'include'],
      [{ input: [{ type: 'item_reference', id: 'x' }] }, 'item_reference'],
      [{ input: [{ role: 'user', content: [{ type: 'input_file', file_id: 'x' }] }] }, 'input_file'],
      [{ temperature: 900 }, 'temperature'],
    ]) {
      const error = await fails(create('x', more));
      assert.equal(error.status, 400, says + ': ' + error.message);
      assert.match(error.message, new RegExp(says));
    }
  },
  async 'an unknown model'() {
    const error = await fails(client.responses.create({ model: 'other', input: 'x' }));
    assert.equal(error.status, 404);
    assert.equal(error.code, 'model_not_found');
  },
};

await run(runtime === 'ollama' ? common : { ...common, ...translated });
