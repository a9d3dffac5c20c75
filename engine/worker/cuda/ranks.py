"""Ranks: processes that compute one model together, each with its part of the heads, of the feed-forward rows and of the vocabulary
(tensor parallelism, arXiv:1909.08053). Every rank gets every batch, and sums and gathers what the others made; so all choose the same tokens.

They meet in the memory that the engine gives all of them, which nobody else can open: no port, no name. On the processor they speak gloo, on
devices nccl, over loopback."""
import datetime
import os
import sys

import torch
import torch.distributed as dist

# How long a rank waits for the others. One that died takes the others with it before; this is for one that hangs.
PATIENCE = datetime.timedelta(minutes=10)


class Ranks:
    """Which rank this process is. Alone, it computes everything, and nothing is sent."""

    def __init__(self, rank=0, of=1):
        self.rank, self.of = rank, of

    @classmethod
    def join(cls, load, device):
        """Meets the others of a load. A later load of the same process finds them again."""
        rank, of = load.get("rank", 0), load.get("of", 0) or 1
        if of == 1:
            return cls()
        if not 0 <= rank < of:
            raise ValueError(f"rank {rank} of {of}")
        if not load.get("memory_fd"):
            raise ValueError(f"rank {rank} of {of} has no memory to share with the others: its file descriptor is missing")
        if dist.is_initialized():
            return cls(rank, of)
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            os.environ.setdefault(name, "lo")
        if torch.device(device).type == "cuda":
            torch.cuda.set_device(device)
        store = dist.FileStore(f"/proc/self/fd/{load['memory_fd']}", of)
        dist.init_process_group("nccl" if torch.device(device).type == "cuda" else "gloo", store=store, rank=rank, world_size=of, timeout=PATIENCE)
        return cls(rank, of)

    def part(self, n):
        """This rank's part of n things: (from, to)."""
        return n * self.rank // self.of, n * (self.rank + 1) // self.of

    def sum(self, x):
        """Adds what all ranks have, in place; all get the same bits."""
        if self.of > 1:
            dist.all_reduce(x)
        return x

    def gather(self, x, n):
        """Puts parts of a last dimension of n together, which were cut by part()."""
        if self.of == 1:
            return x
        most = -(-n // self.of)
        mine = torch.zeros(*x.shape[:-1], most, dtype=x.dtype, device=x.device)
        mine[..., :x.shape[-1]] = x
        all = [torch.empty_like(mine) for _ in range(self.of)]
        dist.all_gather(all, mine)
        return torch.cat([a[..., :Ranks(i, self.of).width(n)] for i, a in enumerate(all)], -1)

    def width(self, n):
        lo, hi = self.part(n)
        return hi - lo

    def least(self, v, device):
        """The smallest of the ranks' numbers."""
        if self.of == 1:
            return v
        t = torch.tensor([v], dtype=torch.int64, device=device)
        dist.all_reduce(t, op=dist.ReduceOp.MIN)
        return int(t)

    def first(self, t):
        """What rank 0 has: numbers that were drawn, of which the last bits may differ."""
        if self.of > 1:
            dist.broadcast(t, 0)
        return t

    def together(self, do, device):
        """Does something that may fail in some ranks: where it fails in one, it fails in all, and none waits for the others."""
        failed, out = None, None
        try:
            out = do()
        except Exception as e:
            if self.of == 1:
                raise
            failed = e
        if self.least(0 if failed else 1, device) == 0:
            raise failed or ValueError("another rank has failed")
        return out

    def broken(self, e):
        """Ends the process after a step that failed in the middle: the other ranks may be in another place."""
        print(f"rank {self.rank} of {self.of} ends: {type(e).__name__}: {e}", file=sys.stderr, flush=True)
        os._exit(1)
