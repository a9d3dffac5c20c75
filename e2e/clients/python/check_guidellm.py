"""guidellm, as vLLM's users measure a server: short runs whose requests are counted."""

import json
import os
import subprocess
import sys
import tempfile

from checks import KEY, URL, check, equal, run

# guidellm takes batches from torch's loader, which is 2 GB for an iterator: this is all that it calls of it for texts.
TORCH = {
    "torch/__init__.py": """from . import nn, utils
class Tensor: pass
class Generator:
    def manual_seed(self, seed): return self
""",
    "torch/nn/__init__.py": "class Module: pass\n",
    "torch/utils/__init__.py": "from . import data\n",
    "torch/utils/data/__init__.py": "def get_worker_info(): return None\n",
    "torch/utils/data/dataset.py": """import typing
class IterableDataset(typing.Generic[typing.TypeVar("T")]): pass
""",
    "torch/utils/data/dataloader.py": """import typing
class DataLoader(typing.Generic[typing.TypeVar("T")]):
    def __init__(self, dataset, collate_fn, **_): self.dataset, self.collate = dataset, collate_fn
    def __iter__(self): return (self.collate([item]) for item in self.dataset)
""",
}


def guidellm(profile, requests, target=URL):
    """Runs it and returns its report."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in TORCH.items():
            path = os.path.join(folder, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as file:
                file.write(text)
        prompts = os.path.join(folder, "prompts.csv")
        with open(prompts, "w") as file:
            file.write("prompt\n" + "".join(f"echo apple w{k}\n" for k in range(requests)))
        report = os.path.join(folder, "report.json")
        command = [
            os.path.join(os.path.dirname(sys.executable), "guidellm"), "run", "--disable-console",
            "--backend", f"kind=openai_http,target={target},model=pico,api_key={KEY},request_format=/v1/chat/completions,max_tokens=16",
            "--profile", profile, "--constraint", f"kind=max_requests,count={requests}",
            "--data", f"kind=csv_file,path={prompts}", "--output", f"kind=json,path={report}",
        ]  # fmt: skip
        env = {**os.environ, "PYTHONPATH": folder, "GUIDELLM__MAX_WORKER_PROCESSES": "1", "GUIDELLM__LOGGING__DISABLED": "true"}
        done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True)
        assert os.path.exists(report), (done.stdout + done.stderr)[-600:]
        with open(report) as file:
            return json.load(file)


@check("streamed chats, two at once")
def _():
    metrics = guidellm("kind=concurrent,streams=2", 6)["benchmarks"][0]["metrics"]
    equal(metrics["request_totals"], {"successful": 6, "incomplete": 0, "errored": 0, "total": 6})


run()
