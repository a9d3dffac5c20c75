// Ollama's official client for JavaScript, and LangChain's, against a function on the engine, for which Ollama's API is
// translated. The argument is the server's URL. Prints one line per check and ends with status 1 if one fails.
import assert from 'node:assert/strict';
import { ChatOllama, OllamaEmbeddings } from '@langchain/ollama';
import { Ollama } from 'ollama';
import { ask, fails, run } from './checks.mjs';

const [url] = process.argv.slice(2);
const client = new Ollama({ host: url });
const options = { temperature: 0, num_predict: 40 };

await run({
  async 'version'() {
    assert.match((await client.version()).version, /^\d+\.\d+\.\d+/);
  },
  async 'list'() {
    assert.deepEqual((await client.list()).models.map((m) => m.name), ['pico:latest']);
  },
  async 'chat'() {
    const got = await client.chat(ask('pico', 'echo apple pear', { options }));
    assert.equal(got.message.content, 'apple pear');
    assert.equal(got.message.role, 'assistant');
    assert.equal(got.done, true);
    assert.equal(got.done_reason, 'stop');
    assert.ok(got.eval_count > 0 && got.prompt_eval_count > 0, JSON.stringify(got));
  },
  async 'a name with a tag'() {
    assert.equal((await client.chat(ask('pico:latest', 'upper apple pear', { options }))).message.content, 'APPLE PEAR');
  },
  async 'chat as a stream'() {
    let text = '';
    let last;
    for await (const part of await client.chat(ask('pico', 'echo apple pear', { options, stream: true }))) {
      text += part.message.content;
      last = part;
    }
    assert.equal(text, 'apple pear');
    assert.equal(last.done, true);
  },
  async 'generate, and as a stream with a limit'() {
    assert.equal((await client.generate({ model: 'pico', prompt: 'echo apple pear', options })).response, 'apple pear');
    let last;
    for await (const part of await client.generate({ model: 'pico', prompt: 'echo apple pear', stream: true, options: { temperature: 0, num_predict: 1 } })) last = part;
    assert.equal(last.done_reason, 'length');
    assert.equal(last.eval_count, 1);
  },
  async 'a raw prompt'() {
    const prompt = '<|im_start|>user\necho apple pear<|im_end|>\n<|im_start|>assistant\n';
    assert.equal((await client.generate({ model: 'pico', prompt, raw: true, options })).response, 'apple pear');
    let text = '';
    for await (const part of await client.generate({ model: 'pico', prompt, raw: true, options, stream: true })) text += part.response;
    assert.equal(text, 'apple pear');
  },
  async 'an answer that goes on from a beginning'() {
    const got = await client.chat({ model: 'pico', messages: [{ role: 'user', content: 'echo apple pear plum' }, { role: 'assistant', content: 'apple' }], options });
    assert.equal(got.message.content, ' pear plum');
  },
  async 'a JSON schema'() {
    const format = { type: 'object', properties: { name: { type: 'string' }, age: { type: 'integer' } }, required: ['name', 'age'], additionalProperties: false };
    assert.deepEqual(JSON.parse((await client.chat(ask('pico', 'json name=bob age=7', { options, format }))).message.content), { name: 'bob', age: 7 });
  },
  async 'a tool, used and answered'() {
    const color = { type: 'object', properties: { color: { type: 'string', enum: ['red'] } }, required: ['color'] };
    const tools = [{ type: 'function', function: { name: 'dye', description: 'Dyes.', parameters: color } }];
    const messages = [{ role: 'user', content: 'echo red' }];
    const got = await client.chat({ model: 'pico', messages, tools, tool_choice: 'required', options: { ...options, num_predict: 64 } });
    const [call] = got.message.tool_calls;
    assert.equal(call.function.name, 'dye');
    assert.deepEqual(call.function.arguments, { color: 'red' });
    const next = await client.chat({ model: 'pico', messages: [...messages, got.message, { role: 'tool', tool_name: 'dye', content: 'done' }], options });
    assert.equal(next.done, true);
  },
  async 'embed'() {
    const got = await client.embed({ model: 'pico', input: ['echo red', 'echo blue', 'echo red'] });
    const [red, blue, again] = got.embeddings;
    assert.equal(got.embeddings.length, 3);
    assert.deepEqual(red, again);
    assert.notDeepEqual(red, blue);
    assert.ok(Math.abs(red.reduce((sum, x) => sum + x * x, 0) - 1) < 1e-5, 'the length is not 1');
    assert.ok(got.prompt_eval_count > 0 && got.total_duration > 0);
    assert.equal(got.model, 'pico');
    assert.equal((await client.embed({ model: 'pico', input: 'echo red', dimensions: 8 })).embeddings[0].length, 8);
    assert.deepEqual((await client.embed({ model: 'pico', input: [] })).embeddings, []);
    const older = (await client.embeddings({ model: 'pico', prompt: 'echo red' })).embedding; // of any length
    const scale = Math.sqrt(older.reduce((sum, x) => sum + x * x, 0));
    assert.ok(older.every((x, i) => Math.abs(x / scale - red[i]) < 1e-5));
    assert.deepEqual((await new OllamaEmbeddings({ model: 'pico', baseUrl: url }).embedDocuments(['echo red', 'echo blue'])), [red, blue]);
  },
  async 'embed cuts what is too long, unless it may not'() {
    const input = 'echo' + ' red'.repeat(3000);
    const cut = await client.embed({ model: 'pico', input });
    assert.equal(cut.prompt_eval_count, 512);
    const error = await fails(client.embed({ model: 'pico', input, truncate: false }));
    assert.equal(error.status_code, 400);
    assert.match(error.message, /token/);
  },
  async 'show'() {
    const got = await client.show({ model: 'pico' });
    assert.equal(got.details.format, 'gguf');
    assert.equal(got.details.quantization_level, 'Q8_0');
    assert.equal(got.details.family, got.model_info['general.architecture']);
    assert.ok(got.model_info['general.parameter_count'] > 1e5, JSON.stringify(got.model_info));
    assert.ok(got.capabilities.includes('completion'));
    assert.match(got.template, /messages/);
    assert.match(got.parameters, /^num_ctx +512\n/);
    assert.ok(Date.parse(got.modified_at) > 0, got.modified_at);
    assert.equal((await fails(client.show({ model: 'other' }))).status_code, 404);
    assert.equal((await fails(client.show({ model: 'pico', verbose: true }))).status_code, 400);
  },
  async 'models are not changed'() {
    assert.match((await fails(client.pull({ model: 'x' }))).message, /manifest of a function/);
  },
  async 'ps'() {
    assert.deepEqual((await client.ps()).models.map((m) => m.name), ['pico:latest']);
  },
  async 'a client that leaves'() {
    for await (const part of await client.chat(ask('pico', 'count red blue', { options, stream: true }))) {
      if (part.message.content) break;
    }
    assert.equal((await client.chat(ask('pico', 'echo still there', { options }))).message.content, 'still there');
  },
  async 'an unknown model'() {
    assert.equal((await fails(client.chat(ask('other', 'x')))).status_code, 404);
  },
  async 'what cannot be kept is refused'() {
    for (const [request, says] of [
      [{ raw: true, system: 's' }, /raw/], [{ suffix: 's' }, /suffix/], [{ template: 't' }, /template/], [{ think: true }, /think/], [{ options: { num_predict: 100000 } }, /options.num_predict/],
    ]) {
      const error = await fails(client.generate({ model: 'pico', prompt: 'x', ...request }));
      assert.equal(error.status_code, 400);
      assert.match(error.message, says);
    }
  },
  async 'langchain'() {
    const model = new ChatOllama({ model: 'pico', baseUrl: url, temperature: 0 });
    assert.equal((await model.invoke('echo apple pear')).content, 'apple pear');
    let text = '';
    for await (const part of await model.stream('echo apple pear')) text += part.content;
    assert.equal(text, 'apple pear');
  },
});
