"""Writes small encoders with random weights as GGUF, and what Hugging Face's transformers make of some texts with them.

    python3 -m venv --system-site-packages /tmp/v && /tmp/v/bin/pip install torch transformers gguf
    /tmp/v/bin/python engine/golden/encoders.py engine/testdata/encoders

BertModel and BertForSequenceClassification are the references. Transformers 4 has no NomicBert: its reference is BertModel whose
positions are zeros, with rotated queries and keys, and a gated feed-forward layer, as in the authors' modeling_hf_nomic_bert.py.
"""
import json
import pathlib
import sys
import tempfile

import gguf
import numpy as np
import torch
from torch.nn import functional
from transformers import BertConfig, BertForSequenceClassification, BertModel, BertTokenizer

LAYERS, DIM, HEADS, FFN, CONTEXT = 2, 32, 4, 64, 320
WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] the a cat dog sat on mat run ##s ##ning what is red blue ? . , is ##n ##t who knows é x ##y".split()
VOCAB = list(dict.fromkeys(WORDS)) + [chr(c) for c in range(ord("b"), ord("n"))]
TEXTS = ["the cat sat on the mat.", "What is the dog?", "x", "runs, running", "Ünknown words", "the cat runs " * 75]
PAIRS = [("what is red?", "the cat is red."), ("what is red?", "a dog sat"), ("who knows", "the cat runs " * 70)]


