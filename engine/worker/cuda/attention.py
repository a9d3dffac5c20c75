"""Attention over a paged cache, [2, blocks, BLOCK, kv heads, head] a layer: the plain way, and by the Triton kernel of paged.py where its results agree."""
import math

import torch

BLOCK = 16


def softcap(x, limit):
    return limit * torch.tanh(x / limit) if limit else x


def attend(model, q, kv, seqs, window):
    """q [tokens, heads, head]; seqs {tables [n, blocks], lengths [n], counts: tokens of each, None for one each}; window: positions seen, 0 for all."""
    if not q.shape[1]:
        return q  # another rank has all heads
    if seqs["counts"] is None:
        if model.paged is not None:
            s = model.shape
            return model.paged(q, kv, seqs["tables"], seqs["lengths"], s.attn_scale, window, s.attn_softcap)
        return gathered(model, q[:, None], kv, seqs["tables"], seqs["lengths"], window)[:, 0]
    out, at = torch.empty_like(q), 0
    for i, n in enumerate(seqs["counts"]):
        blocks = -(-seqs["host_lengths"][i] // BLOCK)
        out[at:at + n] = gathered(model, q[None, at:at + n], kv, seqs["tables"][i:i + 1, :blocks], seqs["lengths"][i:i + 1], window)[0]
        at += n
    return out


def gathered(model, q, kv, tables, lengths, window):
    """Attention of q [n, m, heads, head], the last m positions of each of n sequences, over keys that are gathered first."""
    s = model.shape
    n, m, heads = q.shape[:3]
    k = kv[0][tables].flatten(1, 2).repeat_interleave(heads // kv.shape[3], 2)  # [n, positions, heads, head]
    v = kv[1][tables].flatten(1, 2).repeat_interleave(heads // kv.shape[3], 2)
    here = lengths[:, None] - m + torch.arange(m, device=q.device)[None]  # position of each query
    at = torch.arange(k.shape[1], device=q.device)[None, None]
    seen = at <= here[:, :, None]
    if window:
        seen &= at > here[:, :, None] - window
    score = softcap(torch.einsum("nmhd,nphd->nhmp", q, k).float() * s.attn_scale, s.attn_softcap)
    score = score.masked_fill(~seen[:, None], float("-inf")).softmax(-1).to(v.dtype)
    return torch.einsum("nhmp,nphd->nmhd", score, v)


def find_paged(model):
    """Sets model.paged to the Triton kernel if it is there and its results agree with the plain way, for every window that the model has."""
    s, kv_heads = model.shape, model.kv_heads
    if model.device.type != "cuda":
        return "plain attention: no CUDA device"
    if not kv_heads:
        return "no attention: other ranks have all heads"
    try:
        from paged import attention
        n, blocks = 3, 8
        q = torch.randn(n, model.heads, s.head, device=model.device, dtype=model.dtype)
        kv = torch.randn(2, 3 * blocks, BLOCK, kv_heads, s.head, device=model.device, dtype=model.dtype)
        tables = torch.randperm(3 * blocks, device=model.device)[:n * blocks].view(n, blocks)
        lengths = torch.tensor([1, 77, blocks * BLOCK], device=model.device)
        for window in {s.window_of(i) for i in range(s.layers)} | ({40} if s.window else set()):
            want = gathered(model, q[:, None], kv, tables, lengths, window)[:, 0].float()
            got = attention(q, kv, tables, lengths, s.attn_scale, window, s.attn_softcap).float()
            worst = (got - want).abs().max().item()
            if not worst < 0.05 * want.abs().max().item() or math.isnan(worst):
                return f"plain attention: the kernel's results differ by {worst}"
    except Exception as e:  # whatever a compiler or a driver throws, the plain way works
        return f"plain attention: {type(e).__name__}: {e}"
    model.paged = attention
    return "paged attention by Triton"
