"""OpenAI's client."""

import asyncio
import json
import time

import openai
from pydantic import BaseModel

from checks import DYE, FRUIT, KEY, LONG, PERSON, TOOL, V1, check, equal, raises, run

client = openai.OpenAI(base_url=V1, api_key=KEY, max_retries=0)
later = openai.AsyncOpenAI(base_url=V1, api_key=KEY, max_retries=0)
chat, responses = client.chat.completions, client.responses


class Person(BaseModel):
    name: str
    age: int


def ask(content, **more):
    return {"model": "pico", "temperature": 0, "messages": [{"role": "user", "content": content}], **more}


@check("a chat")
def _():
    got = chat.create(**ask("echo apple pear"))
    equal(got.choices[0].message.content, "apple pear")
    equal(got.choices[0].finish_reason, "stop")
    equal(got.usage.total_tokens, got.usage.prompt_tokens + got.usage.completion_tokens)
    assert got._request_id, "no x-request-id"


@check("a stream, with its usage")
def _():
    text, usage = "", None
    for chunk in chat.create(**ask("echo apple pear", stream=True, stream_options={"include_usage": True})):
        text += "".join(c.delta.content or "" for c in chunk.choices)
        usage = chunk.usage or usage
    equal(text, "apple pear")
    assert usage.completion_tokens > 0, usage


@check("choices, a stop and a limit")
def _():
    got = chat.create(**ask("echo apple pear plum", n=2, stop=" plum"))
    equal([c.message.content for c in got.choices], ["apple pear"] * 2)
    equal(chat.create(**ask("echo apple pear plum", max_completion_tokens=1)).choices[0].finish_reason, "length")


@check("a tool, used and answered")
def _():
    got = chat.create(**ask("echo red", tools=[TOOL], tool_choice="required")).choices[0]
    equal(got.finish_reason, "tool_calls")
    call = got.message.tool_calls[0]
    equal((call.function.name, json.loads(call.function.arguments)), ("dye", {"color": "red"}))
    answer = {"role": "tool", "tool_call_id": call.id, "content": "done"}
    assert chat.create(**ask("echo red") | {"messages": [*FRUIT, got.message, answer]}).choices[0].message.content


@check("a streamed tool")
def _():
    with chat.stream(**ask("echo red", tools=[TOOL], tool_choice="required")) as stream:
        kinds = {event.type for event in stream}
        call = stream.get_final_completion().choices[0].message.tool_calls[0]
    equal(json.loads(call.function.arguments), {"color": "red"})
    assert "tool_calls.function.arguments.done" in kinds, kinds


@check("an object of a class")
def _():
    equal(chat.parse(**ask(PERSON, response_format=Person)).choices[0].message.parsed, Person(name="bob", age=7))
    equal(responses.parse(model="pico", input=PERSON, text_format=Person, temperature=0).output_parsed, Person(name="bob", age=7))


@check("log probabilities")
def _():
    got = chat.create(**ask("echo apple pear", logprobs=True, top_logprobs=2)).choices[0]
    assert all(len(t.top_logprobs) == 2 and t.logprob <= 0 for t in got.logprobs.content)
    equal("".join(t.token for t in got.logprobs.content), got.message.content)


@check("a completion, alone and streamed")
def _():
    q = {"model": "pico", "prompt": "<|im_start|>user\necho apple pear<|im_end|>\n<|im_start|>assistant\n", "temperature": 0, "max_tokens": 20}
    equal(client.completions.create(**q).choices[0].text, "apple pear")
    equal("".join(c.choices[0].text for c in client.completions.create(stream=True, **q) if c.choices), "apple pear")


@check("embeddings")
def _():
    got = client.embeddings.create(model="pico", input=["echo red", "echo blue", "echo red"]).data
    equal(got[0].embedding, got[2].embedding)
    assert got[0].embedding != got[1].embedding
    equal(len(client.embeddings.create(model="pico", input="x", dimensions=16).data[0].embedding), 16)


@check("models")
def _():
    equal([m.id for m in client.models.list()], ["pico"])
    equal(client.models.retrieve("pico").object, "model")
    raises(openai.NotFoundError, client.models.retrieve, "other")


@check("an unknown model, a prompt that is too long, a wrong field")
def _():
    equal(raises(openai.NotFoundError, chat.create, **ask("x", model="other")).code, "model_not_found")
    equal(raises(openai.BadRequestError, chat.create, **ask(LONG)).code, "context_length_exceeded")
    equal(raises(openai.BadRequestError, chat.create, **ask("x", top_p=7)).param, "top_p")


@check("a wrong key, and none")
def _():
    for key in ("wrong", "rouse-" + "a" * 40):
        error = raises(openai.AuthenticationError, client.with_options(api_key=key).chat.completions.create, **ask("x"))
        equal(error.code, "invalid_api_key")


@check("a response, and one that goes on from it")
def _():
    first = responses.create(model="pico", input="echo apple pear", temperature=0, instructions="Be brief.", store=True)
    equal((first.status, first.output_text), ("completed", "apple pear"))
    equal(responses.retrieve(first.id).output_text, "apple pear")
    second = responses.create(model="pico", input="echo plum", previous_response_id=first.id, temperature=0)
    equal(second.output_text, "plum")
    assert second.usage.input_tokens > first.usage.input_tokens
    responses.delete(first.id)
    raises(openai.NotFoundError, responses.retrieve, first.id)


