"""Ollama's client."""

import ollama
from pydantic import BaseModel

from checks import DYE, FRUIT, KEY, LONG, PERSON, URL, check, equal, raises, run

headers = {"Authorization": "Bearer " + KEY}
client = ollama.Client(host=URL, headers=headers)
later = ollama.AsyncClient(host=URL, headers=headers)
EXACT = {"temperature": 0}


class Person(BaseModel):
    name: str
    age: int


@check("a chat")
def _():
    got = client.chat("pico", FRUIT, options=EXACT)
    equal((got.message.content, got.done, got.done_reason), ("apple pear", True, "stop"))
    assert got.prompt_eval_count > 0 and got.eval_count > 0 and got.total_duration > 0, got


@check("a chat says how long it took to answer")
def _():
    got = client.chat("pico", FRUIT, options=EXACT)
    assert got.eval_duration, "eval_duration is 0"


@check("streams")
def _():
    parts = list(client.chat("pico", FRUIT, stream=True, options=EXACT))
    equal("".join(p.message.content for p in parts), "apple pear")
    assert parts[-1].done and parts[-1].eval_duration > 0, parts[-1]
    equal("".join(p.response for p in client.generate("pico", "echo apple pear", stream=True, options=EXACT)), "apple pear")


@check("generate, with a system and raw")
def _():
    equal(client.generate("pico", "echo apple pear", system="Be brief.", options=EXACT).response, "apple pear")
    raw = "<|im_start|>user\necho apple pear<|im_end|>\n<|im_start|>assistant\n"
    equal(client.generate("pico", raw, raw=True, options=EXACT).response, "apple pear")


@check("a function as a tool")
def _():
    def dye(color: str) -> str:
        """Dyes.

        Args:
            color: the color
        """
        return color

    assert client.chat("pico", FRUIT, tools=[dye], options=EXACT).message.role == "assistant"


@check("an object of a schema")
def _():
    got = client.chat("pico", [{"role": "user", "content": PERSON}], format=Person.model_json_schema(), options=EXACT)
    equal(Person.model_validate_json(got.message.content), Person(name="bob", age=7))
    equal(client.generate("pico", "echo red", format=DYE, options=EXACT).response.replace(" ", ""), '{"color":"red"}')


@check("embeddings")
def _():
    got = client.embed("pico", ["apple", "pear", "apple"]).embeddings
    equal(got[0], got[2])
    assert got[0] != got[1]
    assert len(client.embeddings("pico", "apple").embedding) == len(got[0])


@check("what there is")
def _():
    equal([m.model for m in client.list().models], ["pico:latest"])
    assert "completion" in client.show("pico").capabilities
    assert [m.model for m in client.ps().models] == ["pico:latest"]


@check("details of what there is")
def _():
    model = client.list().models[0]
    assert model.size and model.details.family, f"details {model.details}"


@check("the context of what runs")
def _():
    model = client.ps().models[0]
    assert model.context_length, f"context_length is {model.context_length}"


@check("what is there can be pulled")
def _():
    equal(client.pull("pico").status, "success")


@check("a context shorter than the model's")
def _():
    equal(client.chat("pico", FRUIT, options={**EXACT, "num_ctx": 256}).message.content, "apple pear")


@check("an unknown model, a prompt that is too long, a wrong key")
def _():
    equal(raises(ollama.ResponseError, client.chat, "other", FRUIT).status_code, 404)
    equal(raises(ollama.ResponseError, client.generate, "pico", LONG, options={"truncate": False}).status_code, 400)
    wrong = ollama.Client(host=URL, headers={"Authorization": "Bearer wrong"})
    equal(raises(ollama.ResponseError, wrong.chat, "pico", FRUIT).status_code, 401)


@check("later, and a stream that its client leaves")
async def _():
    async for _ in await later.chat("pico", [{"role": "user", "content": "count red blue"}], stream=True):
        break
    equal((await later.chat("pico", FRUIT, options=EXACT)).message.content, "apple pear")


run()
