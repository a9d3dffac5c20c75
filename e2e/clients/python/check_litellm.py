"""LiteLLM, as a library and as a proxy in front of Rouse."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time

from checks import FRUIT, KEY, LONG, PERSON, TOOL, URL, V1, check, equal, raises, run

import litellm
import openai
from pydantic import BaseModel

CHAT = {"model": "openai/pico", "api_base": V1, "api_key": KEY, "temperature": 0, "max_tokens": 60, "num_retries": 0}


litellm.suppress_debug_info = True


class Person(BaseModel):
    name: str
    age: int


def ask(content, **more):
    return {**CHAT, "messages": [{"role": "user", "content": content}], **more}


@check("a chat, by OpenAI's, Anthropic's, Ollama's and vLLM's form")
def _():
    for model, base in [("openai/pico", V1), ("hosted_vllm/pico", V1), ("anthropic/pico", URL), ("ollama_chat/pico", URL)]:
        got = litellm.completion(**ask("echo apple pear", model=model, api_base=base))
        equal((model, got.choices[0].message.content), (model, "apple pear"))
        assert got.usage.total_tokens > 0


@check("streams")
def _():
    for model, base in [("openai/pico", V1), ("anthropic/pico", URL), ("ollama_chat/pico", URL)]:
        parts = litellm.completion(**ask("echo apple pear", model=model, api_base=base, stream=True))
        equal((model, "".join(p.choices[0].delta.content or "" for p in parts)), (model, "apple pear"))


@check("a tool and an object of a class")
def _():
    call = litellm.completion(**ask("echo red", tools=[TOOL], tool_choice="required")).choices[0].message.tool_calls[0]
    equal(json.loads(call.function.arguments), {"color": "red"})
    got = litellm.completion(**ask(PERSON, response_format=Person)).choices[0].message.content
    equal(Person.model_validate_json(got), Person(name="bob", age=7))


@check("responses, a completion and embeddings")
def _():
    got = litellm.responses(model="openai/pico", input="echo apple pear", api_base=V1, api_key=KEY, temperature=0)
    equal(got.output[-1].content[0].text, "apple pear")
    assert litellm.text_completion(model="text-completion-openai/pico", prompt="echo", api_base=V1, api_key=KEY, max_tokens=4).choices[0].text is not None
    got = litellm.embedding(model="openai/pico", input=["apple", "pear"], api_base=V1, api_key=KEY)
    equal(len(got.data), 2)


@check("an unknown model and a wrong key")
def _():
    raises(litellm.NotFoundError, litellm.completion, **ask("x", model="openai/other"))
    raises(litellm.AuthenticationError, litellm.completion, **ask("x", api_key="wrong"))


@check("a prompt that is too long")
def _():
    raises(litellm.ContextWindowExceededError, litellm.completion, **ask(LONG))


@check("four at once, and a stream that its client leaves")
async def _():
    async for _ in await litellm.acompletion(**ask("count red blue", stream=True)):
        break
    got = await asyncio.gather(*(litellm.acompletion(**ask(f"echo w{k}")) for k in range(4)))
    equal([g.choices[0].message.content for g in got], [f"w{k}" for k in range(4)])


def started():
    """Starts the proxy and returns its URL and process once it answers."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    there = {"api_base": V1, "api_key": KEY, "temperature": 0}
    models = {
        "pico": {"model": "openai/pico", **there},
        "claude": {"model": "anthropic/pico", "api_base": URL, "api_key": KEY, "max_tokens": 60, "temperature": 0},
        "gone": {"model": "openai/pico", **there, "api_base": "http://127.0.0.1:9/v1"},
    }
    config = {
        "model_list": [{"model_name": name, "litellm_params": params} for name, params in models.items()],
        "litellm_settings": {"num_retries": 0, "telemetry": False},
        "router_settings": {"fallbacks": [{"gone": ["pico"]}]},
        "general_settings": {"master_key": "sk-1"},
    }
    with open(os.path.join(folder, "config.yaml"), "w") as file:
        json.dump(config, file)  # which is YAML too
    command = [os.path.join(os.path.dirname(sys.executable), "litellm"), "--config", file.name, "--host", "127.0.0.1", "--port", str(port)]
    proxy = subprocess.Popen(command, cwd=folder, stdout=open(os.path.join(folder, "log"), "w"), stderr=subprocess.STDOUT)
    while proxy.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return f"http://127.0.0.1:{port}", proxy
        except OSError:
            time.sleep(0.1)
    raise SystemExit("litellm's proxy ended:\n" + open(os.path.join(folder, "log")).read())


with tempfile.TemporaryDirectory() as folder:
    url, proxy = started()
    client = openai.OpenAI(base_url=url + "/v1", api_key="sk-1", max_retries=0)

    @check("proxy: chats, alone and streamed")
    def _():
        for model in ("pico", "claude"):
            equal(client.chat.completions.create(model=model, messages=FRUIT).choices[0].message.content, "apple pear")
            parts = client.chat.completions.create(model=model, messages=FRUIT, stream=True)
            equal("".join(c.delta.content or "" for p in parts for c in p.choices), "apple pear")

    @check("proxy: goes to another model where one is gone")
    def _():
        equal(client.chat.completions.create(model="gone", messages=FRUIT).choices[0].message.content, "apple pear")

    @check("proxy: a tool, a response and embeddings")
    def _():
        got = client.chat.completions.create(model="pico", messages=[{"role": "user", "content": "echo red"}], tools=[TOOL], tool_choice="required")
        equal(json.loads(got.choices[0].message.tool_calls[0].function.arguments), {"color": "red"})
        equal(client.responses.create(model="pico", input="echo apple pear").output_text, "apple pear")
        equal(len(client.embeddings.create(model="pico", input=["apple", "pear"]).data), 2)

    @check("proxy: an error's status")
    def _():
        raises(openai.BadRequestError, client.chat.completions.create, model="pico", messages=[{"role": "user", "content": LONG}])

    try:
        run()
    finally:
        proxy.terminate()
        proxy.wait()
