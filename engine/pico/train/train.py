"""Trains pico, the language model that ships with Rouse, on token rows that the Go corpus generator wrote.

A small llama: RMSNorm, RoPE on interleaved pairs, grouped-query attention, SwiGLU, tied embeddings.

The learning rate warms up, stays, and falls to zero over the last --decay steps, so a run can be cut short:
resume from its checkpoint with other --steps. Hidden matrices are trained with Muon (orthogonalised momentum,
Keller Jordan 2024), embeddings and norms with AdamW. Everything follows from --seed, --processes and the data files.

Reads  DATA/tokens.u16 and DATA/weights.u8: rows of --row ids, and a weight class per id (0 padding, 1 context, 2 answer).
Writes OUT.pt (to resume) and OUT.f32 + OUT.json (names, shapes, offsets: what `train gguf` reads).
Needs  torch >= 1.13 and numpy. A CPU is enough.
"""
import argparse, json, os, time

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")
import numpy as np
import torch
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F


class Norm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


class Block(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.heads, self.kv, self.hd = a.heads, a.kv_heads, a.dim // a.heads
        line = lambda i, o: nn.Linear(i, o, bias=False)
        self.attn_norm, self.ffn_norm = Norm(a.dim), Norm(a.dim)
        self.attn_q, self.attn_output = line(a.dim, a.dim), line(a.dim, a.dim)
        self.attn_k, self.attn_v = line(a.dim, self.kv * self.hd), line(a.dim, self.kv * self.hd)
        self.ffn_gate, self.ffn_up, self.ffn_down = line(a.dim, a.ffn), line(a.dim, a.ffn), line(a.ffn, a.dim)

    def forward(self, x, cos, sin, mask):  # x [B, T, dim]
        B, T, dim = x.shape
        split = lambda y, n: y.view(B, T, n, self.hd).transpose(1, 2)  # [B, n, T, hd]
        h = self.attn_norm(x)
        q = rotate(split(self.attn_q(h), self.heads), cos, sin)
        k = rotate(split(self.attn_k(h), self.kv), cos, sin)
        v = split(self.attn_v(h), self.kv)
        g = self.heads // self.kv
        q = q.reshape(B * self.kv, g * T, self.hd) * self.hd ** -0.5
        s = torch.bmm(q, k.reshape(B * self.kv, T, self.hd).transpose(1, 2))
        s = (s.view(B * self.kv, g, T, T) + mask).softmax(-1).view(B * self.kv, g * T, T)
        o = torch.bmm(s, v.reshape(B * self.kv, T, self.hd)).view(B, self.heads, T, self.hd)
        x = x + self.attn_output(o.transpose(1, 2).reshape(B, T, dim))
        h = self.ffn_norm(x)
        return x + self.ffn_down(F.silu(self.ffn_gate(h)) * self.ffn_up(h))


def rotate(x, cos, sin):  # pairs (2i, 2i+1), x [B, n, T, hd]
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


class Pico(nn.Module):
    def __init__(self, a, positions):
        super().__init__()
        self.token_embd = nn.Embedding(a.vocab, a.dim)
        self.blk = nn.ModuleList(Block(a) for _ in range(a.layers))
        self.output_norm = Norm(a.dim)
        hd = a.dim // a.heads
        angle = torch.outer(torch.arange(positions).float(), 10000.0 ** (-torch.arange(0, hd, 2).float() / hd))
        self.cos, self.sin = angle.cos(), angle.sin()
        self.mask = torch.full((positions, positions), float("-inf")).triu(1)
        nn.init.normal_(self.token_embd.weight, std=0.02)
        for n, p in self.named_parameters():
            if p.dim() == 2 and "embd" not in n:
                nn.init.normal_(p, std=0.5 * p.shape[1] ** -0.5)
            if n.endswith(("attn_output.weight", "ffn_down.weight")):
                nn.init.zeros_(p)

    def forward(self, ids):  # [B, T] -> [B, T, vocab]
        T = ids.shape[1]
        x = self.token_embd(ids)
        for b in self.blk:
            x = b(x, self.cos[:T], self.sin[:T], self.mask[:T, :T])
        return F.linear(self.output_norm(x), self.token_embd.weight)


class Team:
    """Processes that train one model, each on its share of every batch. One thread each is faster than threads in one
    process. Sums are made in the order of ranks, so that all copies stay equal to the bit."""

    def __init__(self, size, numbers):
        self.size, self.barrier = size, mp.get_context("fork").Barrier(size)
        self.shared = torch.zeros(size, numbers).share_memory_()

    def mean(self, rank, params):  # replaces gradients by their mean over the team
        torch.cat([p.grad.flatten() for p in params], out=self.shared[rank])
        self.barrier.wait()
        total = self.shared.mean(0)
        self.barrier.wait()
        at = 0
        for p in params:
            p.grad.copy_(total[at:at + p.numel()].view_as(p))
            at += p.numel()

    def each(self, rank, parts, work):  # parts[i] = work(parts[i]), shared out over the team
        flat, at = self.shared[0], 0
        for i, x in enumerate(parts):
            if i % self.size == rank:
                flat[at:at + x.numel()] = work(x).flatten()
            at += x.numel()
        self.barrier.wait()
        out = flat[:at].clone().split([x.numel() for x in parts])
        self.barrier.wait()
        return [o.view_as(x) for o, x in zip(out, parts)]


class Muon(torch.optim.Optimizer):
    """Momentum whose update is replaced by the nearest orthogonal matrix; equal shapes are done together."""

    def __init__(self, params, lr, team, rank, momentum=0.95, weight_decay=0.05):
        super().__init__(params, dict(lr=lr, momentum=momentum, weight_decay=weight_decay))
        self.team, self.rank = team, rank

    @torch.no_grad()
    def step(self):
        group = self.param_groups[0]
        shapes = {}
        for p in group["params"]:
            m = self.state[p].setdefault("m", torch.zeros_like(p))
            m.lerp_(p.grad, 1 - group["momentum"])
            shapes.setdefault(p.shape, []).append((p, p.grad.lerp(m, group["momentum"])))
        stacks, owners = [], []
        for pairs in shapes.values():
            half = -(-len(pairs) // self.team.size)
            for i in range(0, len(pairs), half):
                stacks.append(torch.stack([g for _, g in pairs[i:i + half]]))
                owners.append([p for p, _ in pairs[i:i + half]])
        for params, update in zip(owners, self.team.each(self.rank, stacks, orthogonal)):
            rows, cols = params[0].shape
            for p, u in zip(params, update):
                p.mul_(1 - group["lr"] * group["weight_decay"]).add_(u, alpha=-group["lr"] * max(1, rows / cols) ** 0.5)


def orthogonal(g):  # Newton-Schulz, five rounds, g [n, rows, cols]
    wide = g.shape[1] <= g.shape[2]
    x = g if wide else g.transpose(1, 2)
    x = x / (x.flatten(1).norm(dim=1)[:, None, None] + 1e-7)
    for _ in range(5):
        y = x @ x.transpose(1, 2)
        x = 3.4445 * x + (-4.7750 * y + 2.0315 * (y @ y)) @ x
    return x if wide else x.transpose(1, 2)


def export(model, args, step, path):
    """Writes the weights as one float32 file and a JSON index with GGUF tensor names."""
    index, at = {}, 0
    with open(path + ".f32.tmp", "wb") as f:
        for name, p in model.named_parameters():
            data = p.detach().numpy().astype("<f4").tobytes()
            index[name] = {"shape": list(p.shape), "offset": at}
            at += len(data)
            f.write(data)
    os.replace(path + ".f32.tmp", path + ".f32")
    with open(path + ".json", "w") as f:
        json.dump({"args": vars(args), "step": step, "tensors": index}, f, indent=1)


def save(model, opts, step, path):
    torch.save({"model": model.state_dict(), "opts": [o.state_dict() for o in opts], "step": step}, path + ".tmp")
    os.replace(path + ".tmp", path)


def train(rank, team, args):
    torch.manual_seed(args.seed)
    tokens = np.memmap(args.data + "/tokens.u16", dtype="<u2", mode="r").reshape(-1, args.row)
    weights = np.memmap(args.data + "/weights.u8", dtype="u1", mode="r").reshape(-1, args.row)
    cost = torch.tensor([0.0, 0.1, 1.0])
    model = Pico(args, args.row - 1)
    params = list(model.parameters())
    hidden = [p for n, p in model.named_parameters() if p.dim() == 2 and "embd" not in n]
    rest = [p for n, p in model.named_parameters() if p.dim() == 1 or "embd" in n]
    opts = [Muon(hidden, args.muon_lr, team, rank),
            torch.optim.AdamW(rest, lr=args.lr, betas=(0.9, 0.95), weight_decay=0.01)]
    first = 0
    if args.resume:
        ck = torch.load(args.resume)
        model.load_state_dict(ck["model"])
        for o, s in zip(opts, ck["opts"]):
            o.load_state_dict(s)
        first = ck["step"]
    if rank == 0:
        print("parameters", sum(p.numel() for p in params), "rows", len(tokens), flush=True)

    start, mean, share = time.time(), None, args.batch // team.size
    for step in range(first, args.steps):
        rate = min(1, (step + 1) / 100, (args.steps - step) / args.decay)
        for o, lr in zip(opts, (args.muon_lr, args.lr)):
            o.param_groups[0]["lr"] = lr * rate
        at = (step - args.first_row_step) * args.batch % (len(tokens) - args.batch + 1) + rank * share
        ids = torch.from_numpy(tokens[at:at + share].astype(np.int64))
        w = cost[torch.from_numpy(weights[at:at + share, 1:].astype(np.int64))].reshape(-1)
        logits = model(ids[:, :-1]).reshape(-1, args.vocab)
        loss = F.cross_entropy(logits, ids[:, 1:].reshape(-1), reduction="none")
        answer = loss.detach()[w == 1].mean().item()
        for p in params:
            p.grad = None
        ((loss * w).sum() / w.sum()).backward()
        team.mean(rank, params)
        nn.utils.clip_grad_norm_(params, 1.0)
        for o in opts:
            o.step()
        if rank != 0:
            continue
        mean = answer if mean is None else 0.98 * mean + 0.02 * answer
        if step % 20 == 0:
            speed = (step + 1 - first) * args.batch * (args.row - 1) / (time.time() - start)
            print(f"step {step} answer loss {mean:.4f} now {answer:.4f} {speed:.0f} tokens/s", flush=True)
        if (step + 1) % 200 == 0 or step + 1 == args.steps:
            save(model, opts, step + 1, args.out + ".pt")
            export(model, args, step + 1, args.out)
    if rank == 0:
        print("done", args.steps, "steps", f"{time.time() - start:.0f} s", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", required=True, help="folder of `train tokens`")
    p.add_argument("--out", required=True, help="path of the results without ending")
    p.add_argument("--resume", default="", help="an OUT.pt to go on from")
    p.add_argument("--steps", type=int, default=5000, help="steps in all, those before --resume included")
    p.add_argument("--decay", type=int, default=1000, help="last steps, over which the learning rate falls to zero")
    p.add_argument("--first-row-step", type=int, default=0, help="step that reads the first row of --data")
    p.add_argument("--row", type=int, default=513)
    p.add_argument("--batch", type=int, default=8, help="rows in a step, over all processes")
    p.add_argument("--processes", type=int, default=2)
    p.add_argument("--dim", type=int, default=192)
    p.add_argument("--layers", type=int, default=5)
    p.add_argument("--heads", type=int, default=6)
    p.add_argument("--kv-heads", type=int, default=2)
    p.add_argument("--ffn", type=int, default=384)
    p.add_argument("--vocab", type=int, default=1024)
    p.add_argument("--lr", type=float, default=0.003, help="of AdamW: embeddings and norms")
    p.add_argument("--muon-lr", type=float, default=0.01)
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    if args.batch % args.processes:
        p.error("--batch must be a multiple of --processes")
    torch.set_num_threads(1)
    team = Team(args.processes, sum(x.numel() for x in Pico(args, 1).parameters()))
    others = [mp.get_context("fork").Process(target=train, args=(r, team, args), daemon=True) for r in range(1, args.processes)]
    for o in others:
        o.start()
    train(0, team, args)


if __name__ == "__main__":
    main()
