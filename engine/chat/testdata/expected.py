#!/usr/bin/env python3
"""Writes the expected prompts of the *.txtar files beside it with Python's own Jinja2 (python3-jinja2), set up as
Hugging Face's transformers does for chat templates. Run it after a change of a template or a conversation."""
import datetime, json, pathlib, re, sys
import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime.datetime(2025, 7, 4, 9, 5, 3)


def refuse(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def message(m):
    """A request's message as a server hands it to a template: call arguments parsed, no content beside calls is None."""
    m = dict(m)
    if m.get("tool_calls"):
        m["content"] = m.get("content") or None
        for c in m["tool_calls"]:
            try:
                c["function"]["arguments"] = json.loads(c["function"]["arguments"])
            except ValueError:
                pass
    return m


env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
env.filters["tojson"] = tojson
env.globals["raise_exception"] = refuse
env.globals["strftime_now"] = NOW.strftime

for path in sorted(pathlib.Path(__file__).parent.glob("*.txtar")):
    parts = re.split(r"(?m)^-- (.+) --\n", path.read_text())
    out, files = [parts[0]], dict(zip(parts[1::2], parts[2::2]))
    template = env.from_string(files["template"].removesuffix("\n"))
    tokens = json.loads(files["tokens"])
    for name, text in files.items():
        kind = name.split(".")[-1]
        if kind in ("want", "error"):
            continue
        out.append(f"-- {name} --\n{text}")
        if kind != "json":
            continue
        case = json.loads(text)
        case["messages"] = [message(m) for m in case["messages"]]
        case.setdefault("tools", None)
        case.setdefault("add_generation_prompt", False)
        base = name.removesuffix(".json")
        try:
            out.append(f"-- {base}.want --\n{template.render(**tokens, **case)}\n")
        except jinja2.exceptions.TemplateError as e:
            out.append(f"-- {base}.error --\n{e}\n")
    path.write_text("".join(out))
