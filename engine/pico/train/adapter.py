"""Trains a low-rank adapter (LoRA, arXiv:2106.09685) of pico on token rows that `train tokens -style` wrote.

Every projection of every layer gets y = W x + (alpha / rank) B (A x); W stays as it is. A begins random, B zero.

Reads  BASE.f32 + BASE.json (what `train base` wrote) and DATA/tokens.u16, DATA/weights.u8.
Writes OUT.f32 + OUT.json (names, shapes, offsets: what `train adapters` reads).
Needs  torch >= 1.13 and numpy. One thread of a CPU takes some minutes.
"""
import argparse, json, os, time

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from train import Pico, export


class Adapted(nn.Module):
    def __init__(self, linear, rank, scale):
        super().__init__()
        self.base, self.scale = linear, scale
        self.lora_a = nn.Parameter(torch.randn(rank, linear.in_features) * linear.in_features ** -0.5)
        self.lora_b = nn.Parameter(torch.zeros(linear.out_features, rank))

    def forward(self, x):
        return self.base(x) + self.scale * F.linear(F.linear(x, self.lora_a), self.lora_b)


def load(model, path):
    with open(path + ".json") as f:
        tensors = json.load(f)["tensors"]
    data = np.fromfile(path + ".f32", dtype="<f4")
    state = {}
    for name, t in tensors.items():
        n = int(np.prod(t["shape"]))
        state[name] = torch.from_numpy(data[t["offset"] // 4:t["offset"] // 4 + n].reshape(t["shape"]).copy())
    missing = set(dict(model.named_parameters())) ^ set(state)
    if missing:
        raise SystemExit(f"the base weights and the model differ in {sorted(missing)}")
    model.load_state_dict(state)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--base", required=True, help="path of the base weights without ending")
    p.add_argument("--data", required=True, help="folder of `train tokens -style`")
    p.add_argument("--out", required=True, help="path of the results without ending")
    p.add_argument("--steps", type=int, default=600)
    p.add_argument("--row", type=int, default=257)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--rank", type=int, default=8)
    p.add_argument("--alpha", type=float, default=16)
    p.add_argument("--lr", type=float, default=0.004)
    p.add_argument("--seed", type=int, default=1)
    for name, value in (("dim", 192), ("layers", 5), ("heads", 6), ("kv-heads", 2), ("ffn", 384), ("vocab", 1024)):
        p.add_argument("--" + name, type=int, default=value)
    args = p.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    tokens = np.memmap(args.data + "/tokens.u16", dtype="<u2", mode="r").reshape(-1, args.row)
    weights = np.memmap(args.data + "/weights.u8", dtype="u1", mode="r").reshape(-1, args.row)
    model = Pico(args, args.row - 1)
    load(model, args.base)
    for q in model.parameters():
        q.requires_grad_(False)
    for block in model.blk:
        for name, child in list(block.named_children()):
            if isinstance(child, nn.Linear):
                setattr(block, name, Adapted(child, args.rank, args.alpha / args.rank))
    params = [q for q in model.parameters() if q.requires_grad]
    opt = torch.optim.AdamW(params, lr=args.lr, betas=(0.9, 0.95), weight_decay=0.01)
    print("parameters", sum(q.numel() for q in params), "rows", len(tokens), flush=True)
    start, mean = time.time(), None
    for step in range(args.steps):
        opt.param_groups[0]["lr"] = args.lr * min(1, (step + 1) / 30, (args.steps - step) / (args.steps / 2))
        at = step * args.batch % (len(tokens) - args.batch + 1)
        ids = torch.from_numpy(tokens[at:at + args.batch].astype(np.int64))
        w = (torch.from_numpy(weights[at:at + args.batch, 1:].astype(np.int64)) == 2).float().reshape(-1)
        loss = F.cross_entropy(model(ids[:, :-1]).reshape(-1, args.vocab), ids[:, 1:].reshape(-1), reduction="none")
        loss = (loss * w).sum() / w.sum()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(params, 1.0)
        opt.step()
        mean = loss.item() if mean is None else 0.95 * mean + 0.05 * loss.item()
        if step % 50 == 0 or step + 1 == args.steps:
            print(f"step {step} answer loss {mean:.4f} {time.time() - start:.0f} s", flush=True)
    for q in list(model.named_parameters()):
        if not q[1].requires_grad:
            owner, leaf = model, q[0].split(".")
            for part in leaf[:-1]:
                owner = getattr(owner, part)
            delattr(owner, leaf[-1])
    export(model, args, args.steps, args.out)


if __name__ == "__main__":
    main()
