// Official clients of four APIs ask a server of Rouse, whose URL is the argument, for a model that thinks "w1 w2 w3" and then says "w5 w6 w7".
// Prints one line per check and ends with status 1 if one fails.
import assert from 'node:assert/strict';
import Anthropic from '@anthropic-ai/sdk';
import { createOpenAI } from '@ai-sdk/openai';
import { generateText } from 'ai';
import { Ollama } from 'ollama';
import OpenAI from 'openai';
import { ask, fails, run } from './checks.mjs';

const [url] = process.argv.slice(2);
const openai = new OpenAI({ baseURL: url + '/v1', apiKey: 'none', maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: url, apiKey: 'none', maxRetries: 0 });
const ollama = new Ollama({ host: url });
const [thought, text] = ['w1 w2 w3', 'w5 w6 w7'];
const message = (more = {}) => ask('thinks', 'go', { max_tokens: 40, ...more });

await run({
  async 'openai: chat'() {
    const { choices, usage } = await openai.chat.completions.create(ask('thinks', 'go', { reasoning_effort: 'high' }));
    assert.equal(choices[0].message.content, text);
    assert.equal(choices[0].message.reasoning_content, thought);
    assert.ok(usage.completion_tokens_details.reasoning_tokens >= 3 && usage.completion_tokens_details.reasoning_tokens < usage.completion_tokens, JSON.stringify(usage));
    const got = { content: '', reasoning_content: '' };
    for await (const chunk of await openai.chat.completions.create(ask('thinks', 'go', { stream: true }))) {
      for (const name of Object.keys(got)) got[name] += chunk.choices[0]?.delta[name] ?? '';
    }
    assert.deepEqual(got, { content: text, reasoning_content: thought });
  },
  async 'openai: responses'() {
    const check = (got) => {
      assert.deepEqual(got.output.map((item) => item.type), ['reasoning', 'message']);
      assert.equal(got.output[0].content[0].text, thought);
      assert.equal(got.output_text, text);
      assert.ok(got.usage.output_tokens_details.reasoning_tokens >= 3, JSON.stringify(got.usage));
    };
    const request = { model: 'thinks', input: 'go', reasoning: { effort: 'low' } };
    const first = await openai.responses.create(request);
    check(first);
    check(await openai.responses.stream(request).finalResponse());
    check(await openai.responses.create({ ...request, input: [{ role: 'user', content: 'go' }, ...first.output, { role: 'user', content: 'on' }] }));
  },
  async 'anthropic: thoughts, whole and streamed'() {
    const check = (got, said) => {
      assert.deepEqual(got.content.map((b) => b.type), ['thinking', 'text']);
      assert.equal(got.content[0].thinking, said);
      assert.equal(got.content[1].text, text);
      assert.ok(got.usage.output_tokens_details.thinking_tokens >= 3, JSON.stringify(got.usage));
    };
    const first = await anthropic.messages.create(message());
    check(first, thought);
    check(await anthropic.messages.stream(message({ thinking: { type: 'adaptive' } })).finalMessage(), thought);
    for (const stream of [false, true]) {
      const request = message({ thinking: { type: 'adaptive', display: 'omitted' } });
      check(stream ? await anthropic.messages.stream(request).finalMessage() : await anthropic.messages.create(request), '');
    }
    const next = await anthropic.messages.create({ ...message(), messages: [{ role: 'user', content: 'go' }, { role: 'assistant', content: first.content }, { role: 'user', content: 'on' }] });
    check(next, thought);
  },
  async 'anthropic: a budget'() {
    const got = await anthropic.messages.create(message({ max_tokens: 60, thinking: { type: 'enabled', budget_tokens: 2 } }));
    assert.deepEqual(got.content.map((b) => b.type), ['thinking', 'text']);
    assert.match(got.content[0].thinking, /^w1( w2)?$/);
  },
  async 'ollama: chat and generate'() {
    const { message, done_reason } = await ollama.chat(ask('thinks', 'go', { think: true }));
    assert.deepEqual([message.thinking, message.content, done_reason], [thought, text, 'stop']);
    const got = await ollama.generate({ model: 'thinks', prompt: 'go', think: 'high' });
    assert.deepEqual([got.thinking, got.response], [thought, text]);
    const said = ['', ''];
    for await (const part of await ollama.chat(ask('thinks', 'go', { stream: true }))) {
      said[0] += part.message.thinking ?? '';
      said[1] += part.message.content;
    }
    assert.deepEqual(said, [thought, text]);
    assert.ok((await ollama.show({ model: 'thinks' })).capabilities.includes('thinking'));
  },
  async 'ai'() {
    const got = await generateText({ model: createOpenAI({ baseURL: url + '/v1', apiKey: 'none' })('thinks'), prompt: 'go' });
    assert.equal(got.text, text);
  },
  async 'an effort that is none'() {
    assert.equal((await fails(openai.chat.completions.create(ask('thinks', 'go', { reasoning_effort: 'lots' })))).param, 'reasoning_effort');
    const error = await fails(openai.responses.create({ model: 'thinks', input: 'go', reasoning: { effort: 'lots' } }));
    assert.equal(error.param, 'reasoning');
  },
});
