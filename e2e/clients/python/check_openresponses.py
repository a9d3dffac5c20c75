"""The cases of Open Responses' compliance suite, judged by the models of its schema.

The suite itself is in no registry, so that it can't be had pinned. openresponses-types is made from the schema that it judges by; the
cases are these, with prompts that pico knows.
"""

import json

import httpx
from openresponses_types import types

from checks import DYE, KEY, V1, check, equal, run

client = httpx.Client(base_url=V1, headers={"Authorization": "Bearer " + KEY}, timeout=60)
TOOL = {"type": "function", "name": "dye", "description": "Dyes.", "parameters": DYE}
PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
EVENTS = {
    kind.model_fields["type"].annotation: kind
    for name, kind in vars(types).items()
    if name.endswith("StreamingEvent") and name != "StreamingEvent"
}
EVENTS = {member.value: kind for enum, kind in EVENTS.items() for member in enum}


def message(role, content):
    return {"type": "message", "role": role, "content": content}


def respond(*messages, **more):
    answer = client.post("/responses", json={"model": "pico", "input": list(messages), "temperature": 0, **more})
    equal(answer.status_code, 200)
    return types.ResponseResource.model_validate(answer.json())


def events(*messages, **more):
    """Returns the events of a stream, each of which is of its schema."""
    got = []
    with client.stream("POST", "/responses", json={"model": "pico", "input": list(messages), "temperature": 0, "stream": True, **more}) as answer:
        equal(answer.status_code, 200)
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                event = json.loads(line[6:])
                got.append(EVENTS[event["type"]].model_validate(event))
    return got


@check("basic-response")
def _():
    got = respond(message("user", "echo apple pear"))
    equal((got.status, got.output[0].content[0].text), ("completed", "apple pear"))


@check("streaming-response")
def _():
    last = events(message("user", "echo apple pear"))[-1]
    equal((last.type.value, last.response.status), ("response.completed", "completed"))


@check("system-prompt")
def _():
    equal(respond(message("system", "Be brief."), message("user", "echo apple")).status, "completed")


@check("tool-calling")
def _():
    call = respond(message("user", "echo red"), tools=[TOOL], tool_choice="required").output[-1]
    equal((call.type, json.loads(call.arguments)), ("function_call", {"color": "red"}))


@check("tool-calling-streaming")
def _():
    kinds = [e.type.value for e in events(message("user", "echo red"), tools=[TOOL], tool_choice="required")]
    for kind in ("response.output_item.added", "response.function_call_arguments.delta", "response.function_call_arguments.done", "response.output_item.done"):
        assert kind in kinds, kinds


@check("image-input: a model that sees nothing refuses it")
def _():
    content = [{"type": "input_text", "text": "echo apple"}, {"type": "input_image", "image_url": PIXEL}]
    answer = client.post("/responses", json={"model": "pico", "input": [message("user", content)]})
    equal((answer.status_code, answer.json()["error"]["type"]), (400, "invalid_request_error"))


@check("multi-turn")
def _():
    equal(respond(message("user", "echo apple"), message("assistant", "apple"), message("user", "echo pear")).output[0].content[0].text, "pear")


@check("previous-response")
def _():
    first = respond(message("user", "echo apple"), store=True)
    equal(respond(message("user", "echo pear"), previous_response_id=first.id).previous_response_id, first.id)


@check("compact is not there")
def _():
    got = client.post("/responses/compact", json={"model": "pico", "input": [message("user", "echo apple")]})
    equal((got.status_code, "not compacted" in got.json()["error"]["message"]), (501, True))


run()
