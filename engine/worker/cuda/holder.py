"""What a worker holds: the model, the cache, adapters; on the device while it is awake, and what of it sleeps where.

A level-1 sleep copies before it gives anything back, and a wake makes the cache before it copies: one that fails leaves the
model as it was. The worker's loop calls, between steps."""
import sys

import torch

import blocks
from adapters import Adapter
from attention import BLOCK, find_paged
from model import Model
from ranks import Ranks


class Holder:
    def open(self, load):
        """Loads a model. If it fails what was there is as before."""
        options = load.get("options") or {}
        device = options.get("device") or ("cuda" if torch.cuda.is_available() else "cpu")
        if device == "cuda" and load.get("of", 0) > 1:  # each rank has a device of its own
            if torch.cuda.device_count() < load["of"]:
                raise ValueError(f"{load['of']} shards need as many CUDA devices, and there are {torch.cuda.device_count()}")
            device = f"cuda:{load.get('rank', 0)}"
        dtype = torch.bfloat16 if device != "cpu" and options.get("dtype") != "float32" else torch.float32
        if load.get("threads"):
            torch.set_num_threads(load["threads"])
        self.ranks = Ranks.join(load, device)
        model = self.ranks.together(lambda: Model.load(load["model"], device, dtype, load.get("context", 0), self.ranks), device)
        if load is not self.load:
            self.blocks = self.level = 0
            self.adapters = {}
        self.load, self.model, self.pin = load, model, options.get("pin", True)
        for a in self.adapters.values():
            a.place(model.device)
        self.context = min(load.get("context") or self.model.shape.context, self.model.shape.context)
        how = find_paged(self.model)
        if not self.ranks.least(1 if model.paged else 0, model.device) and model.paged:  # all go one way: what they send has one shape
            model.paged, how = None, "plain attention: another rank has no other"
        print(how, file=sys.stderr)
        self.room()

    def room(self):
        """Makes the cache, the pool and the graphs. How many blocks there are is decided once: the engine counts on them."""
        m = self.model
        each = self.block_bytes()
        if not self.blocks:
            most = self.load.get("cache_bytes") or ((torch.cuda.mem_get_info(m.device)[0] * 8 // 10) if m.device.type == "cuda" else 1 << 30)
            wanted = (self.load.get("sequences") or 8) * -(-self.context // BLOCK)
            # One block more than the engine knows of: what graphs write for the rows that they fill up with.
            self.blocks = self.ranks.least(min(wanted, most // max(each, 1) - 1), m.device)
            if self.blocks < 1:
                raise ValueError(f"the cache needs {2 * each} bytes at least, and may have {most}")
        self.cache = m.make_cache(self.blocks + 1)
        self.seqs, self.free = {}, []
        self.pool = torch.zeros(256, dtype=torch.int64, device=m.device)
        self.free = list(range(255, -1, -1))
        self.graphs = {}

    def load_adapter(self, spec):
        if not spec.get("id") or not spec.get("path"):
            raise ValueError("an adapter needs a number and a path")
        if self.model is None:
            raise ValueError("the model is asleep")
        a = Adapter(spec["path"], self.model)
        if not self.level:
            a.place(self.model.device)
        self.adapters[spec["id"]] = a

    def block_bytes(self):
        s = self.model.shape
        return 2 * s.layers * BLOCK * self.model.kv_heads * s.head * torch.finfo(self.model.dtype).bits // 8

    def contents(self, ids):
        """The contents of blocks; asleep, of those that were kept."""
        if self.cache is not None:
            return blocks.gather(self.cache, ids)
        if self.kept is None:
            raise ValueError("the model is asleep, and keeps no blocks")
        return self.kept.gather(ids)

    def memory(self):
        if self.level:
            return 0
        if self.model.device.type == "cuda":
            return torch.cuda.memory_allocated()
        seen = {id(h[k]): h[k].numel() * h[k].element_size() for h, k in self.model.tensors()}
        return sum(seen.values()) + sum(c.numel() * c.element_size() for c in self.cache)

    def sleep(self, level, keep=()):
        """Level 1 moves the weights, and the contents of blocks, to the host's memory, level 2 drops all. If it fails nothing has changed."""
        if level <= self.level:
            self.trim()  # of a wake that failed
            return
        if level == 1:
            blocks.check({"path": "-", "blocks": keep}, self.blocks)
            kept = blocks.Kept(self.cache, keep, self.pin, self.host_like) if keep else None
            self.move(self.on_host)
            self.kept = kept
        else:
            self.model = self.kept = None
        for a in self.adapters.values():
            a.place(None)
        self.cache, self.graphs, self.seqs = None, {}, {}
        self.level = level
        self.trim()

    def trim(self):
        """Gives back the device's memory that nothing refers to any more."""
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def on_host(self, x):
        """A copy in the host's memory, pinned unless the options say not: pinning is slow the first time, torch keeps what it has pinned."""
        return self.host_like(x.shape, x.dtype, x.is_cuda and self.pin).copy_(x)

    def host_like(self, shape, dtype, pin):
        """Memory of the host. Where it can't be pinned (a limit of the container, no more memory to lock) it is not, from then on."""
        if pin and not self.unpinned:
            try:
                return torch.empty(shape, dtype=dtype, pin_memory=True)
            except RuntimeError as e:
                self.unpinned = True
                print(f"memory can't be pinned, so copies are slower: {str(e).splitlines()[0]}", file=sys.stderr)
        return torch.empty(shape, dtype=dtype)

    def move(self, to):
        """Puts to(x) into each place of a weight x, all or none. Weights that are in two places are moved once."""
        places = list(self.model.tensors())
        moved = {}
        for holder, key in places:
            x = holder[key]
            if id(x) not in moved:
                moved[id(x)] = to(x)
        for holder, key in places:
            holder[key] = moved[id(holder[key])]

    def wake(self):
        """The same blocks as before, empty but for what was kept. If it fails the model sleeps as before, and nothing is kept."""
        if self.level == 2:
            self.open(self.load)
        elif self.level == 1:
            try:
                self.room()
                self.move(lambda x: x.to(self.model.device, non_blocking=True))
                for a in self.adapters.values():
                    a.place(self.model.device)
                if self.kept:
                    self.kept.put_back(self.cache)
                if self.model.device.type == "cuda":
                    torch.cuda.synchronize()  # who asked is told when it is true
            except Exception:
                self.cache, self.graphs, self.kept = None, {}, None
                raise
        self.level, self.kept = 0, None
