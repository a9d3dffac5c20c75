// Clients that others have built on the official ones ask a server of Rouse, whose URL is the argument, as their users
// do: the AI SDK of Vercel with its default API (responses), and LangChain. The second argument is "ollama" where the model runs
// on Ollama, which finds no tools in pico's template. Prints one line per check and ends with status 1 if one fails.
import assert from 'node:assert/strict';
import { createOpenAI } from '@ai-sdk/openai';
import { generateObject, generateText, stepCountIs, streamText, tool } from 'ai';
import { ChatOpenAI, OpenAIEmbeddings } from '@langchain/openai';
import { z } from 'zod';
import { run } from './checks.mjs';

const [url, runtime] = process.argv.slice(2);
const baseURL = url + '/v1';
const openai = createOpenAI({ baseURL, apiKey: 'none' });
const chat = new ChatOpenAI({ model: 'pico', temperature: 0, apiKey: 'none', configuration: { baseURL }, maxRetries: 0 });
const color = z.object({ color: z.enum(['red']) });

const checks = {
  async 'ai: text'() {
    const got = await generateText({ model: openai('pico'), prompt: 'echo apple pear', temperature: 0 });
    assert.equal(got.text, 'apple pear');
    assert.equal(got.finishReason, 'stop');
    assert.ok(got.usage.inputTokens > 0 && got.usage.outputTokens > 0);
  },
  async 'ai: a stream'() {
    let text = '';
    const got = streamText({ model: openai('pico'), system: 'Be brief.', prompt: 'echo apple pear', temperature: 0 });
    for await (const part of got.textStream) text += part;
    assert.equal(text, 'apple pear');
    assert.equal(await got.finishReason, 'stop');
  },
  async 'ai: an object'() {
    const got = await generateObject({ model: openai('pico'), schema: z.object({ name: z.string(), age: z.number().int() }), prompt: 'json name=bob age=7', temperature: 0 });
    assert.deepEqual(got.object, { name: 'bob', age: 7 });
  },
  async 'ai: a tool that runs, and the answer to it'() {
    const called = [];
    const got = await generateText({
      model: openai('pico'), prompt: 'echo red', temperature: 0, stopWhen: stepCountIs(2), toolChoice: 'required',
      tools: { dye: tool({ description: 'Dyes.', inputSchema: color, execute: async (input) => (called.push(input), 'done') }) },
    });
    assert.deepEqual(called[0], { color: 'red' });
    assert.equal(got.steps.length, 2);
  },
  async 'ai: chat completions'() {
    const got = await generateText({ model: openai.chat('pico'), prompt: 'echo apple pear', temperature: 0 });
    assert.equal(got.text, 'apple pear');
  },
  async 'langchain: a message'() {
    const got = await chat.invoke('echo apple pear');
    assert.equal(got.content, 'apple pear');
    assert.ok(got.usage_metadata.total_tokens > 0);
  },
  async 'langchain: a stream'() {
    let text = '';
    for await (const part of await chat.stream('echo apple pear')) text += part.content;
    assert.equal(text, 'apple pear');
  },
  async 'langchain: responses'() {
    const got = await new ChatOpenAI({ model: 'pico', temperature: 0, apiKey: 'none', configuration: { baseURL }, useResponsesApi: true }).invoke('echo apple pear');
    assert.equal(got.text, 'apple pear');
  },
  async 'langchain: an object'() {
    const got = await chat.withStructuredOutput(z.object({ name: z.string(), age: z.number().int() }), { method: 'jsonSchema' }).invoke('json name=bob age=7');
    assert.deepEqual(got, { name: 'bob', age: 7 });
  },
  async 'langchain: tools'() {
    const got = await chat.bindTools([{ type: 'function', function: { name: 'dye', description: 'Dyes.', parameters: z.toJSONSchema(color) } }], { tool_choice: 'dye' }).invoke('echo red');
    assert.deepEqual(got.tool_calls[0].args, { color: 'red' });
  },
  async 'langchain: vectors'() {
    const got = await new OpenAIEmbeddings({ model: 'pico', apiKey: 'none', configuration: { baseURL } }).embedDocuments(['apple', 'pear']);
    assert.equal(got.length, 2);
    assert.ok(got[0].length > 8 && got[0].length === got[1].length);
  },
};

await run(runtime === 'ollama' ? Object.fromEntries(Object.entries(checks).filter(([name]) => !/tool/.test(name))) : checks);
