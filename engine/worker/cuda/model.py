"""The forward pass in torch over a paged key-value cache, of all shapes of shapes.py, alone or as one of several ranks.

The cache is one tensor a layer, [2, blocks, BLOCK, kv heads, head]. A batch comes as flat tensors: the ids and positions of
all new tokens, the slot (block x BLOCK + offset) that each one's key goes to, and per sequence its block table, its length
and how many of the tokens are its own. Decode batches, one token a sequence, take the quick way: a Triton kernel
where there is a GPU, and CUDA graphs.

A rank has the key-value heads of its part and their query heads, its rows of the feed-forward layer and of the logits, and all of the
embedding. After attention and after the feed-forward layer the ranks' sums are added, and the logits' parts put together.
"""
import torch
import torch.nn.functional as F

from adapters import change
from attention import BLOCK, attend, softcap
from gguf import File
from ranks import Ranks
from shapes import random_shape, read_shape


def read_tensor(f, name):
    """A tensor of a file as torch has it: halves stay halves, and get their type on the device. None: there is none of that name."""
    if name not in f.tensors:
        return None
    x = torch.from_numpy(f.tensor(name))
    return x.view(torch.bfloat16) if x.dtype == torch.int16 else x


class Model:
    def __init__(self, shape, device, dtype, context, ranks):
        self.shape, self.device, self.dtype, self.ranks = shape, torch.device(device), dtype, ranks
        self.ropes = [(c.to(self.device), s.to(self.device)) for c, s in shape.angles(context)]
        self.paged = None  # the quick attention for decode, if it was found right
        group, (lo, hi) = shape.heads // shape.kv, ranks.part(shape.kv)
        self.kv_heads, self.heads = hi - lo, (hi - lo) * group
        # Rows of this rank: of queries, of keys and of values, of the feed-forward layer, and of the logits.
        self.q_rows, self.kv_rows = slice(lo * group * shape.head, hi * group * shape.head), slice(lo * shape.head, hi * shape.head)
        self.ffn_rows, self.vocab_rows = slice(*ranks.part(shape.expert_ffn if shape.experts else shape.ffn)), slice(*ranks.part(shape.vocab))

    @classmethod
    def load(cls, path, device, dtype, context=0, ranks=None):
        ranks = ranks or Ranks()
        if path.startswith("random:"):
            shape = random_shape(path[7:], dtype)
            m = cls(shape, device, dtype, min(context or shape.context, shape.context), ranks)
            m._fill(m._random)
            return m
        f = File(path)
        shape = read_shape(f)
        m = cls(shape, device, dtype, min(context or shape.context, shape.context), ranks)
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

        def take(name, *dims, optional=False, dtype=None, rows=None):
            x = read(name, *dims)
            if x is None:
                if optional:
                    return None
                raise ValueError(f"tensor {name!r} is missing")
            if tuple(x.shape) != dims:
                raise ValueError(f"tensor {name!r} has dimensions {list(x.shape)}, want {list(dims)}")
            if rows is not None and self.ranks.of > 1:
                x = torch.cat([x[r] for r in rows]) if isinstance(rows, list) else x[rows].contiguous()
            return x.to(self.device, dtype or self.dtype)

        self.embed = take("token_embd.weight", s.vocab, s.dim)
        self.norm = take("output_norm.weight", s.dim, dtype=torch.float32)
        out = take("output.weight", s.vocab, s.dim, optional=True, rows=self.vocab_rows)
        self.out = out if out is not None else self.embed if self.ranks.of == 1 else None  # None: rows of the embedding
        self.blocks = []
        for i in range(s.layers):
            t = lambda name, *dims, **kw: take(f"blk.{i}.{name}", *dims, **kw)
            norm = lambda name, n: t(name, n, dtype=torch.float32)
            b = {"attn_norm": norm("attn_norm.weight", s.dim), "ffn_norm": norm("ffn_norm.weight", s.dim)}
            self._fill_attention(b, t, norm)
            self._fill_feed(b, t)
            if s.post_norm:
                b["attn_post"], b["ffn_post"] = norm("post_attention_norm.weight", s.dim), norm("post_ffw_norm.weight", s.dim)
            self.blocks.append(b)

    def _fill_attention(self, b, t, norm):
        s, mine, own = self.shape, self.q_rows, self.kv_rows
        q, kv = s.heads * s.head, s.kv * s.head
        if s.fused:
            shift = lambda r, by: slice(r.start + by, r.stop + by)
            b["qkv"] = t("attn_qkv.weight", q + 2 * kv, s.dim, rows=[mine, shift(own, q), shift(own, q + kv)])
        else:
            b["qkv"] = torch.cat([t("attn_q.weight", q, s.dim, rows=mine), t("attn_k.weight", kv, s.dim, rows=own), t("attn_v.weight", kv, s.dim, rows=own)])
        b["o"] = self._columns(t("attn_output.weight", s.dim, q), mine)
        b["o_bias"] = t("attn_output.bias", s.dim, optional=True)
        b["bias"] = None
        if not s.fused:
            biases = [t(f"attn_{x}.bias", n, optional=not s.bias, rows=r) for x, n, r in (("q", q, mine), ("k", kv, own), ("v", kv, own))]
            if any(x is not None for x in biases):
                widths = (self.heads * s.head, self.kv_heads * s.head, self.kv_heads * s.head)
                b["bias"] = torch.cat([torch.zeros(n, device=self.device, dtype=self.dtype) if x is None else x for x, n in zip(biases, widths)])
        b["qn"], b["kn"] = (norm("attn_q_norm.weight", s.head), norm("attn_k_norm.weight", s.head)) if s.qk_norm else (None, None)

    def _fill_feed(self, b, t):
        s, mine = self.shape, self.ffn_rows
        if s.experts:
            b["router"] = t("ffn_gate_inp.weight", s.experts, s.dim)
            for key, name in (("gates", "ffn_gate_exps.weight"), ("ups", "ffn_up_exps.weight")):
                b[key] = t(name, s.experts, s.expert_ffn, s.dim)[:, mine].contiguous()
            b["downs"] = self._columns(t("ffn_down_exps.weight", s.experts, s.dim, s.expert_ffn), mine)
            return
        if s.fused:
            b["gate_up"] = t("ffn_up.weight", 2 * s.ffn, s.dim, rows=[mine, slice(mine.start + s.ffn, mine.stop + s.ffn)])
        else:
            b["gate_up"] = torch.cat([t("ffn_gate.weight", s.ffn, s.dim, rows=mine), t("ffn_up.weight", s.ffn, s.dim, rows=mine)])
        b["down"] = self._columns(t("ffn_down.weight", s.dim, s.ffn), mine)

    def _columns(self, x, mine):
        return x[..., mine].contiguous() if self.ranks.of > 1 else x

    def tensors(self):
        """Names every weight, so that sleep can move them: (holder, key)."""
        yield from ((self.__dict__, k) for k in ("embed", "norm", "out") if self.__dict__[k] is not None)
        for b in self.blocks:
            yield from ((b, k) for k, v in b.items() if v is not None)

    def make_cache(self, blocks):
        s = self.shape
        return [torch.zeros(2, blocks, BLOCK, self.kv_heads, s.head, device=self.device, dtype=self.dtype) for _ in range(s.layers)]

    def forward(self, ids, pos, slots, seqs, cache, loras=()):
        """Hidden states after the last norm, [tokens, dim]. seqs: see attention.attend; loras: see adapters.change."""
        s, n = self.shape, len(ids)
        x = self.embed[ids].float() * s.embed_scale
        turns = [(c[pos][:, None], d[pos][:, None]) for c, d in self.ropes]
        kv_width = self.kv_heads * s.head
        for i, (b, kv) in enumerate(zip(self.blocks, cache)):
            cos, sin = turns[s.rope_of(i)]
            h = self.rms(x, b["attn_norm"]).to(self.dtype)
            qkv = change(F.linear(h, b["qkv"], b["bias"]), h, loras, i, "qkv")
            q, k, v = qkv.split([self.heads * s.head, kv_width, kv_width], -1)
            q, k, v = q.view(n, self.heads, s.head), k.view(n, self.kv_heads, s.head), v.view(n, self.kv_heads, s.head)
            if s.qk_norm:
                q, k = self.rms(q.float(), b["qn"]), self.rms(k.float(), b["kn"])
            q, k = self.rotate(q.float(), cos, sin).to(self.dtype), self.rotate(k.float(), cos, sin).to(self.dtype)
            for place, new in zip(kv, (k, v.contiguous())):
                if self.kv_heads:
                    place.view(-1, self.kv_heads, s.head).index_copy_(0, slots, new)
            h = attend(self, q, kv, seqs, s.window_of(i)).reshape(n, self.heads * s.head)
            x = x + self.after(change(F.linear(h, b["o"]), h, loras, i, "o"), b["o_bias"], b.get("attn_post"))
            h = self.rms(x, b["ffn_norm"]).to(self.dtype)
            y = self.mix(h, b) if s.experts else self.feed(h, b["gate_up"], b["down"], loras, i)
            x = x + self.after(y, None, b.get("ffn_post"))
        return self.rms(x, self.norm)

    def after(self, y, bias, norm):
        """What a half of a layer adds to the stream: the sum of all ranks' results, with its bias, normed in some families."""
        y = self.ranks.sum(y.float())
        if bias is not None:
            y = y + bias
        return y if norm is None else self.rms(y, norm)

    def logits(self, hidden):
        out = self.out if self.out is not None else self.embed[self.vocab_rows]
        return self.ranks.gather(softcap(F.linear(hidden.to(self.dtype), out).float(), self.shape.logit_softcap), self.shape.vocab)

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

    def gate(self, x):
        return F.gelu(x, approximate="tanh") if self.shape.gelu else F.silu(x)

    def feed(self, h, gate_up, down, loras=(), layer=0):
        gate, up = change(F.linear(h, gate_up), h, loras, layer, "gate_up").chunk(2, -1)
        h = self.gate(gate) * up
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
            y = self.gate(torch.bmm(b["gates"][flat], x)) * torch.bmm(b["ups"][flat], x)
            return (torch.bmm(b["downs"][flat], y)[:, :, 0].view(n, s.used, -1) * w[:, :, None]).sum(1)
        out = torch.zeros_like(h)
        for e in range(s.experts):
            rows, place = (chosen == e).nonzero(as_tuple=True)
            if len(rows):
                y = self.feed(h[rows], torch.cat((b["gates"][e], b["ups"][e])), b["downs"][e])
                out.index_add_(0, rows, y * w[rows, place, None])
        return out
