"""The shapes of models, as the Go package engine/model reads them: llama (mistral, mixtral), qwen2, qwen3, qwen3moe, gemma, gemma2, gemma3 and
phi3; and shapes for random weights. A layer's window and rotation are what differs between layers."""
import math

import torch

ARCHITECTURES = ("gemma", "gemma2", "gemma3", "llama", "phi3", "qwen2", "qwen3", "qwen3moe")


class Shape:
    """What Rouse calls a model's Config; `json` is what goes over the wire."""

    def __init__(self, **kw):
        self.arch, self.name = kw["arch"], kw.get("name", "")
        self.layers, self.dim, self.heads, self.kv = kw["layers"], kw["dim"], kw["heads"], kw["kv"]
        self.head, self.ffn, self.vocab, self.context = kw["head"], kw["ffn"], kw["vocab"], kw["context"]
        self.eps, self.rope_base, self.rope_dim = kw.get("eps", 1e-6), kw.get("rope_base", 1e4), kw.get("rope_dim", kw["head"])
        self.rope_scale, self.rope_mag, self.rope_local = kw.get("rope_scale", 1.0), kw.get("rope_mag", 1.0), kw.get("rope_local", 0.0)
        self.yarn, self.rope_train = kw.get("yarn"), kw.get("rope_train") or kw["context"]  # yarn: (fast, slow)
        self.factors = kw.get("factors", (None, None))  # for short and for long contexts
        self.window, self.global_every = kw.get("window", 0), kw.get("global_every", 0)
        self.experts, self.used, self.expert_ffn = kw.get("experts", 0), kw.get("used", 0), kw.get("expert_ffn", 0)
        self.attn_softcap, self.logit_softcap = kw.get("attn_softcap", 0.0), kw.get("logit_softcap", 0.0)
        self.attn_scale = kw.get("attn_scale") or self.head ** -0.5
        self.gelu = self.arch.startswith("gemma")
        self.embed_scale = math.sqrt(self.dim) if self.gelu else 1.0
        self.neox, self.fused = self.arch != "llama", self.arch == "phi3"
        self.bias, self.qk_norm, self.post_norm = self.arch == "qwen2", self.arch in ("qwen3", "qwen3moe", "gemma3"), self.arch in ("gemma2", "gemma3")

    def window_of(self, layer):
        """How many positions a layer sees; 0: all."""
        return self.window if not self.global_every or (layer + 1) % self.global_every else 0

    def rope_of(self, layer):
        """Which of the rotations a layer has: 1 is the local one of layers with a window."""
        return 1 if self.rope_local and self.window_of(layer) else 0

    def json(self):
        return {
            "Arch": self.arch, "Name": self.name, "Layers": self.layers, "Dim": self.dim, "Heads": self.heads, "KVHeads": self.kv,
            "HeadDim": self.head, "FFN": self.ffn, "Vocab": self.vocab, "Context": self.context, "RMSEps": self.eps,
            "Window": self.window, "GlobalEvery": self.global_every,
            "RopeBase": self.rope_base, "RopeDim": self.rope_dim, "RopeScale": self.rope_scale, "RopeNeoX": self.neox, "Ropes": 2 if self.rope_local else 1,
            "RopeYaRN": self.yarn is not None, "RopeFast": self.yarn[0] if self.yarn else 0, "RopeSlow": self.yarn[1] if self.yarn else 0,
            "RopeTrain": self.rope_train, "RopeMag": self.rope_mag, "RopeLocal": self.rope_local,
            "Experts": self.experts, "ExpertsUsed": self.used, "ExpertFFN": self.expert_ffn, "ExpertNorm": self.experts > 0,
            "GELU": self.gelu, "EmbedScale": self.embed_scale, "AttnScale": self.attn_scale, "AttnSoftcap": self.attn_softcap, "LogitSoftcap": self.logit_softcap,
        }

    def angles(self, context):
        """The cosines and sines of each kind of rotation, [context, rope_dim / 2], with its magnitude."""
        factors = self.factors[1 if context > self.rope_train else 0]
        mag = self.rope_mag * (1 + 0.1 * math.log(self.rope_scale) if self.yarn and self.rope_scale > 1 else 1)  # YaRN, equation 22
        kinds = [(self.frequencies(self.rope_base, self.rope_scale, factors, self.yarn), mag)]
        if self.rope_local:
            kinds.append((self.frequencies(self.rope_local, 1.0, None, None), 1.0))
        for f, m in kinds:
            angle = torch.arange(context, dtype=torch.float64)[:, None] * f[None]
            yield (angle.cos() * m).float(), (angle.sin() * m).float()

    def frequencies(self, base, scale, factors, yarn):
        d = self.rope_dim
        x = base ** (-2 * torch.arange(d // 2, dtype=torch.float64) / d)
        if factors is not None:
            x = x / factors.double()
        if not yarn:
            return x / scale
        pair = lambda turns: d * math.log(self.rope_train / (turns * 2 * math.pi)) / (2 * math.log(base))
        low, high = max(0, math.floor(pair(yarn[0]))), min(d - 1, math.ceil(pair(yarn[1])))
        keep = 1 - ((torch.arange(d // 2, dtype=torch.float64) - low) / max(0.001, high - low)).clamp(0, 1)
        return x / scale * (1 - keep) + x * keep


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
    """The shape of a GGUF file. What changes the computation and is not known here is refused; the engine has read the file too."""
    arch = f.get("general.architecture")
    if arch not in ARCHITECTURES:
        raise ValueError(f"architecture {arch!r} is not supported by the CUDA worker; supported are {', '.join(ARCHITECTURES)}")

    def g(key, default=None):
        v = f.get(f"{arch}.{key}", default)
        if not isinstance(v, list) or key.endswith("pattern"):
            return v
        if len(set(v)) != 1:  # one number for each layer
            raise ValueError(f"{arch}.{key} differs between layers: such models are not supported")
        return v[0]

    heads, dim, context = g("attention.head_count"), g("embedding_length"), g("context_length")
    head = g("attention.key_length", dim // heads)
    kw = dict(
        arch=arch, name=f.get("general.name", ""), layers=g("block_count"), dim=dim, heads=heads, kv=g("attention.head_count_kv", heads), head=head,
        ffn=g("feed_forward_length", 0), vocab=f.tensors["token_embd.weight"][0][1], context=context, eps=g("attention.layer_norm_rms_epsilon"))
    return Shape(**kw, **_rope(f, g, context, head), **_experts(arch, g, kw["ffn"]), **_family(arch, g, kw))


def _rope(f, g, context, head):
    kind = g("rope.scaling.type", "linear")
    if kind not in ("none", "linear", "yarn", "longrope"):
        raise ValueError(f"rotations scaled by {kind!r} are not supported by the CUDA worker")
    out = dict(rope_base=g("rope.freq_base", 1e4), rope_dim=g("rope.dimension_count", head), rope_mag=g("rope.scaling.attn_factor", 1.0),
               rope_train=g("rope.scaling.original_context_length", 0) or context, rope_scale=1.0)
    if kind != "none":
        out["rope_scale"] = g("rope.scaling.factor", g("rope.scale_linear", 1.0)) or 1.0
    if kind == "yarn":
        out["yarn"] = (g("rope.scaling.yarn_beta_fast", g("rope.scaling.beta_fast", 32.0)), g("rope.scaling.yarn_beta_slow", g("rope.scaling.beta_slow", 1.0)))
    some = lambda name: torch.from_numpy(f.tensor(name)) if name in f.tensors else None
    both = some("rope_freqs.weight")
    short, long = some("rope_factors_short.weight"), some("rope_factors_long.weight")
    out["factors"] = (both, both) if both is not None else (short, long)
    return out


def _experts(arch, g, ffn):
    n = g("expert_count", 0)
    if not n:
        return dict()
    used = g("expert_used_count")
    return dict(experts=n, used=used, expert_ffn=g("expert_feed_forward_length", 0) or (max(ffn // used, 1) if arch == "qwen3moe" else ffn))


def _family(arch, g, kw):
    """Windows, soft caps and scales."""
    window = lambda default: w if (w := g("attention.sliding_window", default)) < kw["context"] else 0
    # The largest model of Gemma 2 and of 3 scales by the width over the heads; the number of its layers tells it.
    largest = lambda layers: (kw["dim"] // kw["heads"]) ** -0.5 if kw["layers"] == layers else 0
    if arch in ("llama", "phi3"):
        return dict(window=window(0))
    if arch == "gemma2":
        return dict(window=window(4096), global_every=2, attn_softcap=g("attn_logit_softcapping", 50.0), logit_softcap=g("final_logit_softcapping", 30.0),
                    attn_scale=largest(46))
    if arch == "gemma3":
        out = dict(window=window(0), logit_softcap=g("final_logit_softcapping", 0.0), attn_scale=largest(62))
        if out["window"]:
            every = g("attention.sliding_window_pattern", 6)
            if isinstance(every, list):
                every = every.index(False) + 1 if False in every else 0
            out |= dict(global_every=every, rope_local=g("rope.local.freq_base", g("rope.freq_base_swa", 1e4)))
        return out
    if g("attention.sliding_window", 0):
        raise ValueError(f"sliding windows of {arch} are not supported")
    return dict()
