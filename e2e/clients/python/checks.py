"""What the scripts of this folder have in common.

A script is called with the URL of a server of Rouse that serves pico and has a store, and with a key. Each check is a
function, with async or without, that raises where it fails; run calls them one after the other, prints a line for each
and ends the program, with status 1 if one fails.

A check with known=(fault, text) must fail, with the text in its error: the fault is one of ours that is listed in
docs/design/0025-python-clients.md. One that passes fails the script, so that the mark goes when the fault does.
"""

import asyncio
import inspect
import os
import sys

URL, KEY = sys.argv[1:3]
V1 = URL + "/v1"
FRUIT = [{"role": "user", "content": "echo apple pear"}]
PERSON = "json name=bob age=7"  # pico answers {"name":"bob","age":7}
LONG = "echo " + "apple " * 20000  # more than pico's context
DYE = {
    "type": "object",
    "properties": {"color": {"type": "string", "enum": ["red"]}},
    "required": ["color"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "dye", "description": "Dyes.", "parameters": DYE}}

# No client asks anybody else.
os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", DO_NOT_TRACK="1", LITELLM_LOCAL_MODEL_COST_MAP="True", OPENAI_AGENTS_DISABLE_TRACING="1")

_checks = []


def check(name, known=None):
    def add(function):
        _checks.append((name, known, function))
        return function

    return add


def raises(kind, function, *args, **kwargs):
    """Calls a function and returns its error, which is of that kind."""
    try:
        got = function(*args, **kwargs)
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}, but {got!r}"[:300])


def equal(got, want):
    assert got == want, f"{got!r}, want {want!r}"[:600]


async def _all():
    failed = 0
    for name, known, function in _checks:
        try:
            made = function()
            if inspect.isawaitable(made):
                await asyncio.wait_for(made, 300)
        except Exception as error:
            text = " ".join(f"{type(error).__name__}: {error}".split())[:600]
            if known and known[1] in text:
                print(f"known {name}: {known[0]}: {text}", flush=True)
                continue
            print(f"FAIL  {name}: {text}", flush=True)
        else:
            if not known:
                print(f"ok    {name}", flush=True)
                continue
            print(f"FAIL  {name}: passes, though {known[0]} is marked as known: remove the mark", flush=True)
        failed += 1
    return failed


def run():
    assert _checks, "no checks"
    sys.exit(1 if asyncio.run(_all()) else 0)
