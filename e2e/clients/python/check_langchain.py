"""LangChain and its agents on LangGraph, by three APIs."""

from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.tools import tool
from langchain_ollama import ChatOllama, OllamaEmbeddings
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings
from pydantic import BaseModel

from checks import KEY, LONG, PERSON, TOOL, URL, V1, check, equal, raises, run

import openai

chat = ChatOpenAI(model="pico", base_url=V1, api_key=KEY, temperature=0, max_retries=0)
others = [
    chat,
    ChatOpenAI(model="pico", base_url=V1, api_key=KEY, temperature=0, max_retries=0, use_responses_api=True),
    ChatAnthropic(model_name="pico", base_url=URL, api_key=KEY, max_retries=0, max_tokens=60, model_kwargs={"extra_body": {"temperature": 0}}),
    ChatOllama(model="pico", base_url=URL, temperature=0, client_kwargs={"headers": {"Authorization": "Bearer " + KEY}}),
]


class Person(BaseModel):
    """Who it is."""

    name: str
    age: int


@check("a message, by each API")
def _():
    for model in others:
        got = model.invoke("echo apple pear")
        equal((type(model).__name__, got.text), (type(model).__name__, "apple pear"))
        assert got.usage_metadata["total_tokens"] > 0


@check("a stream, by each API")
def _():
    for model in others:
        equal((type(model).__name__, "".join(p.text for p in model.stream("echo apple pear"))), (type(model).__name__, "apple pear"))


@check("a chain")
def _():
    chain = ChatPromptTemplate.from_messages([("system", "Be brief."), ("user", "echo {what}")]) | chat | StrOutputParser()
    equal(chain.batch([{"what": "apple"}, {"what": "pear"}]), ["apple", "pear"])


@check("an object of a class")
def _():
    for model in (chat, others[1]):
        equal(model.with_structured_output(Person, method="json_schema").invoke(PERSON), Person(name="bob", age=7))
    assert isinstance(chat.with_structured_output(Person, method="function_calling").invoke(PERSON), Person)


@check("a tool")
def _():
    equal(chat.bind_tools([TOOL], tool_choice="dye").invoke("echo red").tool_calls[0]["args"], {"color": "red"})


@check("an agent that uses a tool once")
async def _():
    used = []

    @tool
    def dye(color: str) -> str:
        """Dyes."""
        used.append(color)
        return "done"

    class Once(ChatOpenAI):
        """Asks for the tool in its first turn only: pico does not choose by itself."""

        def bind_tools(self, tools, **more):
            return super().bind_tools(tools, **more | {"tool_choice": "none" if used else "dye"})

    once = Once(model="pico", base_url=V1, api_key=KEY, temperature=0, max_retries=0)
    got = await create_agent(once, [dye]).ainvoke({"messages": [("user", "echo red")]})
    equal(len(used), 1)
    equal([m.type for m in got["messages"]], ["human", "ai", "tool", "ai"])


@check("a completion and embeddings")
def _():
    assert OpenAI(model="pico", base_url=V1, api_key=KEY, max_tokens=8, max_retries=0).invoke("echo")
    got = OpenAIEmbeddings(model="pico", base_url=V1, api_key=KEY, check_embedding_ctx_length=False).embed_documents(["apple", "pear"])
    other = OllamaEmbeddings(model="pico", base_url=URL, client_kwargs={"headers": {"Authorization": "Bearer " + KEY}}).embed_query("apple")
    equal(len(got[1]), len(other))


@check("errors")
def _():
    raises(openai.NotFoundError, chat.bind(model="other").invoke, "x")
    raises(openai.BadRequestError, chat.invoke, LONG)


@check("later, and a stream that its client leaves")
async def _():
    async for _ in chat.astream("count red blue"):
        break
    equal([m.text for m in await chat.abatch(["echo apple", "echo pear"])], ["apple", "pear"])


run()
