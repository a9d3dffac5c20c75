// The official OpenAI client for JavaScript against a server of Rouse, whose URL
// is the argument. Prints one line per check and ends with status 1 if one fails.
import assert from 'node:assert/strict';
import OpenAI from 'openai';
import { ask, fails, run } from './checks.mjs';

const client = new OpenAI({ baseURL: process.argv[2] + '/v1', apiKey: 'none' });

const checks = {
  async 'from zero'() {
    const { data, response, request_id } = await client.chat.completions.create(ask('pico', 'echo apple pear')).withResponse();
    assert.equal(data.choices[0].message.content, 'apple pear');
    assert.equal(data.choices[0].finish_reason, 'stop');
    assert.match(request_id, /^req_/);
    assert.match(response.headers.get('server-timing'), /hold;dur=/);
  },
  async 'models'() {
    const ids = [];
    for await (const model of client.models.list()) ids.push(model.id);
    assert.deepEqual(ids, ['fake', 'pico', 'slow', 'stubborn']);
    assert.equal((await client.models.retrieve('pico')).object, 'model');
  },
  async 'stream with usage'() {
    const stream = await client.chat.completions.create(ask('pico', 'upper apple pear', { stream: true, stream_options: { include_usage: true } }));
    let text = '';
    let usage;
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta?.content ?? '';
      if (chunk.usage) usage = chunk.usage;
    }
    assert.equal(text, 'APPLE PEAR');
    assert.equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens);
  },
  async 'the stream helper'() {
    const runner = client.chat.completions.stream(ask('pico', 'json name=bob color=red'));
    assert.equal((await runner.finalChatCompletion()).choices[0].message.content, '{"name":"bob","color":"red"}');
  },
  async 'a stream from zero, with comments first'() {
    let text = '';
    for await (const chunk of await client.chat.completions.create(ask('slow', 'count', { stream: true, max_tokens: 3 }))) {
      text += chunk.choices[0].delta.content;
    }
    assert.equal(text, 't0 t1 t2 ');
  },
  async 'completions'() {
    const got = await client.completions.create({ model: 'fake', prompt: 'count', max_tokens: 3 });
    assert.equal(got.choices[0].text, 't0 t1 t2');
  },
  async 'an unknown model'() {
    const error = await fails(client.chat.completions.create(ask('pica', 'echo red')));
    assert.ok(error instanceof OpenAI.NotFoundError, String(error));
    assert.equal(error.code, 'model_not_found');
    assert.match(error.message, /did you mean pico\?/);
    assert.match(error.requestID, /^req_/);
  },
  async 'too long a prompt'() {
    const error = await fails(client.chat.completions.create(ask('pico', 'echo' + ' red'.repeat(3000))));
    assert.ok(error instanceof OpenAI.BadRequestError, String(error));
    assert.equal(error.code, 'context_length_exceeded');
  },
  async 'a runtime that does not start'() {
    const error = await fails(client.chat.completions.create(ask('stubborn', 'count'), { maxRetries: 0 }));
    assert.ok(error instanceof OpenAI.InternalServerError, String(error));
    assert.equal(error.status, 503);
    assert.equal(error.code, 'start_failed');
  },
  async 'a cut stream is an error'() {
    for (const fault of ['cut=3', 'eof=3', 'exit-after=3']) {
      const error = await fails((async () => {
        const stream = await client.chat.completions.create(ask('fake', 'count', { stream: true, max_tokens: 9 }), { headers: { 'X-Fault': fault } });
        for await (const _ of stream);
      })());
      assert.ok(error instanceof OpenAI.APIError, `${fault}: ${error}`);
    }
  },
  async 'a client that leaves'() {
    const leaving = new AbortController();
    const error = await fails((async () => {
      const stream = await client.chat.completions.create(ask('fake', 'count', { stream: true, max_tokens: 1000 }), { headers: { 'X-Fault': 'pause=20ms' }, signal: leaving.signal });
      for await (const _ of stream) leaving.abort();
      if (leaving.signal.aborted) throw leaving.signal.reason; // the client ends an aborted stream without an error
    })());
    assert.equal(error.name, 'AbortError');
    assert.equal((await client.chat.completions.create(ask('fake', 'count', { max_tokens: 1 }))).choices[0].message.content, 't0');
  },
};

await run(checks);
