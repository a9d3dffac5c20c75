"""Attention of one query a sequence over a paged cache, in Triton: PagedAttention (arXiv:2309.06180) with the online softmax."""
import torch
import triton
import triton.language as tl


@triton.jit
def _kernel(q, k, v, out, tables, lengths, scale, table_stride, heads: tl.constexpr, kv_heads: tl.constexpr, head: tl.constexpr,
            group: tl.constexpr, block: tl.constexpr, window: tl.constexpr, cap: tl.constexpr):
    seq, kv_head = tl.program_id(0), tl.program_id(1)
    length = tl.load(lengths + seq)
    rows, cols, places = tl.arange(0, group), tl.arange(0, head), tl.arange(0, block)
    mine = rows < heads // kv_heads
    at = (seq * heads + kv_head * (heads // kv_heads) + rows[:, None]) * head + cols[None, :]
    query = tl.load(q + at, mask=mine[:, None], other=0.0).to(tl.float32) * scale
    top = tl.full([group], float("-inf"), tl.float32)
    total = tl.zeros([group], tl.float32)
    acc = tl.zeros([group, head], tl.float32)
    begin = 0
    if window > 0:
        begin = tl.maximum(length - window, 0)
    for i in range(begin // block, tl.cdiv(length, block)):
        number = tl.load(tables + seq * table_stride + i)
        place = ((number * block + places[:, None]) * kv_heads + kv_head) * head + cols[None, :]
        there = (i * block + places < length) & (i * block + places >= begin)
        key = tl.load(k + place, mask=there[:, None], other=0.0).to(tl.float32)
        value = tl.load(v + place, mask=there[:, None], other=0.0).to(tl.float32)
        score = tl.sum(query[:, None, :] * key[None, :, :], 2)
        if cap > 0:
            score = cap * (2 * tl.sigmoid(2 * score / cap) - 1)  # tanh
        score = tl.where(there[None, :], score, float("-inf"))
        new = tl.maximum(top, tl.max(score, 1))
        weight = tl.exp(score - new[:, None])
        old = tl.exp(top - new)
        acc = acc * old[:, None] + tl.sum(weight[:, :, None] * value[None, :, :], 1)
        total = total * old + tl.sum(weight, 1)
        top = new
    tl.store(out + at, (acc / total[:, None]).to(out.dtype.element_ty), mask=mine[:, None])


def attention(q, kv, tables, lengths, scale, window=0, cap=0.0):
    """q [n, heads, head]; kv [2, blocks, block, kv heads, head]; tables [n, m] int64; lengths [n] int64 -> [n, heads, head]. window: how many
    positions are seen, 0 for all; cap: the soft cap of the scaled products, 0 for none."""
    n, heads, head = q.shape
    block, kv_heads = kv.shape[2], kv.shape[3]
    out = torch.empty_like(q)
    group = max(triton.next_power_of_2(heads // kv_heads), 1)
    _kernel[(n, kv_heads)](q.contiguous(), kv[0], kv[1], out, tables.contiguous(), lengths, scale, tables.shape[1], heads, kv_heads, head, group, block, window, cap, num_warps=4)
    return out
