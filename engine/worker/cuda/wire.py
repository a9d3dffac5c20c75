"""The frames between Rouse's engine and its workers, as engine/worker/wire.go describes them. Needs nothing but Python."""
import json
import struct

HELLO, BATCH, OUTPUT, OP, REPLY, HEARTBEAT = 1, 2, 3, 4, 5, 6
PROTOCOL = 1
MAX_FRAME = 1 << 28


class Refused(ValueError):
    """A frame that breaks the rules."""


def recv_frame(sock):
    """Reads one frame: (kind, payload). None at the end of the stream."""
    head = _recv(sock, 4)
    if head is None:
        return None
    (n,) = struct.unpack("<I", head)
    if not 1 <= n <= MAX_FRAME:
        raise Refused(f"a frame of {n} bytes")
    body = _recv(sock, n)
    if body is None:
        raise Refused("the stream ends in a frame")
    return body[0], body[1:]


def _recv(sock, n):
    parts, left = [], n
    while left:
        data = sock.recv(min(left, 1 << 20))
        if not data:
            if left == n:
                return None
            raise Refused("the stream ends in a frame")
        parts.append(data)
        left -= len(data)
    return b"".join(parts)


def frame(kind, payload=b""):
    return struct.pack("<IB", len(payload) + 1, kind) + payload


def json_frame(kind, value):
    return frame(kind, json.dumps(value, separators=(",", ":")).encode())


class Reader:
    """Takes numbers off a payload."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def byte(self):
        if self.at >= len(self.data):
            raise Refused("the frame is too short")
        self.at += 1
        return self.data[self.at - 1]

    def uvarint(self):
        value = shift = 0
        while True:
            b = self.byte()
            value |= (b & 0x7F) << shift
            if b < 0x80:
                if value >= 1 << 64:
                    raise Refused("a number of more than 64 bits")
                return value
            shift += 7
            if shift > 63:
                raise Refused("a number of more than 64 bits")

    def svarint(self):
        v = self.uvarint()
        return v >> 1 if not v & 1 else -(v >> 1) - 1

    def count(self, least=1):
        """The number of things that follow, of at least so many bytes each."""
        n = self.uvarint()
        if n * least > len(self.data) - self.at:
            raise Refused(f"{n} things in {len(self.data) - self.at} bytes")
        return n

    def take(self, n):
        if n > len(self.data) - self.at:
            raise Refused("the frame is too short")
        self.at += n
        return self.data[self.at - n:self.at]

    def text(self):
        return self.take(self.count())

    def tokens(self):
        out = [self.uvarint() for _ in range(self.count())]
        if any(t >= 1 << 31 for t in out):
            raise Refused("a token out of range")
        return out

    def ids(self):
        last = 0
        for _ in range(self.count()):
            last = (last + self.svarint()) % (1 << 64)
            yield last

    def end(self):
        if self.at != len(self.data):
            raise Refused(f"{len(self.data) - self.at} bytes too many")


BEGIN, SAMPLE, SCORE, POOL, MASK, DRAFT, MANY, BLOCKS = (1 << i for i in range(8))


def decode_batch(data):
    """A batch as the golden files show it: absent keys are empty or false."""
    r = Reader(data)
    batch = {"step": r.uvarint()}
    ends = list(r.ids())
    copies = [{"from": r.uvarint(), "to": r.uvarint()} for _ in range(r.count(2))]
    items, last = [], 0
    for _ in range(r.count(3)):
        last = (last + r.svarint()) % (1 << 64)
        items.append(_item(r, last))
    r.end()
    for key, value in (("ends", ends), ("copies", copies), ("items", items)):
        if value:
            batch[key] = value
    return batch


def _item(r, id):
    flags = r.byte()
    it = {"id": id, "pos": r.uvarint(), "count": 1}
    if flags & MANY:
        it["count"] = r.uvarint()
        if it["count"] < 2:
            raise Refused(f"{it['count']} tokens to compute")
    if flags & BLOCKS:
        blocks, last = [], 0
        for _ in range(r.count()):
            last += r.svarint()
            if not 0 <= last < 1 << 31:
                raise Refused(f"a block's number is {last}")
            blocks.append(last)
        it["blocks"] = blocks
    for flag, key in ((SAMPLE, "sample"), (SCORE, "score"), (POOL, "pool"), (BEGIN, "begin")):
        if flags & flag:
            it[key] = True
    if flags & BEGIN:
        prompt = r.uvarint()
        tokens = r.tokens()
        if prompt > len(tokens):
            raise Refused(f"{prompt} tokens of a prompt, and {len(tokens)} tokens")
        spec = r.text()
        it.update({k: v for k, v in (("prompt", prompt), ("tokens", tokens)) if v})
        if spec:
            it["spec"] = json.loads(spec)
    if flags & DRAFT:
        it["draft"] = r.tokens()
        if not 0 < len(it["draft"]) < it["count"]:
            raise Refused(f"{len(it['draft'])} guesses in {it['count']} tokens")
    if flags & MASK:
        it["mask"] = _mask(r)
    return it


def _mask(r):
    words, k = r.uvarint(), r.count()
    if not 0 < words <= 1 << 16 or k > words:
        raise Refused(f"a mask of {words} words, of which {k} follow")
    mask = [0] * words
    at = 0
    for _ in range(k):
        if k < words:
            at += r.uvarint()
        if at >= words:
            raise Refused("a mask's word lies outside")
        (mask[at],) = struct.unpack("<Q", r.take(8))
        at += 1
    return mask


def _uvarint(out, v):
    while v >= 0x80:
        out.append(v & 0x7F | 0x80)
        v >>= 7
    out.append(v)


def _text(out, s):
    data = s.encode()
    _uvarint(out, len(data))
    out += data


def encode_output(o):
    """The payload of {step, busy (nanoseconds), error, items: [{id, tokens, logprobs, scores_from, scores, vector, error}]}.
    A choice is {Token, Logprob, Top: [{Token, Logprob}]}."""
    out = bytearray()
    _uvarint(out, o["step"])
    _uvarint(out, o.get("busy", 0) // 1000)
    _text(out, o.get("error", ""))
    items = o.get("items", [])
    _uvarint(out, len(items))
    last = 0
    for it in items:
        d = (it["id"] - last) % (1 << 64)
        last = it["id"]
        d -= (d >> 63) << 64
        _uvarint(out, d << 1 if d >= 0 else (-d << 1) - 1)
        _output_item(out, it)
    return bytes(out)


def _output_item(out, it):
    keys = ("tokens", "logprobs", "scores", "vector", "error")
    out.append(sum(1 << i for i, k in enumerate(keys) if it.get(k)))
    if it.get("tokens"):
        _choices(out, it["tokens"], it.get("logprobs", False))
    if it.get("scores"):
        _uvarint(out, it.get("scores_from", 0))
        _choices(out, it["scores"], True)
    if it.get("vector"):
        _uvarint(out, len(it["vector"]))
        out += struct.pack(f"<{len(it['vector'])}f", *it["vector"])
    if it.get("error"):
        _text(out, it["error"])


def _choices(out, choices, logprobs):
    _uvarint(out, len(choices))
    for c in choices:
        _uvarint(out, c["Token"])
        if logprobs:
            out += struct.pack("<f", c.get("Logprob", 0))
            top = c.get("Top") or []
            _uvarint(out, len(top))
            for a in top:
                _uvarint(out, a["Token"])
                out += struct.pack("<f", a["Logprob"])
