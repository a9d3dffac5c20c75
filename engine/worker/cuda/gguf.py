"""Reads GGUF files, version 2 and 3: metadata, and tensors as numpy arrays."""
import mmap
import struct

import numpy as np

# name -> (values in a block, bytes of a block)
TYPES = {0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 8: ("Q8_0", 32, 34), 12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176),
         14: ("Q6_K", 256, 210), 30: ("BF16", 1, 2)}
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


class File:
    parts = {}  # the other files of a model in several, by their tensors

    def __init__(self, path, first=True):
        with open(path, "rb") as f:
            self.data = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        self.at = 0
        magic, version = self._take("4s"), self._take("I")
        if magic != b"GGUF" or version not in (2, 3):
            raise ValueError(f"{path} is no GGUF file of version 2 or 3")
        tensors, keys = self._take("Q"), self._take("Q")
        self.meta = {}
        for _ in range(keys):
            key = self._string()
            self.meta[key] = self._value(self._take("I"))
        self.tensors = {}
        for _ in range(tensors):
            name = self._string()
            dims = [self._take("Q") for _ in range(self._take("I"))]
            self.tensors[name] = (dims, self._take("I"), self._take("Q"))
        align = self.meta.get("general.alignment", 32)
        self.base = -(-self.at // align) * align
        count = self.meta.get("split.count", 1)
        if first and count > 1:
            stem, end = path[:-len("00001-of-00001.gguf")], path[-len("-of-00001.gguf"):]
            others = [File(f"{stem}{i:05}{end}", False) for i in range(2, count + 1)]
            self.parts = {name: f for f in others for name in f.tensors}
            self.tensors |= {name: f.tensors[name] for name, f in self.parts.items()}

    def _take(self, form):
        size = struct.calcsize("<" + form)
        (v,) = struct.unpack("<" + form, self.data[self.at:self.at + size])
        self.at += size
        return v

    def _string(self):
        n = self._take("Q")
        self.at += n
        return self.data[self.at - n:self.at].decode("utf-8", "replace")

    def _value(self, kind):
        if kind == 8:
            return self._string()
        if kind == 9:
            inner, n = self._take("I"), self._take("Q")
            return [self._value(inner) for _ in range(n)]
        return self._take(_SCALARS[kind])

    def get(self, key, default=None):
        return self.meta.get(key, default)

    def tensor(self, name):
        """A tensor, [rows, cols] or [n]: F16 as float16, BF16 as the int16 of the same bits, all else as float32."""
        if name not in self.tensors:
            raise ValueError(f"tensor {name!r} is missing")
        dims, kind, offset = self.tensors[name]
        if kind not in TYPES:
            raise ValueError(f"tensor {name!r} has type {kind}, which this worker can't read")
        label, values, size = TYPES[kind]
        count = int(np.prod(dims))
        part = self.parts.get(name, self)
        raw = np.frombuffer(part.data, np.uint8, count // values * size, part.base + offset)
        return _decode(label, raw, size).reshape([int(d) for d in reversed(dims)])


def _half(b):
    return b.copy().view("<f2").astype(np.float32)


def _decode(label, raw, size):
    if label == "F32":
        return raw.copy().view("<f4")
    if label == "F16":
        return raw.copy().view("<f2")
    if label == "BF16":
        return raw.copy().view("<i2")
    b = raw.reshape(-1, size)
    if label == "Q8_0":
        return (_half(b[:, :2]) * b[:, 2:].view(np.int8).astype(np.float32)).ravel()
    if label == "Q4_0":
        q = np.concatenate([b[:, 2:] & 15, b[:, 2:] >> 4], axis=1).astype(np.float32) - 8
        return (_half(b[:, :2]) * q).ravel()
    if label == "Q6_K":
        return _q6(b)
    return _q45(b, label == "Q5_K")


def _q6(b):
    low, high, scale, d = b[:, :128], b[:, 128:192], b[:, 192:208].view(np.int8).astype(np.float32), _half(b[:, 208:210])
    out = np.empty((len(b), 256), np.float32)
    for half in range(2):
        l, h = low[:, 64 * half:64 * half + 64], high[:, 32 * half:32 * half + 32]
        for j, nibble in enumerate((l[:, :32] & 15, l[:, 32:] & 15, l[:, :32] >> 4, l[:, 32:] >> 4)):
            q = (nibble | (h >> (2 * j) & 3) << 4).astype(np.float32) - 32
            at = 128 * half + 32 * j
            out[:, at:at + 32] = q * np.repeat(scale[:, at // 16:at // 16 + 2], 16, axis=1)
    return (out * d).ravel()


def _q45(b, five):
    d, low = _half(b[:, 0:2]), _half(b[:, 2:4])
    s = b[:, 4:16].astype(np.uint8)
    scale = np.concatenate([s[:, 0:4] & 63, s[:, 8:12] & 15 | (s[:, 0:4] >> 6) << 4], axis=1).astype(np.float32) * d
    least = np.concatenate([s[:, 4:8] & 63, s[:, 8:12] >> 4 | (s[:, 4:8] >> 6) << 4], axis=1).astype(np.float32) * low
    q = b[:, 48 if five else 16:]
    out = np.empty((len(b), 256), np.float32)
    for j in range(8):
        v = q[:, 32 * (j // 2):32 * (j // 2) + 32] >> (4 * (j % 2)) & 15
        if five:
            v = v | (b[:, 16:48] >> j & 1) << 4
        out[:, 32 * j:32 * j + 32] = v.astype(np.float32) * scale[:, j:j + 1] - least[:, j:j + 1]
    return out.ravel()
