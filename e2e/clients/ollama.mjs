// The official Ollama client for JavaScript, and OpenAI's, against a server of
// Rouse whose functions run on Ollama. The arguments are the URL and "as-is" where
// the server is an Ollama itself, to see that both answer alike. Prints one line
// per check and ends with status 1 if one fails.
import assert from 'node:assert/strict';
import { ChatOllama, OllamaEmbeddings } from '@langchain/ollama';
import { Ollama } from 'ollama';
import OpenAI from 'openai';
import { ask, fails, run } from './checks.mjs';

const [url, asIs] = process.argv.slice(2);
const client = new Ollama({ host: url });
const openai = new OpenAI({ baseURL: url + '/v1', apiKey: 'none' });
const counted = ' w0 w1 w2 w3 w4 w5 w6 w7';

const checks = {
  async 'version'() {
    assert.match((await client.version()).version, /^\d+\.\d+\.\d+$/);
  },
  async 'list'() {
    const { models } = await client.list();
    assert.deepEqual(models.map((m) => m.name).sort(), ['count:latest', 'endless:latest', 'pico:latest']);
    for (const m of models) {
      assert.equal(m.model, m.name);
      assert.match(m.digest, /^[0-9a-f]{64}$/);
      assert.ok(Date.parse(m.modified_at) > 0, m.modified_at);
    }
  },
  async 'chat'() {
    const got = await client.chat(ask('pico', 'echo apple pear'));
    assert.equal(got.message.content, 'apple pear');
    assert.equal(got.message.role, 'assistant');
    assert.equal(got.done, true);
    assert.equal(got.done_reason, 'stop');
    assert.ok(got.eval_count > 0 && got.prompt_eval_count > 0, JSON.stringify(got));
  },
  async 'langchain'() {
    const model = new ChatOllama({ model: 'pico', baseUrl: url });
    assert.equal((await model.invoke('echo apple pear')).content, 'apple pear');
    let text = '';
    for await (const part of await model.stream('echo apple pear')) text += part.content;
    assert.equal(text, 'apple pear');
    assert.equal((await new OllamaEmbeddings({ model: 'pico', baseUrl: url }).embedDocuments(['a', 'b'])).length, 2);
  },
  async 'a name with a tag'() {
    assert.equal((await client.chat(ask('pico:latest', 'upper apple pear'))).message.content, 'APPLE PEAR');
  },
  async 'chat as a stream'() {
    let text = '';
    let parts = 0;
    let last;
    for await (const part of await client.chat(ask('count', 'go', { stream: true }))) {
      text += part.message.content;
      parts++;
      last = part;
    }
    assert.equal(text, counted);
    assert.equal(last.done, true);
    assert.ok(parts >= 5, parts + ' parts');
  },
  async 'generate'() {
    const got = await client.generate({ model: 'count', prompt: 'go' });
    assert.equal(got.response, counted);
    assert.ok(Array.isArray(got.context));
  },
  async 'generate as a stream, with a limit'() {
    let text = '';
    let last;
    for await (const part of await client.generate({ model: 'endless', prompt: 'go', stream: true, options: { num_predict: 5 } })) {
      text += part.response;
      last = part;
    }
    assert.equal(text, ' w0 w1 w2 w3 w4');
    assert.equal(last.done_reason, 'length');
  },
  async 'embed'() {
    const { embeddings } = await client.embed({ model: 'pico', input: ['red', 'blue'] });
    assert.equal(embeddings.length, 2);
    assert.ok(embeddings[0].length > 8);
    assert.notDeepEqual(embeddings[0], embeddings[1]);
    const one = await client.embeddings({ model: 'pico', prompt: 'red' });
    assert.equal(one.embedding.length, embeddings[0].length);
  },
  async 'show'() {
    const got = await client.show({ model: 'pico' });
    assert.equal(got.details.format, 'gguf');
    assert.ok(got.model_info['general.architecture'], JSON.stringify(got.model_info));
    assert.ok(got.capabilities.includes('completion'));
  },
  async 'ps'() {
    const { models } = await client.ps();
    const pico = models.find((m) => m.name === 'pico:latest');
    assert.ok(pico, JSON.stringify(models));
    assert.ok(pico.size > 0);
    assert.ok(Date.parse(pico.expires_at) > Date.now(), pico.expires_at);
  },
  async 'abort'() {
    const stream = await client.chat(ask('endless', 'go', { stream: true }));
    let parts = 0;
    const error = await fails((async () => {
      for await (const _ of stream) if (++parts === 3) stream.abort();
    })());
    assert.equal(error.name, 'AbortError');
    // Only one request at a time runs: this one waits until the generation has stopped.
    const begin = Date.now();
    assert.equal((await client.generate({ model: 'endless', prompt: 'go', options: { num_predict: 2 } })).response, ' w0 w1');
    assert.ok(Date.now() - begin < 10000, `${Date.now() - begin} ms`);
  },
  async 'an unknown model'() {
    const error = await fails(client.chat(ask('pica', 'echo red')));
    assert.equal(error.status_code, 404);
    assert.match(error.message, asIs ? /not found/ : /"pica" does not exist: did you mean pico\?/);
  },
  async 'a bad request'() {
    const error = await fails(client.chat({ model: 'pico', messages: 'hello' }));
    assert.equal(error.status_code, 400);
    assert.ok(error.message.length > 10, error.message);
  },
  async 'models are not changed'() {
    if (asIs) return;
    for (const change of [() => client.pull({ model: 'x' }), () => client.delete({ model: 'pico' }), () => client.copy({ source: 'pico', destination: 'x' }), () => client.create({ model: 'x', from: 'pico' })]) {
      const error = await fails(change());
      assert.equal(error.status_code, 404);
      assert.match(error.message, /manifest of a function/);
    }
  },
  async 'openai: chat'() {
    const { data, request_id } = await openai.chat.completions.create(ask('pico', 'reverse red green blue')).withResponse();
    assert.equal(data.choices[0].message.content, 'blue green red');
    assert.equal(data.choices[0].finish_reason, 'stop');
    if (!asIs) assert.match(request_id, /^req_/);
  },
  async 'openai: stream with usage'() {
    let text = '';
    let usage;
    for await (const chunk of await openai.chat.completions.create(ask('count', 'go', { stream: true, stream_options: { include_usage: true } }))) {
      text += chunk.choices[0]?.delta?.content ?? '';
      usage = chunk.usage ?? usage;
    }
    assert.equal(text, counted);
    assert.equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens);
  },
  async 'openai: completions'() {
    assert.equal((await openai.completions.create({ model: 'count', prompt: 'go' })).choices[0].text, counted);
  },
  async 'openai: max_completion_tokens'() {
    if (asIs) return; // Ollama itself does not know it
    const got = await openai.chat.completions.create(ask('count', 'go', { max_completion_tokens: 3 }));
    assert.equal(got.choices[0].message.content, ' w0 w1 w2');
    assert.equal(got.choices[0].finish_reason, 'length');
  },
  async 'openai: embeddings'() {
    const got = await openai.embeddings.create({ model: 'pico', input: ['red', 'blue'] });
    assert.equal(got.data.length, 2);
    assert.ok(got.data[1].embedding.some((x) => x !== 0));
  },
  async 'openai: an unknown model'() {
    const error = await fails(openai.chat.completions.create(ask('pica', 'echo red'), { maxRetries: 0 }));
    assert.ok(error instanceof OpenAI.NotFoundError, String(error));
  },
};

await run(checks);
