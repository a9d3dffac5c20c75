"""Compares the forward pass with that of the worker in Go, for models of every family: `python3 -m unittest test_families`, with ROUSE_TEST_FAMILIES, a folder
in which the Go test of this package has written models and what the worker in Go computes of them. Alone, and as two ranks, each a process."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

try:
    import torch
except ImportError:
    torch = None

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.environ.get("ROUSE_TEST_FAMILIES", "")
DEVICE = os.environ.get("ROUSE_TEST_DEVICE", "cpu")
NEAR = 1e-3  # of the largest logit: the cache in Go has halves. What is forgotten of a family makes ten times as much


def worst(case, device, ranks):
    """The largest difference of a logit, as a share of the largest logit: after the prompt in two parts, and after each further token."""
    from attention import BLOCK
    from model import Model
    m = Model.load(os.path.join(FOLDER, case["model"]), device, torch.float32, case["context"], ranks)
    prompt, more = case["prompt"], case["more"]
    count = -(-(len(prompt) + len(more)) // BLOCK)
    table = list(range(count - 1, -1, -1))  # in any order
    cache = m.make_cache(count)
    as_tensor = lambda x: torch.tensor(x, dtype=torch.int64, device=device)

    def step(tokens, pos):
        at = range(pos, pos + len(tokens))
        seqs = {"tables": as_tensor([table]), "lengths": as_tensor([pos + len(tokens)]), "host_lengths": [pos + len(tokens)], "counts": None if len(tokens) == 1 else [len(tokens)]}
        hidden = m.forward(as_tensor(tokens), as_tensor(list(at)), as_tensor([table[p // BLOCK] * BLOCK + p % BLOCK for p in at]), seqs, cache)
        return m.logits(hidden[-1:])[0].cpu()

    half = len(prompt) // 2
    step(prompt[:half], 0)
    got = [step(prompt[half:], half)]
    for i, t in enumerate(more[:-1]):
        got.append(step([t], len(prompt) + i))
    want = torch.tensor(case["logits"])
    if got[0].shape != want[0].shape:
        raise AssertionError(f"{case['name']}: {list(got[0].shape)} logits, want {list(want[0].shape)}")
    return ((torch.stack(got) - want).abs().max() / want.abs().max()).item()


def cases():
    with open(os.path.join(FOLDER, "cases.json")) as f:
        return json.load(f)


@unittest.skipIf(torch is None, "torch is not installed")
@unittest.skipIf(not FOLDER, "no ROUSE_TEST_FAMILIES: go test ./engine/worker makes them")
class TestFamilies(unittest.TestCase):
    def test_alone(self):
        from ranks import Ranks
        with torch.no_grad():
            for case in cases():
                with self.subTest(case["name"]):
                    self.assertLess(worst(case, DEVICE, Ranks()), NEAR)

    def test_ranks(self):
        if DEVICE != "cpu" and torch.cuda.device_count() < 2:
            self.skipTest("two ranks need two devices")
        with tempfile.TemporaryFile() as shared:
            ranks = [subprocess.Popen([sys.executable, "-B", __file__, str(rank), str(shared.fileno())], cwd=HERE, pass_fds=[shared.fileno()],
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for rank in range(2)]
            for p in ranks:
                self.addCleanup(p.stdout.close)
                self.addCleanup(p.wait)
                self.addCleanup(p.kill)
            for p in ranks:
                said, _ = p.communicate(timeout=600)
                self.assertEqual(p.returncode, 0, said)

    def test_refused(self):
        from ranks import Ranks
        for load, word in (({"rank": 0, "of": 2}, "file descriptor"), ({"rank": 2, "of": 2, "memory_fd": 1}, "rank 2 of 2")):
            with self.assertRaisesRegex(ValueError, word):
                Ranks.join(load, "cpu")


def rank(number, fd):
    """One of two ranks: all cases; and both get the reason where a load fails in one."""
    from ranks import Ranks
    torch.set_num_threads(1)
    device = DEVICE if DEVICE == "cpu" else f"cuda:{number}"
    ranks = Ranks.join({"rank": number, "of": 2, "memory_fd": fd}, device)
    with torch.no_grad():
        for case in cases():
            far = worst(case, device, ranks)
            assert far < NEAR, f"{case['name']}: {far}"
    try:
        ranks.together(lambda: 1 // number, device)
        raise SystemExit("a load that failed in rank 0 has succeeded")
    except (ZeroDivisionError if number == 0 else ValueError):
        pass
    torch.distributed.destroy_process_group()  # else its threads may abort the end of the process


if __name__ == "__main__":
    rank(int(sys.argv[1]), int(sys.argv[2]))
