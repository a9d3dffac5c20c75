"""Steps: what a batch becomes on the device. worker.py has their life; the loop there calls step, next and finish.

Sequences that need their own tokens to choose the next one (penalties), masks and log probabilities take a slow way, which waits.
Batches with adapters go without a graph.
"""
import sys
import time

import torch

import sampling
import wire
from attention import BLOCK
from holder import Holder

BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Sequence:
    __slots__ = ("tokens", "prompt", "blocks", "spec", "slot", "length", "vectors")

    def __init__(self, it, slot):
        self.tokens, self.prompt, self.spec = list(it.get("tokens", [])), it.get("prompt", 0), it.get("spec") or {}
        self.blocks, self.slot, self.length, self.vectors = [], slot, len(self.tokens), []


class Pending:
    """A batch whose tokens are on their way to the host. start and end are events on the device, None where it is the processor."""

    def __init__(self, step, start, took, rows, host, end, items):
        self.step, self.start, self.took, self.rows, self.host, self.end, self.items = step, start, took, rows, host, end, items

    def done(self):
        return self.end is None or self.end.query()

    def busy(self):
        """Nanoseconds of the device between its first and its last work for the batch, which is done."""
        return self.took if self.end is None else int(self.start.elapsed_time(self.end) * 1e6)


class Steps(Holder):
    """Needs pending, a deque, and send, which the connection has."""

    @torch.no_grad()
    def step(self, b):
        began = time.monotonic_ns()
        try:
            if self.cache is None:
                raise ValueError("the model is not loaded, or asleep")
            self.launch(b, began)
        except Exception as e:  # the step failed as a whole: that is its output
            if self.ranks.of > 1 and not isinstance(e, ValueError):
                self.ranks.broken(e)
            while self.pending:
                self.finish()
            self.send(wire.frame(wire.OUTPUT, wire.encode_output({"step": b["step"], "error": f"{type(e).__name__}: {e}"})))

    def launch(self, b, began):
        items = b.get("items", [])
        for id in b.get("ends", []):
            q = self.seqs.pop(id, None)
            if q is not None:
                self.free.append(q.slot)
        for c in b.get("copies", []):
            for kv in self.cache:
                kv[:, c["to"]] = kv[:, c["from"]]
        outs, shares = [], []
        for it in items:
            out = None
            if it.get("sample") or it.get("score") or it.get("pool"):
                out = {"id": it["id"]}
                outs.append(out)
            try:
                shares.append((it, self.take(it), out))
            except ValueError as e:
                if out is None:
                    out = {"id": it["id"]}
                    outs.append(out)
                out["error"] = str(e)
        start = self.mark()
        rows, host = self.compute(shares) if shares else ([], None)
        end = self.mark()
        self.pending.append(Pending(b["step"], start, time.monotonic_ns() - began, rows, host, end, outs))

    def mark(self):
        """An event at the end of what the device was told so far."""
        if self.model.device.type != "cuda":
            return None
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def take(self, it):
        q = self.seqs.get(it["id"])
        if it.get("begin"):
            if q is not None:
                self.free.append(q.slot)
            q = self.seqs[it["id"]] = Sequence(it, self.slot())
        if q is None:
            raise ValueError(f"sequence {it['id']} has not begun")
        q.blocks += it.get("blocks", [])
        known = it["pos"] + it["count"] - len(it.get("draft", ()))
        if known > q.length or it.get("sample") and known != q.length:
            raise ValueError(f"sequence {it['id']} has {q.length} tokens, one is to be chosen after {known}: an earlier step failed")
        if max(q.blocks, default=0) >= self.blocks or -(-(it["pos"] + it["count"]) // BLOCK) > len(q.blocks):
            raise ValueError(f"sequence {it['id']} names blocks that are not there, or too few")
        if q.spec.get("adapter") and q.spec["adapter"] not in self.adapters:
            raise ValueError(f"adapter {q.spec['adapter']} is not loaded")
        return q

    def slot(self):
        if not self.free:
            n = len(self.pool)
            self.pool = torch.cat((self.pool, torch.zeros_like(self.pool)))
            self.free = list(range(2 * n - 1, n - 1, -1))
            self.graphs = {}  # they hold the old pool
        return self.free.pop()

    def device(self, values, dtype=torch.int64):
        t = torch.tensor(values, dtype=dtype)
        if self.model.device.type == "cuda":
            return self.host_like(t.shape, dtype, True).copy_(t).to(self.model.device, non_blocking=not self.unpinned)
        return t

    def compute(self, shares):
        """Runs the forward pass and chooses; returns (rows of tokens, host copy)."""
        if all(it["count"] == 1 and it.get("sample") and sampling.plain(q.spec) and "mask" not in it and not q.spec.get("logprobs") and not q.spec.get("min_tokens")
               and not q.spec.get("adapter")
               and "draft" not in it and not it.get("score") for it, q, _ in shares):
            return self.decode(shares)
        slow = [s for s in shares if s[0].get("mask") or sampling.needs_tokens(s[1].spec)]
        if slow:
            while self.pending:
                self.finish()
        ids, pos, slots, fresh = [], [], [], []
        for it, q, _ in shares:
            known, draft = it["pos"] + it["count"] - len(it.get("draft", ())), it.get("draft", [])
            for p in range(it["pos"], it["pos"] + it["count"]):
                if p >= known:
                    ids.append(draft[p - known])
                elif p < len(q.tokens):
                    ids.append(q.tokens[p])
                else:
                    fresh.append((len(ids), q.slot))
                    ids.append(0)
                pos.append(p)
                slots.append(q.blocks[p // BLOCK] * BLOCK + p % BLOCK)
        ids = self.device(ids)
        if fresh:
            ids[self.device([i for i, _ in fresh])] = self.pool[self.device([s for _, s in fresh])]
        lengths = [it["pos"] + it["count"] for it, _, _ in shares]
        width = max(len(q.blocks) for _, q, _ in shares)
        seqs = {"tables": self.device([q.blocks + [0] * (width - len(q.blocks)) for _, q, _ in shares]), "lengths": self.device(lengths),
                "host_lengths": lengths, "counts": [it["count"] for it, _, _ in shares]}
        hidden = self.model.forward(ids, self.device(pos), self.device(slots), seqs, self.cache, self.changes(shares))
        return self.choose(shares, hidden)

    def changes(self, shares):
        """The adapters of a batch, each with the rows of its tokens."""
        rows, at = {}, 0
        for it, q, _ in shares:
            if q.spec.get("adapter"):
                rows.setdefault(q.spec["adapter"], []).extend(range(at, at + it["count"]))
            at += it["count"]
        return [(self.device(r), self.adapters[a]) for a, r in rows.items()]

    def choose(self, shares, hidden):
        chosen, at = [], 0
        for it, q, out in shares:
            mine = hidden[at:at + it["count"]]
            at += it["count"]
            if q.spec.get("pool"):
                self.pooled(it, q, out, mine)
                continue
            if it.get("score"):
                rows = self.model.logits(mine)
                for j in range(it["count"]):
                    p = it["pos"] + j + 1
                    if p < q.prompt:
                        out.setdefault("scores_from", p)
                        out.setdefault("scores", []).append(sampling.score(rows[j], q.tokens[p], q.spec.get("top", 0)))
            if it.get("sample"):
                chosen.append((q, out, self.sample(it, q, out, mine)))
        if not chosen:
            return [], None
        return self.ship([(q, out, len(t)) for q, out, t in chosen], torch.cat([t for _, _, t in chosen]))

    def sample(self, it, q, out, hidden):
        """The tokens chosen for one sequence, as a device tensor."""
        draft = it.get("draft", [])
        rows = self.model.logits(hidden[-1 - len(draft):])
        picks = []
        for j in range(len(draft) + 1):
            if sampling.plain(q.spec) and "mask" not in it and not q.spec.get("min_tokens"):
                t = rows[j].argmax()
            else:
                row = sampling.adjust(rows[j], q.spec, q.tokens[:q.prompt], q.tokens[q.prompt:], q.length - q.prompt, it.get("mask"))
                t = self.ranks.first(sampling.draw(row, q.spec, sampling.uniform(q.spec.get("seed", 0), q.spec.get("index", 0), q.length)))
            picks.append(t.view(1))
            q.length += 1
            if q.spec.get("logprobs"):
                out["logprobs"] = True
                out.setdefault("scored", []).append(sampling.score(rows[j], t, q.spec.get("top", 0)))
            if draft:  # the engine waits for these anyway
                q.tokens.append(int(t))
                if j < len(draft) and int(t) != draft[j]:
                    break
        self.pool[q.slot] = picks[-1][0]
        return torch.cat(picks)

    def pooled(self, it, q, out, hidden):
        q.vectors.append(hidden.float().cpu())
        if it.get("pool"):
            x = torch.cat(q.vectors)
            out["vector"] = {"mean": x.mean(0), "last": x[-1], "first": x[0]}[q.spec["pool"]].tolist()
            q.vectors = []

    def ship(self, rows, tokens):
        """Begins the copy of chosen tokens to the host. rows: (sequence, output, number of tokens)."""
        if not tokens.is_cuda:
            return rows, tokens
        host = self.host_like((len(tokens),), torch.int64, True)
        host.copy_(tokens, non_blocking=not self.unpinned)
        return rows, host

    def decode(self, shares):
        """One token for each sequence, greedily: ids from the pool, all on the device, as a graph where there can be one."""
        n = len(shares)
        for it, q, _ in shares:
            if it["pos"] < len(q.tokens):  # also after a begin, whose token the pool has not seen
                self.pool[q.slot] = q.tokens[it["pos"]]
        size = next((x for x in BUCKETS if x >= n), n) if self.model.paged else n
        spare = self.blocks  # what the rows that fill up the bucket write to
        width = -(-self.context // BLOCK) if self.model.paged else max(len(q.blocks) for _, q, _ in shares)
        pack = [[q.slot, it["pos"], q.blocks[it["pos"] // BLOCK] * BLOCK + it["pos"] % BLOCK, it["pos"] + 1] for it, q, _ in shares]
        pack += [[shares[0][1].slot, 0, spare * BLOCK, 1]] * (size - n)
        tables = [q.blocks + [0] * (width - len(q.blocks)) for _, q, _ in shares] + [[spare] * width] * (size - n)
        numbers, tables = self.device(pack), self.device(tables)
        if self.model.paged and size in BUCKETS:
            tokens = self.replay(size, numbers, tables)
        else:
            tokens = self.greedy(numbers, tables)
        self.pool[numbers[:n, 0]] = tokens[:n]
        for _, q, _ in shares:
            q.length += 1
        return self.ship([(q, out, 1) for _, q, out in shares], tokens[:n])

    def greedy(self, numbers, tables):
        seqs = {"tables": tables, "lengths": numbers[:, 3], "counts": None}
        hidden = self.model.forward(self.pool[numbers[:, 0]], numbers[:, 1], numbers[:, 2], seqs, self.cache)
        return self.model.logits(hidden).argmax(-1)

    def replay(self, size, numbers, tables):
        if size not in self.graphs:
            n, t = numbers.clone(), tables.clone()
            n[:, 2], n[:, 3], t[:] = self.blocks * BLOCK, 1, self.blocks  # a rehearsal must not touch the cache in use
            self.graphs[size] = self.capture(n, t)
        graph, n, t, out = self.graphs[size]
        if graph is None:
            return self.greedy(numbers, tables)
        n.copy_(numbers)
        t.copy_(tables)
        graph.replay()
        return out

    def capture(self, n, t):
        """The graph of a size; None where it can't be captured: the kernels are launched one by one then."""
        self.greedy(n, t)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                return graph, n, t, self.greedy(n, t)
        except RuntimeError as e:  # of ranks, whatever fails here may have failed in one only
            if self.ranks.of > 1:
                self.ranks.broken(e)
            print(f"no graph of {len(n)}: {e}", file=sys.stderr)
            return None, n, t, None

    def finish(self):
        """Sends the output of the oldest batch, which it waits for."""
        p = self.pending.popleft()
        if p.end is not None:
            p.end.synchronize()
        tokens = p.host.tolist() if p.host is not None else []
        at = 0
        for q, out, n in p.rows:
            mine = tokens[at:at + n]
            at += n
            if len(q.tokens) + n <= q.length:  # drafts' tokens are there already
                q.tokens += mine
            out["tokens"] = out.pop("scored", None) or [{"Token": t} for t in mine]
        self.send(wire.frame(wire.OUTPUT, wire.encode_output({"step": p.step, "busy": p.busy(), "items": p.items})))
