"""Choosing tokens on the device, in the order of operations and with the uniform numbers of Rouse's Go package engine/sample."""
import torch

_M = (1 << 64) - 1


def _mix(x):
    x = (x + 0x9E3779B97F4A7C15) & _M
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & _M
    x = (x ^ x >> 27) * 0x94D049BB133111EB & _M
    return x ^ x >> 31


def uniform(seed, index, pos):
    """A number in [0, 1) that depends on nothing but its arguments."""
    return (_mix(_mix(_mix(seed & _M) + index & _M) + pos & _M) >> 11) / (1 << 53)


def plain(spec):
    """Whether a sequence is greedy with nothing else: then the largest logit is the choice."""
    return spec.get("temperature", 0) < 1e-5 and not needs_tokens(spec) and not spec.get("logit_bias")


def needs_tokens(spec):
    """Whether choosing needs to know the tokens so far, not only how many they are."""
    return bool(spec.get("presence_penalty") or spec.get("frequency_penalty") or spec.get("repetition_penalty", 0) not in (0, 1))


def adjust(row, spec, prompt, made, count, mask):
    """A copy of one row of logits with mask, bias and penalties applied. count is the number of tokens made."""
    row = row.clone()
    if mask is not None:
        bits = torch.tensor([w - (1 << 64) if w >> 63 else w for w in mask], dtype=torch.int64, device=row.device)
        at = torch.arange(len(row), device=row.device)
        word = bits[(at >> 6).clamp(max=len(mask) - 1)]
        row[(word >> (at & 63) & 1 == 0) | (at >= 64 * len(mask))] = float("-inf")
    if count < spec.get("min_tokens", 0):
        ends = [t for t in spec.get("ends") or [] if t < len(row)]
        row[ends] = float("-inf")
    for t, b in (spec.get("logit_bias") or {}).items():
        row[int(t)] += b
    if not needs_tokens(spec):
        return row
    r = spec.get("repetition_penalty", 0)
    times = torch.bincount(torch.tensor(made, dtype=torch.int64, device=row.device), minlength=len(row))[:len(row)].float()
    if r not in (0, 1):
        seen = times > 0
        seen[torch.tensor(prompt, dtype=torch.int64, device=row.device)] = True
        row = torch.where(seen, torch.where(row > 0, row / r, row * r), row)
    return row - times * spec.get("frequency_penalty", 0) - (times > 0).float() * spec.get("presence_penalty", 0)


def draw(row, spec, x):
    """The token at x in [0, 1): candidates lie side by side in the order of their ids, as wide as their probability."""
    t = spec.get("temperature", 0)
    if t < 1e-5:
        return row.argmax()
    w = torch.exp((row.double() - row.max().double()) / t)
    w[w < spec.get("min_p", 0)] = 0
    k, p = spec.get("top_k", 0), spec.get("top_p", 0)
    if 0 < k < len(w) or 0 < p < 1:
        order = torch.sort(w, descending=True, stable=True).indices
        if 0 < k < len(w):
            w[order[k:]] = 0
        if 0 < p < 1:
            total = torch.cumsum(w[order], 0)
            w[order[1:][total[:-1] >= p * total[-1]]] = 0
    sums = torch.cumsum(w, 0)
    return torch.searchsorted(sums, x * sums[-1], right=True).clamp(max=len(w) - 1)


def score(row, token, top):
    """The choice of a token with its log probability and the most probable alternatives, from raw logits."""
    lp = row.log_softmax(-1)
    out = {"Token": int(token), "Logprob": float(lp[int(token)])}
    if top:
        v, t = lp.topk(top)
        out["Top"] = [{"Token": a, "Logprob": b} for a, b in zip(t.tolist(), v.tolist())]
    return out
