"""Renders templates with Python's own Jinja2 (python3-jinja2), set up as Hugging Face's transformers does for chat
templates. It reads one JSON object a line, {"template": …, "variables": {…}}, and answers each with {"text": …},
{"refused": …} for raise_exception or {"error": …}."""
import datetime
import json
import resource
import signal
import sys

import jinja2
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime.datetime(2025, 7, 4, 9, 5, 3)


class Refused(jinja2.exceptions.TemplateError):
    pass


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_generation"), [], [], body).set_lineno(line)

    @jinja2.pass_eval_context
    def _generation(self, context, caller):
        return caller()


def refuse(message):
    raise Refused(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
env.filters["tojson"] = tojson
env.globals["raise_exception"] = refuse
env.globals["strftime_now"] = NOW.strftime

# A generated template may ask for more than a test may take.
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
signal.signal(signal.SIGALRM, lambda *_: refuse_time())


def refuse_time():
    raise TimeoutError("too long")


compiled = {}
for line in sys.stdin:
    case = json.loads(line)
    try:
        signal.alarm(5)
        source = case["template"]
        if source not in compiled:
            compiled.clear()
            compiled[source] = env.from_string(source)
        answer = {"text": compiled[source].render(**case["variables"])}
        answer["text"].encode()
    except Refused as e:
        answer = {"refused": str(e)}
    except Exception as e:  # anything that a template can do wrong
        answer = {"error": f"{type(e).__name__}: {e}"}
    finally:
        signal.alarm(0)
    print(json.dumps(answer), flush=True)
