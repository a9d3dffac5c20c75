"""The forward pass in torch over a paged key-value cache: llama, mistral, qwen2, qwen3 and qwen3moe.

The cache is one tensor a layer, [2, blocks, BLOCK, kv heads, head]. A batch comes as flat tensors: the ids and positions of
all new tokens, the slot (block x BLOCK + offset) that each one's key goes to, and per sequence its block table, its length
and how many of the tokens are its own. Decode batches, one token a sequence, take the quick way: a Triton kernel
where there is a GPU, and CUDA graphs.
"""
import math

import torch
import torch.nn.functional as F

from adapters import change
from gguf import File

BLOCK = 16


class Shape:
    """What Rouse calls a model's Config; `json` is what goes over the wire."""

    def __init__(self, **kw):
        self.arch, self.name = kw["arch"], kw.get("name", "")
        self.layers, self.dim, self.heads, self.kv = kw["layers"], kw["dim"], kw["heads"], kw["kv"]
        self.head, self.ffn, self.vocab, self.context = kw["head"], kw["ffn"], kw["vocab"], kw["context"]
        self.eps, self.rope_base, self.rope_dim = kw.get("eps", 1e-6), kw.get("rope_base", 1e4), kw.get("rope_dim", kw["head"])
        self.rope_scale = kw.get("rope_scale", 1.0)
        self.neox = self.arch != "llama"
        self.bias, self.qk_norm = self.arch == "qwen2", self.arch.startswith("qwen3")
        self.experts, self.used, self.expert_ffn = kw.get("experts", 0), kw.get("used", 0), kw.get("expert_ffn", 0)

    def json(self):
        return {
            "Arch": self.arch, "Name": self.name, "Layers": self.layers, "Dim": self.dim, "Heads": self.heads, "KVHeads": self.kv,
            "HeadDim": self.head, "FFN": self.ffn, "Vocab": self.vocab, "Context": self.context, "RMSEps": self.eps,
            "RopeBase": self.rope_base, "RopeDim": self.rope_dim, "RopeScale": self.rope_scale, "RopeNeoX": self.neox, "Ropes": 1,
            "Experts": self.experts, "ExpertsUsed": self.used, "ExpertFFN": self.expert_ffn, "ExpertNorm": self.experts > 0,
            "EmbedScale": 1, "AttnScale": self.head ** -0.5,
        }


# Shapes for models of random weights, "random:NAME": for timing, where values do not matter.
RANDOM = {
    "qwen3-30b-a3b": dict(arch="qwen3moe", layers=48, dim=2048, heads=32, kv=4, head=128, ffn=6144, vocab=151936, context=32768, rope_base=1e6,
                          experts=128, used=8, expert_ffn=768),
    "qwen3-8b": dict(arch="qwen3", layers=36, dim=4096, heads=32, kv=8, head=128, ffn=12288, vocab=151936, context=32768, rope_base=1e6),
    "qwen3-0.6b": dict(arch="qwen3", layers=28, dim=1024, heads=16, kv=8, head=128, ffn=3072, vocab=151936, context=32768, rope_base=1e6),
    "tiny": dict(arch="qwen3", layers=2, dim=64, heads=4, kv=2, head=16, ffn=128, vocab=512, context=512),
    "tiny-moe": dict(arch="qwen3moe", layers=2, dim=64, heads=4, kv=2, head=16, ffn=128, vocab=512, context=512, experts=8, used=2, expert_ffn=32),
}