@check("a streamed response")
def _():
    with responses.stream(model="pico", input="echo apple pear", temperature=0) as stream:
        kinds = [event.type for event in stream]
        equal(stream.get_final_response().output_text, "apple pear")
    equal((kinds[0], kinds[-1]), ("response.created", "response.completed"))
    assert "response.output_text.delta" in kinds, kinds


@check("a response's tool, used and answered")
def _():
    tool = {"type": "function", "name": "dye", "parameters": DYE, "strict": True}
    got = responses.create(model="pico", input="echo red", tools=[tool], tool_choice="required", temperature=0, store=True)
    call = got.output[-1]
    equal((call.type, json.loads(call.arguments)), ("function_call", {"color": "red"}))
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "done"}
    assert responses.create(model="pico", input=[output], previous_response_id=got.id).output_text


@check("a conversation, its items and two responses in it")
def _():
    conversations = client.conversations
    talk = conversations.create(metadata={"topic": "fruit"}, items=[{"type": "message", "role": "user", "content": "Be brief."}])
    first = responses.create(model="pico", input="echo apple pear", temperature=0, conversation=talk.id, store=True)
    equal((first.output_text, first.conversation.id), ("apple pear", talk.id))
    responses.delete(first.id)
    with responses.stream(model="pico", input="echo plum", temperature=0, conversation={"id": talk.id}) as stream:
        equal(stream.get_final_response().output_text, "plum")
    conversations.items.create(talk.id, items=[{"type": "message", "role": "user", "content": "Thank you."}])
    items = list(conversations.items.list(talk.id, order="asc", limit=2))
    equal([item.role for item in items], ["user", "user", "assistant", "user", "assistant", "user"])
    equal(items[2].content[0].text, "apple pear")
    equal(conversations.items.retrieve(items[0].id, conversation_id=talk.id).content[0].text, "Be brief.")
    equal(conversations.items.delete(items[0].id, conversation_id=talk.id).metadata, {"topic": "fruit"})
    equal([item.id for item in conversations.items.list(talk.id, order="asc")], [item.id for item in items[1:]])
    equal(conversations.update(talk.id, metadata={"topic": "thanks"}).metadata, {"topic": "thanks"})
    assert conversations.delete(talk.id).deleted
    raises(openai.NotFoundError, conversations.retrieve, talk.id)


@check("a response in the background")
def _():
    got = responses.create(model="pico", input="echo apple pear", temperature=0, background=True)
    while got.status in ("queued", "in_progress"):
        time.sleep(0.05)
        got = responses.retrieve(got.id)
    equal((got.status, got.output_text), ("completed", "apple pear"))


@check("a stored response is no stream")
def _():
    got = responses.create(model="pico", input="echo apple pear", temperature=0, store=True)
    assert "leave stream out" in str(raises(openai.BadRequestError, responses.retrieve, got.id, stream=True))


@check("a response's tokens written to a cache")
def _():
    equal(responses.create(model="pico", input="x").usage.input_tokens_details.cache_write_tokens, 0)


@check("files and a batch")
def _():
    lines = [json.dumps({"custom_id": f"{k}", "method": "POST", "url": "/v1/chat/completions", "body": ask(f"echo w{k}")}) for k in range(3)]
    file = client.files.create(file=("in.jsonl", "\n".join(lines).encode()), purpose="batch")
    batch = client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="1m")
    while batch.status not in ("completed", "failed", "expired", "cancelled"):
        time.sleep(0.05)
        batch = client.batches.retrieve(batch.id)
    equal((batch.status, batch.request_counts.completed), ("completed", 3))
    got = [json.loads(line) for line in client.files.content(batch.output_file_id).text.splitlines()]
    equal({g["custom_id"]: g["response"]["body"]["choices"][0]["message"]["content"] for g in got}, {"0": "w0", "1": "w1", "2": "w2"})
    assert client.files.delete(file.id).deleted


@check("eight at once")
async def _():
    got = await asyncio.gather(*(later.chat.completions.create(**ask(f"echo w{k}")) for k in range(8)))
    equal([g.choices[0].message.content for g in got], [f"w{k}" for k in range(8)])


@check("streams that their client leaves, and a time limit")
async def _():
    async with await later.chat.completions.create(**ask("count red blue", stream=True)) as stream:
        async for _ in stream:
            break
    task = asyncio.create_task(later.chat.completions.create(**ask("count red blue")))
    await asyncio.sleep(0)
    task.cancel()
    for _ in range(50):  # the answer may be there before the client looks for it
        try:
            client.with_options(timeout=1e-6, max_retries=0).chat.completions.create(**ask("story cat boat", max_tokens=400))
        except openai.APITimeoutError:
            break
    else:
        raise AssertionError("no APITimeoutError")
    equal((await later.chat.completions.create(**ask("echo there"))).choices[0].message.content, "there")


run()
