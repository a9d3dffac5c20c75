// Ollama's official client for JavaScript, and LangChain's, against a function on the engine, for which Ollama's API is
// translated. The argument is the server's URL. Prints one line per check and ends with status 1 if one fails.
import assert from 'node:assert/strict';
import { ChatOllama } from '@langchain/ollama';
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
  async 'a JSON schema'() {
    const format = { type: 'object', properties: { name: { type: 'string' }, age: { type: 'integer' } }, required: ['name', 'age'], additionalProperties: false };
    assert.deepEqual(JSON.parse((await client.chat(ask('pico', 'json name=bob age=7', { options, format }))).message.content), { name: 'bob', age: 7 });
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
    const error = await fails(client.generate({ model: 'pico', prompt: 'x', raw: true }));
    assert.equal(error.status_code, 400);
    assert.match(error.message, /raw/);
  },
  async 'langchain'() {
    const model = new ChatOllama({ model: 'pico', baseUrl: url, temperature: 0 });
    assert.equal((await model.invoke('echo apple pear')).content, 'apple pear');
    let text = '';
    for await (const part of await model.stream('echo apple pear')) text += part.content;
    assert.equal(text, 'apple pear');
  },
});