class Rotated(torch.nn.Module):
    """A BertSelfAttention with rotary positions."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x, attention_mask=None, *_, **__):
        n, d = x.shape[1], DIM // HEADS
        q, k, v = (f(x).view(n, HEADS, d).transpose(0, 1) for f in (self.inner.query, self.inner.key, self.inner.value))
        angle = torch.outer(torch.arange(n).float(), 1000.0 ** (-torch.arange(0, d, 2).float() / d))
        cos, sin = torch.cos(angle).repeat(1, 2), torch.sin(angle).repeat(1, 2)
        turn = lambda y: y * cos + torch.cat([-y[..., d // 2:], y[..., :d // 2]], -1) * sin
        weights = torch.softmax(turn(q) @ turn(k).transpose(-1, -2) / d**0.5, -1)
        return ((weights @ v).transpose(0, 1).reshape(1, n, DIM),)


class Gated(torch.nn.Module):
    """The first half of a gated feed-forward layer."""

    def __init__(self):
        super().__init__()
        self.up, self.gate = torch.nn.Linear(DIM, FFN, bias=False), torch.nn.Linear(DIM, FFN, bias=False)

    def forward(self, x):
        return self.up(x) * functional.silu(self.gate(x))


def make(kind):
    """Returns a model whose weights are those of a file in F16."""
    torch.manual_seed(len(kind))
    config = BertConfig(vocab_size=len(VOCAB), hidden_size=DIM, num_hidden_layers=LAYERS, num_attention_heads=HEADS, intermediate_size=FFN,
                        max_position_embeddings=CONTEXT, num_labels=1, initializer_range=0.3, hidden_act="gelu")
    model = BertForSequenceClassification(config) if kind == "rank" else BertModel(config, add_pooling_layer=False)
    if kind == "nomic-bert":
        model.embeddings.position_embeddings.weight.data.zero_()
        for layer in model.encoder.layer:
            for linear in (layer.attention.self.query, layer.attention.self.key, layer.attention.self.value, layer.attention.output.dense, layer.output.dense):
                linear.bias.data.zero_()
            layer.attention.self, layer.intermediate = Rotated(layer.attention.self), Gated()
    for name, p in model.named_parameters():
        if not (kind == "nomic-bert" and (name.endswith("dense.bias") or "position" in name or ".inner." in name and name.endswith("bias"))):
            p.data = (torch.randn_like(p) * 0.3 + (1 if "LayerNorm.weight" in name else 0)).half().float()
    return model.eval()


def write(path, kind, model):
    arch = kind if kind == "nomic-bert" else "bert"
    w = gguf.GGUFWriter(path, arch)
    w.add_name("random " + kind)
    w.add_block_count(LAYERS), w.add_context_length(CONTEXT), w.add_embedding_length(DIM), w.add_feed_forward_length(FFN), w.add_head_count(HEADS)
    w.add_layer_norm_eps(1e-12), w.add_causal_attention(False)
    w.add_pooling_type({"bert": gguf.PoolingType.CLS, "nomic-bert": gguf.PoolingType.MEAN, "rank": gguf.PoolingType.RANK}[kind])
    if arch == "nomic-bert":
        w.add_rope_freq_base(1000.0)
    w.add_tokenizer_model("bert"), w.add_tokenizer_pre("default"), w.add_token_type_count(2)
    special = [t.startswith("[") for t in VOCAB]
    w.add_token_list([t if s else t[2:] if t.startswith("##") else "\u2581" + t for t, s in zip(VOCAB, special)])
    w.add_token_types([3 if s else 1 for s in special])
    w.add_bos_token_id(2), w.add_sep_token_id(3), w.add_pad_token_id(0), w.add_unk_token_id(1), w.add_mask_token_id(4)
    w.add_eos_token_id(3), w.add_add_bos_token(True), w.add_add_eos_token(True), w.add_add_sep_token(False)
    p = {k.removeprefix("bert."): v.detach().numpy() for k, v in model.named_parameters()}

    def add(name, source):
        x = p[source] if isinstance(source, str) else source
        w.add_tensor(name, x.astype(np.float32 if x.ndim == 1 else np.float16))

    def both(name, source, bias=True):
        add(name + ".weight", source + ".weight")
        if bias:
            add(name + ".bias", source + ".bias")

    add("token_embd.weight", "embeddings.word_embeddings.weight")
    add("token_types.weight", "embeddings.token_type_embeddings.weight")
    both("token_embd_norm", "embeddings.LayerNorm")
    if arch == "bert":
        add("position_embd.weight", "embeddings.position_embeddings.weight")
    for i in range(LAYERS):
        to, at = f"blk.{i}.", f"encoder.layer.{i}."
        if arch == "bert":
            for name, source in (("attn_q", "query"), ("attn_k", "key"), ("attn_v", "value")):
                both(to + name, f"{at}attention.self.{source}")
            both(to + "ffn_up", at + "intermediate.dense")
        else:
            add(to + "attn_qkv.weight", np.concatenate([p[f"{at}attention.self.inner.{x}.weight"] for x in ("query", "key", "value")]))
            add(to + "ffn_up.weight", at + "intermediate.up.weight")
            add(to + "ffn_gate.weight", at + "intermediate.gate.weight")
        both(to + "attn_output", at + "attention.output.dense", arch == "bert")
        both(to + "attn_output_norm", at + "attention.output.LayerNorm")
        both(to + "ffn_down", at + "output.dense", arch == "bert")
        both(to + "layer_output_norm", at + "output.LayerNorm")
    if kind == "rank":
        both("cls", "pooler.dense"), both("cls.output", "classifier")
    w.write_header_to_file(), w.write_kv_data_to_file(), w.write_tensors_to_file(), w.close()


def main(out):
    with tempfile.TemporaryDirectory() as d:
        (pathlib.Path(d) / "vocab.txt").write_text("\n".join(VOCAB))
        tokenizer = BertTokenizer(d + "/vocab.txt")
    answers = {}
    for kind in ("bert", "nomic-bert", "rank"):
        model = make(kind)
        write(out / (kind + ".gguf"), kind, model)
        runs = []
        for text in PAIRS if kind == "rank" else TEXTS:
            t = tokenizer(*text, return_tensors="pt") if kind == "rank" else tokenizer(text, return_tensors="pt")
            with torch.no_grad():
                y = model(**t)
            if kind == "rank":
                runs.append(dict(texts=text, ids=t.input_ids[0].tolist(), score=round(float(y.logits[0, 0]), 6)))
                continue
            h = y.last_hidden_state[0]
            v = h[0] if kind == "bert" else h.mean(0)
            runs.append(dict(texts=[text], ids=t.input_ids[0].tolist(), vector=[round(float(x), 6) for x in v]))
        answers[kind] = runs
    lines = ",\n".join(f'"{k}": [\n' + ",\n".join(json.dumps(r, ensure_ascii=False, separators=(",", ":")) for r in v) + "]" for k, v in answers.items())
    (out / "golden.json").write_text("{" + lines + "}\n")


main(pathlib.Path(sys.argv[1]))
