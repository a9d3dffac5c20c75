"""Anthropic's client."""

import asyncio

import anthropic
from pydantic import BaseModel

from checks import DYE, KEY, LONG, PERSON, URL, check, equal, raises, run

client = anthropic.Anthropic(base_url=URL, api_key=KEY, max_retries=0)
later = anthropic.AsyncAnthropic(base_url=URL, api_key=KEY, max_retries=0)
messages = client.messages
TOOL = {"name": "dye", "description": "Dyes.", "input_schema": DYE}


class Person(BaseModel):
    name: str
    age: int


def ask(content, **more):
    # The client itself has no temperature any more.
    return {"model": "pico", "max_tokens": 60, "messages": [{"role": "user", "content": content}], "extra_body": {"temperature": 0}, **more}


def text(message):
    return "".join(block.text for block in message.content if block.type == "text")


@check("a message")
def _():
    got = messages.create(**ask("echo apple pear", system="Be brief."))
    equal((text(got), got.stop_reason, got.role), ("apple pear", "end_turn", "assistant"))
    assert got.usage.output_tokens > 0


@check("a stream")
def _():
    with messages.stream(**ask("echo apple pear")) as stream:
        equal("".join(stream.text_stream), "apple pear")
        equal(stream.get_final_message().stop_reason, "end_turn")


@check("a stop, a limit, and an answer that goes on")
def _():
    got = messages.create(**ask("echo apple pear plum", stop_sequences=[" plum"]))
    equal((text(got), got.stop_reason, got.stop_sequence), ("apple pear", "stop_sequence", " plum"))
    equal(messages.create(**ask("echo apple pear", max_tokens=1)).stop_reason, "max_tokens")
    begun = [{"role": "user", "content": "echo apple pear"}, {"role": "assistant", "content": "apple"}]
    equal(text(messages.create(**ask("", messages=begun))), " pear")


@check("a tool, used and answered")
def _():
    got = messages.create(**ask("echo red", tools=[TOOL], tool_choice={"type": "any"}, max_tokens=200))
    equal(got.stop_reason, "tool_use")
    call = got.content[-1]
    equal((call.name, call.input), ("dye", {"color": "red"}))
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "done"}
    turns = [*ask("echo red")["messages"], {"role": "assistant", "content": got.content}, {"role": "user", "content": [result]}]
    assert messages.create(**ask("", messages=turns, tools=[TOOL])).usage.output_tokens > 0


@check("a streamed tool")
def _():
    with messages.stream(**ask("echo red", tools=[TOOL], tool_choice={"type": "tool", "name": "dye"}, max_tokens=200)) as stream:
        kinds = {event.type for event in stream}
        equal(stream.get_final_message().content[-1].input, {"color": "red"})
    assert "input_json" in kinds, kinds


@check("an object of a class")
def _():
    equal(messages.parse(**ask(PERSON, output_format=Person)).parsed_output, Person(name="bob", age=7))


@check("the number of tokens")
def _():
    want = messages.create(**ask("echo apple pear")).usage
    count = messages.count_tokens(model="pico", messages=ask("echo apple pear")["messages"])
    equal(count.input_tokens, want.input_tokens + (want.cache_read_input_tokens or 0))


@check("an unknown model, a prompt that is too long, a wrong field, a wrong key")
def _():
    equal(raises(anthropic.NotFoundError, messages.create, **ask("x", model="other")).body["error"]["type"], "not_found_error")
    equal(raises(anthropic.BadRequestError, messages.create, **ask(LONG)).body["error"]["type"], "invalid_request_error")
    raises(anthropic.BadRequestError, messages.create, **ask("x", extra_body={"temperature": 900}))
    error = raises(anthropic.AuthenticationError, client.with_options(api_key="wrong").messages.create, **ask("x"))
    equal(error.body["error"]["type"], "authentication_error")


@check("max_tokens is required")
def _():
    raises(anthropic.BadRequestError, client.post, "/v1/messages", cast_to=object, body={"model": "pico", "messages": ask("x")["messages"]})


@check("the id of a request")
def _():
    got = messages.create(**ask("echo x"))
    assert got._request_id, "no request-id"


@check("models as Anthropic describes them")
def _():
    model = client.models.retrieve("pico")
    equal((model.type, model.display_name), ("model", "pico"))
    assert model.created_at.year >= 1970


@check("models")
def _():
    equal([m.id for m in client.models.list()], ["pico"])


@check("a batch")
async def _():
    batch = messages.batches.create(requests=[{"custom_id": f"{k}", "params": {"model": "pico", "max_tokens": 60, "temperature": 0, "messages": ask(f"echo w{k}")["messages"]}} for k in range(3)])
    while batch.processing_status != "ended":
        await asyncio.sleep(0.05)
        batch = messages.batches.retrieve(batch.id)
    got = {r.custom_id: text(r.result.message) for r in messages.batches.results(batch.id)}
    equal(got, {f"{k}": f"w{k}" for k in range(3)})


@check("four at once, and one that its client leaves")
async def _():
    async with later.messages.stream(**ask("count red blue")) as stream:
        async for _ in stream:
            break
    got = await asyncio.gather(*(later.messages.create(**ask(f"echo w{k}")) for k in range(4)))
    equal([text(g) for g in got], [f"w{k}" for k in range(4)])


run()
