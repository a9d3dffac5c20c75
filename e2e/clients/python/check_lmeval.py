"""lm-eval: a task of this file, by likelihoods of prompts and by generated texts."""

import json
import math
import os
import tempfile

from checks import KEY, URL, V1, check, equal, run

import httpx

client = httpx.Client(base_url=URL, headers={"Authorization": "Bearer " + KEY}, timeout=60)
os.environ["OPENAI_API_KEY"] = KEY

import lm_eval  # noqa: E402
from lm_eval.api.instance import Instance  # noqa: E402
from lm_eval.api.registry import get_model  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

HEAD, TAIL = "<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"
ASKED = [("apple pear", "apple pear"), ("sun moon", "sun moon"), ("red blue", "red blue")]


class Tokens:
    """The server's own tokenizer."""

    eos_token, eos_token_id, bos_token_id = "<|im_end|>", 0, None

    def encode(self, text):
        return client.post("/tokenize", json={"model": "pico", "prompt": text}).raise_for_status().json()["tokens"]


def model(kind, path, **more):
    return get_model(kind)(model="pico", base_url=V1 + path, num_concurrent=1, max_retries=1, max_gen_toks=16, **more)


def completions():
    made = model("local-completions", "/completions", tokenizer_backend=None, tokenized_requests=False, max_length=512)
    made.tokenizer, made.tokenizer_backend, made.tokenized_requests = Tokens(), "remote", True
    return made


@check("likelihoods of two ends are those of a scored prompt")
def _():
    lm = completions()
    start = f"{HEAD}echo apple pear{TAIL}"
    asked = [Instance("loglikelihood", {}, (start, end), k) for k, end in enumerate(["apple pear", "plum plum"])]
    (right, greedy), (wrong, not_greedy) = lm.loglikelihood(asked)
    equal((greedy, not_greedy), (True, False))
    assert right > wrong + 1, (right, wrong)
    scored = client.post("/v1/completions", json={
        "model": "pico", "prompt": start + "apple pear", "max_tokens": 1, "temperature": 0, "logprobs": 1, "echo": True,
    }).json()["choices"][0]["logprobs"]["token_logprobs"]  # fmt: skip
    n = len(lm.tokenizer.encode(start))
    assert math.isclose(right, sum(scored[n:-1]), abs_tol=1e-3), (right, sum(scored[n:-1]))


@check("a task of choices, and one of generated texts")
def _():
    with tempfile.TemporaryDirectory() as folder:
        rows = [{"question": f"{HEAD}echo {words}{TAIL}", "chat": f"echo {words}", "choices": ["plum plum", answer], "answer": 1, "text": answer} for words, answer in ASKED]
        path = os.path.join(folder, "rows.json")
        with open(path, "w") as file:
            json.dump(rows, file)
        data = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": path}, "cache_dir": folder}, "test_split": "test"}
        choices = {
            "task": "choices", **data, "output_type": "multiple_choice", "doc_to_text": "{{question}}", "doc_to_choice": "choices",
            "doc_to_target": "answer", "target_delimiter": "", "metric_list": [{"metric": "acc"}],
        }  # fmt: skip
        texts = {
            "task": "texts", **data, "output_type": "generate_until", "doc_to_text": "{{chat}}", "doc_to_target": "text",
            "generation_kwargs": {"until": ["\n"], "temperature": 0}, "metric_list": [{"metric": "exact_match"}],
        }  # fmt: skip
        tasks = TaskManager(include_defaults=False)
        got = lm_eval.simple_evaluate(completions(), tasks=[choices], task_manager=tasks, bootstrap_iters=0)
        equal(got["results"]["choices"]["acc,none"], 1.0)
        chat = model("local-chat-completions", "/chat/completions")
        got = lm_eval.simple_evaluate(chat, tasks=[texts], task_manager=tasks, bootstrap_iters=0, apply_chat_template=True)
        equal(got["results"]["texts"]["exact_match,none"], 1.0)


@check("finds the server's tokenizer")
def _():
    assert lm_eval.utils.check_remote_tokenizer_support(V1 + "/completions", auth_token=KEY), "no tokenizer"


run()
