"""LlamaIndex with its client for servers like OpenAI's."""

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel

from checks import KEY, PERSON, V1, check, equal, raises, run

import openai

MODEL = {"model": "pico", "api_base": V1, "api_key": KEY, "temperature": 0, "max_retries": 0, "context_window": 512}
llm = OpenAILike(is_chat_model=True, is_function_calling_model=True, **MODEL)


class Person(BaseModel):
    """Who it is."""

    name: str
    age: int


def user(content):
    return [ChatMessage(role="system", content="Be brief."), ChatMessage(role="user", content=content)]


@check("a chat, alone and streamed")
def _():
    equal(llm.chat(user("echo apple pear")).message.content, "apple pear")
    equal("".join(p.delta for p in llm.stream_chat(user("echo apple pear"))), "apple pear")


@check("a completion")
def _():
    plain = OpenAILike(is_chat_model=False, max_tokens=8, **MODEL)
    assert plain.complete("echo apple").text


@check("an object of a class")
def _():
    assert isinstance(llm.as_structured_llm(Person).chat(user(PERSON)).raw, Person)


@check("a tool")
def _():
    def dye(color: str) -> str:
        """Dyes."""
        return color + " it is"

    got = llm.predict_and_call([FunctionTool.from_defaults(dye)], "echo red", tool_required=True)
    assert got.response.endswith(" it is"), got


@check("an agent")
async def _():
    got = await FunctionAgent(tools=[], llm=llm, system_prompt="Be brief.").run("echo apple pear")
    equal(str(got), "apple pear")


@check("an unknown model")
def _():
    raises(openai.NotFoundError, OpenAILike(is_chat_model=True, **MODEL | {"model": "other"}).chat, user("x"))


@check("later")
async def _():
    equal((await llm.achat(user("echo apple"))).message.content, "apple")


run()
