"""aiperf, NVIDIA's, as its users measure a server: a short run whose requests are counted."""

import json
import os
import subprocess
import sys
import tempfile

from tokenizers import Tokenizer, models

from checks import KEY, URL, check, equal, run


@check("streamed chats, two at once")
def _():
    with tempfile.TemporaryDirectory() as folder:
        prompts = os.path.join(folder, "prompts.jsonl")
        with open(prompts, "w") as file:
            file.writelines(json.dumps({"text": f"echo apple w{k}"}) + "\n" for k in range(6))
        # It insists on a tokenizer for the prompts' lengths, from the Hub's cache; the server's counts are used.
        hub = os.path.join(folder, "hub", "models--rouse--words")
        there = os.path.join(hub, "snapshots", "0" * 40)
        os.makedirs(there)
        os.makedirs(os.path.join(hub, "refs"))
        for path, text in [(os.path.join(hub, "refs", "main"), "0" * 40), (os.path.join(there, "tokenizer_config.json"), '{"tokenizer_class": "PreTrainedTokenizerFast"}')]:
            with open(path, "w") as file:
                file.write(text)
        Tokenizer(models.WordLevel({"?": 0}, unk_token="?")).save(os.path.join(there, "tokenizer.json"))
        command = [
            os.path.join(os.path.dirname(sys.executable), "aiperf"), "profile", "--model", "pico", "--url", URL, "--api-key", KEY,
            "--endpoint-type", "chat", "--streaming", "--use-server-token-count", "--tokenizer", "rouse/words",
            "--input-file", prompts, "--custom-dataset-type", "single_turn", "--request-count", "6", "--concurrency", "2",
            "--artifact-dir", folder, "--ui", "none", "--extra-inputs", "max_tokens:16",
            "--workers-max", "1", "--record-processors", "1", "--no-gpu-telemetry", "--no-server-metrics",
        ]  # fmt: skip
        done = subprocess.run(command, cwd=folder, env={**os.environ, "HF_HOME": folder}, capture_output=True, text=True)
        reports = [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names if name.endswith("aiperf.json")]
        assert reports, (done.stdout + done.stderr)[-1500:]
        with open(reports[0]) as file:
            report = json.load(file)
        equal(report["request_count"]["avg"], 6)
        assert not report.get("error_summary"), report["error_summary"]
        assert report["time_to_first_token"]["avg"] > 0 and report["output_token_throughput"]["avg"] > 0


run()
