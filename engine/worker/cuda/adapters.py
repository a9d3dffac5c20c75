"""LoRA adapters (arXiv:2106.09685): y = W x + scale B (A x), for the tokens of the sequences that ask for it. Read from the GGUF
files that the engine writes of whatever it was given; it has checked them.

A copy in the host's memory outlives sleeps, so that no file is read again."""
import re

import torch
import torch.nn.functional as F

from gguf import File

_NAME = re.compile(r"^blk\.(\d+)\.(\w+)\.weight\.lora_a$")


class Adapter:
    def __init__(self, path, model):
        """Reads it for a model. Nothing is on the device before place()."""
        f = File(path)
        s = model.shape
        # Where a matrix lies in what is one matrix here: (its name, the first row, the rank's own rows of it, or columns).
        q, kv = model.heads * s.head, model.kv_heads * s.head
        ffn, none = model.ffn_rows.stop - model.ffn_rows.start, slice(None)
        where = {"attn_q": ("qkv", 0, model.q_rows, none), "attn_k": ("qkv", q, model.kv_rows, none), "attn_v": ("qkv", q + kv, model.kv_rows, none),
                 "attn_output": ("o", 0, none, model.q_rows), "ffn_gate": ("gate_up", 0, model.ffn_rows, none), "ffn_up": ("gate_up", ffn, model.ffn_rows, none),
                 "ffn_down": ("down", 0, none, model.ffn_rows)}
        self.host, self.layers = [{} for _ in range(s.layers)], None
        for name in f.tensors:
            m = _NAME.match(name)
            if not m:
                continue
            a, b = (torch.from_numpy(f.tensor(name[:-1] + half)) for half in "ab")
            key, row, rows, columns = where[m[2]]
            b = b[rows] * (f.get("adapter.lora.alpha") / len(a))
            a = a[:, columns].contiguous()
            self.host[int(m[1])].setdefault(key, []).append((row, a.to(model.dtype), b.to(model.dtype)))

    def place(self, device):
        """Copies it to a device; None: takes it away."""
        self.layers = device and [{k: [(row, a.to(device), b.to(device)) for row, a, b in v] for k, v in layer.items()} for layer in self.host]


def change(y, h, loras, layer, name):
    """Adds to y = W h what adapters change. loras are (rows of the tokens, Adapter)."""
    for rows, adapter in loras:
        for at, a, b in adapter.layers[layer].get(name, ()):
            y[rows, at:at + len(b)] += F.linear(F.linear(h[rows], a), b)
    return y