def sized(weights, width):
    """A dense shape whose weights, of width bytes each, take about so many bytes: "random:8e9"."""
    for dim, head, kv, ffn, vocab in ((4096, 128, 8, 12288, 32000), (1024, 64, 4, 3072, 8192), (192, 32, 2, 576, 1024)):
        each = dim * (2 * dim + 2 * kv * head) + 3 * ffn * dim
        layers = round((weights / width - vocab * dim) / each)
        if layers > 1:
            break
    return dict(arch="qwen3", layers=max(layers, 1), dim=dim, heads=dim // head, kv=kv, head=head, ffn=ffn, vocab=vocab, context=4096, rope_base=1e6)


def random_shape(name, dtype):
    if name in RANDOM:
        return Shape(name=name, **RANDOM[name])
    try:
        weights = float(name)
    except ValueError:
        weights = 0
    if not 1e6 <= weights <= 1e13:
        raise ValueError(f"no shape {name!r}; there are {', '.join(RANDOM)}, and numbers of bytes such as 8e9")
    return Shape(name=name, **sized(weights, torch.finfo(dtype).bits // 8))


def read_shape(f):
    arch = f.get("general.architecture")
    if arch not in ("llama", "qwen2", "qwen3", "qwen3moe"):
        raise ValueError(f"architecture {arch!r} is not supported by the CUDA worker; supported are llama, qwen2, qwen3 and qwen3moe")
    g = lambda key, default=None: f.get(f"{arch}.{key}", default)
    kind = g("rope.scaling.type", "linear")
    if kind not in ("none", "linear") or "rope_freqs.weight" in f.tensors or g("attention.sliding_window"):
        raise ValueError("scaled rotations other than linear, and sliding windows, are not supported by the CUDA worker: use the CPU's")
    heads, dim = g("attention.head_count"), g("embedding_length")
    head = g("attention.key_length", dim // heads)
    return Shape(
        arch=arch, name=f.get("general.name", ""), layers=g("block_count"), dim=dim, heads=heads, kv=g("attention.head_count_kv", heads), head=head,
        ffn=g("feed_forward_length", 0), vocab=f.tensors["token_embd.weight"][0][1], context=g("context_length"),
        eps=g("attention.layer_norm_rms_epsilon"), rope_base=g("rope.freq_base", 1e4), rope_dim=g("rope.dimension_count", head),
        rope_scale=g("rope.scaling.factor", 1.0) or 1.0 if kind == "linear" else 1.0,
        experts=g("expert_count", 0), used=g("expert_used_count", 0), expert_ffn=g("expert_feed_forward_length", 0))


def read_tensor(f, name):
    """A tensor of a file as torch has it: halves stay halves, and get their type on the device. None: there is none of that name."""
    if name not in f.tensors:
        return None
    x = torch.from_numpy(f.tensor(name))
    return x.view(torch.bfloat16) if x.dtype == torch.int16 else x


class Model:
    def __init__(self, shape, device, dtype, context):
        self.shape, self.device, self.dtype = shape, torch.device(device), dtype
        half = shape.rope_dim // 2
        angle = torch.arange(context, dtype=torch.float64)[:, None] / shape.rope_scale
        angle = angle * shape.rope_base ** (-torch.arange(half, dtype=torch.float64)[None] * 2 / shape.rope_dim)
        self.cos, self.sin = angle.cos().float().to(self.device), angle.sin().float().to(self.device)
        self.paged = None  # the quick attention for decode, if it was found right

    @classmethod
    def load(cls, path, device, dtype, context=0):
        if path.startswith("random:"):
            name = path[7:]
            shape = random_shape(name, dtype)
            m = cls(shape, device, dtype, min(context or shape.context, shape.context))
            m._fill(m._random)
            return m
        f = File(path)
        shape = read_shape(f)
        m = cls(shape, device, dtype, min(context or shape.context, shape.context))
        m._fill(lambda name, *dims: read_tensor(f, name))
        return m

    def _random(self, name, *dims):
        if name == "output.weight" or name.endswith(".bias") and not self.shape.bias:
            return None
        if name.endswith("norm.weight"):
            return torch.ones(*dims, device=self.device)
        g = torch.Generator(device=self.device)
        g.manual_seed(sum(ord(c) * 31 ** (i % 12) for i, c in enumerate(name)) % (1 << 31))
        return torch.empty(*dims, device=self.device, dtype=self.dtype).normal_(0, 0.02, generator=g)

    def _fill(self, read):
        s = self.shape

        def take(name, *dims, optional=False, dtype=None):
            x = read(name, *dims)
            if x is None:
                if optional:
                    return None
                raise ValueError(f"tensor {name!r} is missing")
            if tuple(x.shape) != dims:
                raise ValueError(f"tensor {name!r} has dimensions {list(x.shape)}, want {list(dims)}")
            return x.to(self.device, dtype or self.dtype)

        q, kv = s.heads * s.head, s.kv * s.head
        self.embed = take("token_embd.weight", s.vocab, s.dim)
        self.norm = take("output_norm.weight", s.dim, dtype=torch.float32)
        out = take("output.weight", s.vocab, s.dim, optional=True)
        self.out = self.embed if out is None else out
        self.blocks = []
        for i in range(s.layers):
            t = lambda name, *dims, **kw: take(f"blk.{i}.{name}", *dims, **kw)
            b = {
                "attn_norm": t("attn_norm.weight", s.dim, dtype=torch.float32), "ffn_norm": t("ffn_norm.weight", s.dim, dtype=torch.float32),
                "qkv": torch.cat([t("attn_q.weight", q, s.dim), t("attn_k.weight", kv, s.dim), t("attn_v.weight", kv, s.dim)]),
                "o": t("attn_output.weight", s.dim, q), "bias": None, "qn": None, "kn": None,
            }
            if s.bias:
                b["bias"] = torch.cat([t("attn_q.bias", q), t("attn_k.bias", kv), t("attn_v.bias", kv)])
            if s.qk_norm:
                b["qn"], b["kn"] = t("attn_q_norm.weight", s.head, dtype=torch.float32), t("attn_k_norm.weight", s.head, dtype=torch.float32)
            if s.experts:
                b["router"] = t("ffn_gate_inp.weight", s.experts, s.dim)
                b["gates"] = t("ffn_gate_exps.weight", s.experts, s.expert_ffn, s.dim)
                b["ups"] = t("ffn_up_exps.weight", s.experts, s.expert_ffn, s.dim)
                b["downs"] = t("ffn_down_exps.weight", s.experts, s.dim, s.expert_ffn)
            else:
                b["gate_up"] = torch.cat([t("ffn_gate.weight", s.ffn, s.dim), t("ffn_up.weight", s.ffn, s.dim)])
                b["down"] = t("ffn_down.weight", s.dim, s.ffn)
            self.blocks.append(b)

    def tensors(self):
        """Names every weight, so that sleep can move them: (holder, key)."""
        yield from ((self.__dict__, k) for k in ("embed", "norm", "out"))
        for b in self.blocks:
            yield from ((b, k) for k, v in b.items() if v is not None)

    def make_cache(self, blocks):
        s = self.shape
        return [torch.zeros(2, blocks, BLOCK, s.kv, s.head, device=self.device, dtype=self.dtype) for _ in range(s.layers)]

    def forward(self, ids, pos, slots, seqs, cache, loras=()):
        """Hidden states after the last norm, [tokens, dim]. seqs: see attend; loras: see adapters.change."""
        s = self.shape
        x = self.embed[ids].float()
        cos, sin = self.cos[pos][:, None], self.sin[pos][:, None]
        for i, (b, kv) in enumerate(zip(self.blocks, cache)):
            h = self.rms(x, b["attn_norm"]).to(self.dtype)
            qkv = change(F.linear(h, b["qkv"], b["bias"]), h, loras, i, "qkv")
            q, k, v = qkv.split([s.heads * s.head, s.kv * s.head, s.kv * s.head], -1)
            q, k, v = q.view(-1, s.heads, s.head), k.view(-1, s.kv, s.head), v.view(-1, s.kv, s.head)
            if s.qk_norm:
                q, k = self.rms(q.float(), b["qn"]), self.rms(k.float(), b["kn"])
            q, k = self.rotate(q.float(), cos, sin).to(self.dtype), self.rotate(k.float(), cos, sin).to(self.dtype)
            kv[0].view(-1, s.kv, s.head).index_copy_(0, slots, k)
            kv[1].view(-1, s.kv, s.head).index_copy_(0, slots, v.contiguous())
            h = self.attend(q, kv, seqs).reshape(len(ids), -1)
            x = x + change(F.linear(h, b["o"]), h, loras, i, "o").float()
            h = self.rms(x, b["ffn_norm"]).to(self.dtype)
            x = x + (self.mix(h, b) if s.experts else self.feed(h, b["gate_up"], b["down"], loras, i)).float()
        return self.rms(x, self.norm)

    def logits(self, hidden):
        return F.linear(hidden.to(self.dtype), self.out).float()

    def rms(self, x, w):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.shape.eps) * w

    def rotate(self, x, cos, sin):  # [tokens, heads, head]
        d = self.shape.rope_dim
        r, rest = x[..., :d], x[..., d:]
        if self.shape.neox:
            a, b = r[..., :d // 2], r[..., d // 2:]
            y = torch.cat((a * cos - b * sin, a * sin + b * cos), -1)
        else:
            a, b = r[..., 0::2], r[..., 1::2]
            y = torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)
        return torch.cat((y, rest), -1) if rest.shape[-1] else y

    def feed(self, h, gate_up, down, loras=(), layer=0):
        gate, up = change(F.linear(h, gate_up), h, loras, layer, "gate_up").chunk(2, -1)
        h = F.silu(gate) * up
        return change(F.linear(h, down), h, loras, layer, "down")

    def mix(self, h, b):
        """A mixture of experts. Few tokens read the weights of their own experts only; many go through each expert in turn."""
        s = self.shape
        w, chosen = torch.topk(F.linear(h, b["router"]).float().softmax(-1), s.used)
        w = (w / w.sum(-1, keepdim=True)).to(h.dtype)
        n = len(h)
        if n * s.used <= 4 * s.experts:  # no shape depends on the data: a CUDA graph can hold it
            flat = chosen.flatten()
            x = h.repeat_interleave(s.used, 0)[:, :, None]
            y = F.silu(torch.bmm(b["gates"][flat], x)) * torch.bmm(b["ups"][flat], x)
            return (torch.bmm(b["downs"][flat], y)[:, :, 0].view(n, s.used, -1) * w[:, :, None]).sum(1)
        out = torch.zeros_like(h)
        for e in range(s.experts):
            rows, place = (chosen == e).nonzero(as_tuple=True)
            if len(rows):
                y = self.feed(h[rows], torch.cat((b["gates"][e], b["ups"][e])), b["downs"][e])
                out.index_add_(0, rows, y * w[rows, place, None])
        return out

    def attend(self, q, kv, seqs):
        """q [tokens, heads, head]; seqs {tables [n, blocks], lengths [n], counts: tokens of each, None for one each}."""
        if seqs["counts"] is None:
            if self.paged is not None:
                return self.paged(q, kv, seqs["tables"], seqs["lengths"], self.shape.head ** -0.5)
            return self.gathered(q[:, None], kv, seqs["tables"], seqs["lengths"])[:, 0]
        out, at = torch.empty_like(q), 0
        for i, n in enumerate(seqs["counts"]):
            blocks = -(-seqs["host_lengths"][i] // BLOCK)
            out[at:at + n] = self.gathered(q[None, at:at + n], kv, seqs["tables"][i:i + 1, :blocks], seqs["lengths"][i:i + 1])[0]
            at += n
        return out

    def gathered(self, q, kv, tables, lengths):
        """Attention of q [n, m, heads, head], the last m positions of each of n sequences, over keys that are gathered first."""
        s = self.shape
        n, m = q.shape[:2]
        k = kv[0][tables].flatten(1, 2).repeat_interleave(s.heads // s.kv, 2)  # [n, positions, heads, head]
        v = kv[1][tables].flatten(1, 2).repeat_interleave(s.heads // s.kv, 2)
        here = lengths[:, None] - m + torch.arange(m, device=q.device)[None]  # position of each query
        seen = torch.arange(k.shape[1], device=q.device)[None, None] <= here[:, :, None]
        score = torch.einsum("nmhd,nphd->nhmp", q, k).float() * s.head ** -0.5
        score = score.masked_fill(~seen[:, None], float("-inf")).softmax(-1).to(v.dtype)
        return torch.einsum("nhmp,nphd->nmhd", score, v)


def find_paged(model):
    """Sets model.paged to the Triton kernel if it is there and its results agree with the plain way."""
    s = model.shape
    if model.device.type != "cuda":
        return "plain attention: no CUDA device"
    try:
        from paged import attention
        n, blocks = 3, 8
        q = torch.randn(n, s.heads, s.head, device=model.device, dtype=model.dtype)
        kv = torch.randn(2, 3 * blocks, BLOCK, s.kv, s.head, device=model.device, dtype=model.dtype)
        tables = torch.randperm(3 * blocks, device=model.device)[:n * blocks].view(n, blocks)
        lengths = torch.tensor([1, 77, blocks * BLOCK], device=model.device)
        want = model.gathered(q[:, None], kv, tables, lengths)[:, 0].float()
        got = attention(q, kv, tables, lengths, s.head ** -0.5).float()
        worst = (got - want).abs().max().item()
        if not worst < 0.05 * want.abs().max().item() or math.isnan(worst):
            return f"plain attention: the kernel's results differ by {worst}"
    except Exception as e:  # whatever a compiler or a driver throws, the plain way works
        return f"plain attention: {type(e).__name__}: {e}"
    model.paged = attention
    return "paged attention by Triton"
