"""OpenAI's agents, pydantic-ai and instructor: loops around OpenAI's client."""

from checks import KEY, PERSON, V1, check, equal, raises, run

import agents
import instructor
import openai
from agents import Agent, ModelSettings, Runner, function_tool
from pydantic import BaseModel, field_validator
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import ModelRetry, NativeOutput
from pydantic_ai.exceptions import ModelHTTPError, UnexpectedModelBehavior
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

client = openai.AsyncOpenAI(base_url=V1, api_key=KEY, max_retries=0)
provider = OpenAIProvider(openai_client=client)


class Person(BaseModel):
    name: str
    age: int


def models():
    return agents.OpenAIChatCompletionsModel("pico", client), agents.OpenAIResponsesModel("pico", client)


@check("agents: an answer, alone and streamed, by both APIs")
async def _():
    for model in models():
        agent = Agent("a", "Be brief.", model=model, model_settings=ModelSettings(temperature=0))
        equal((await Runner.run(agent, "echo apple pear")).final_output, "apple pear")
        streamed = Runner.run_streamed(agent, "echo apple pear")
        kinds = {event.type async for event in streamed.stream_events()}
        equal(streamed.final_output, "apple pear")
        assert "raw_response_event" in kinds, kinds


@check("agents: a tool, and the turn after it, by both APIs")
async def _():
    for model in models():
        used = []

        @function_tool
        def dye(color: str) -> str:
            """Dyes."""
            used.append(color)
            return "done"

        # The choice is reset after a tool was used.
        agent = Agent("a", model=model, tools=[dye], model_settings=ModelSettings(temperature=0, tool_choice="dye", max_tokens=200))
        got = await Runner.run(agent, "echo red", max_turns=3)
        equal(len(used), 1)
        equal([item.type for item in got.new_items], ["tool_call_item", "tool_call_output_item", "message_output_item"])


@check("agents: an object of a class, by both APIs")
async def _():
    for model in models():
        agent = Agent("a", model=model, output_type=Person, model_settings=ModelSettings(temperature=0))
        equal((await Runner.run(agent, PERSON)).final_output, Person(name="bob", age=7))


@check("pydantic-ai: an answer, alone and streamed, by both APIs")
async def _():
    for kind in (OpenAIChatModel, OpenAIResponsesModel):
        agent = PydanticAgent(kind("pico", provider=provider), instructions="Be brief.", model_settings={"temperature": 0})
        got = await agent.run("echo apple pear")
        equal(got.output, "apple pear")
        assert got.usage.output_tokens > 0
        async with agent.run_stream("echo apple pear") as streamed:
            equal([part async for part in streamed.stream_text()][-1], "apple pear")


@check("pydantic-ai: an object as native output and as a tool's arguments")
async def _():
    model = OpenAIChatModel("pico", provider=provider)
    agent = PydanticAgent(model, output_type=NativeOutput(Person), model_settings={"temperature": 0})
    equal((await agent.run(PERSON)).output, Person(name="bob", age=7))
    assert isinstance((await PydanticAgent(model, output_type=Person, model_settings={"temperature": 0}).run(PERSON)).output, Person)


@check("pydantic-ai: tries again, and gives up")
async def _():
    tries = []
    agent = PydanticAgent(OpenAIChatModel("pico", provider=provider), retries=1, model_settings={"temperature": 0})

    @agent.output_validator
    def refuse(output: str) -> str:
        tries.append(output)
        raise ModelRetry("echo pear")

    try:
        await agent.run("echo apple")
    except UnexpectedModelBehavior:
        equal((len(tries), tries[0]), (2, "apple"))
    else:
        raise AssertionError("it did not give up")


@check("pydantic-ai: an unknown model")
async def _():
    try:
        await PydanticAgent(OpenAIChatModel("other", provider=provider)).run("x")
    except ModelHTTPError as error:
        equal(error.status_code, 404)
    else:
        raise AssertionError("no error")


def ask(content, **more):
    return {"model": "pico", "temperature": 0, "messages": [{"role": "user", "content": content}], **more}


@check("instructor: by schema, by tool and by JSON")
def _():
    for mode in (instructor.Mode.JSON_SCHEMA, instructor.Mode.TOOLS, instructor.Mode.JSON):
        made = instructor.from_openai(openai.OpenAI(base_url=V1, api_key=KEY, max_retries=0), mode=mode)
        got = made.chat.completions.create(response_model=Person, **ask(PERSON, max_tokens=60))
        equal(type(got).__name__, "Person")
        if mode is instructor.Mode.JSON_SCHEMA:
            equal((got.name, got.age), ("bob", 7))


@check("instructor: tries again, and gives up")
def _():
    tries = []

    class Never(Person):
        @field_validator("age")
        @classmethod
        def refuse(cls, age):
            tries.append(age)
            raise ValueError("too young")

    made = instructor.from_openai(openai.OpenAI(base_url=V1, api_key=KEY, max_retries=0), mode=instructor.Mode.JSON_SCHEMA)
    raises(Exception, made.chat.completions.create, response_model=Never, max_retries=2, **ask(PERSON))
    assert len(tries) >= 2 and tries[0] == 7, tries


@check("instructor: parts of an object, later")
async def _():
    made = instructor.from_openai(client, mode=instructor.Mode.JSON_SCHEMA)
    parts = [part async for part in made.chat.completions.create_partial(response_model=Person, **ask(PERSON))]
    equal((parts[-1].name, parts[-1].age), ("bob", 7))


run()
