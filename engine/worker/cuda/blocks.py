"""Blocks of the cache that outlive a sleep: in the host's memory, and in files.

A block's contents are one tensor, [layers, 2, BLOCK, kv heads, head], in the type of the cache; in a file they are its bytes. A file's
sums are 64 bits of BLAKE2b. Both are told to the engine as the layout, so that it uses no file of another kind of worker.
"""
import hashlib
import os

import torch

CHUNK = 16  # blocks that are copied at once


def layout(dtype):
    return f"torch layers,2,positions,heads,values {str(dtype).split('.')[-1]} blake2b"


def gather(cache, ids):
    """The contents of blocks, [n, layers, 2, BLOCK, kv heads, head], where the cache is."""
    at = torch.tensor(ids, dtype=torch.int64, device=cache[0].device)
    return torch.stack([kv[:, at].transpose(0, 1) for kv in cache], 1)


def scatter(cache, ids, contents):
    """Puts contents, which may be on the host, into blocks."""
    at = torch.tensor(ids, dtype=torch.int64, device=cache[0].device)
    for i, kv in enumerate(cache):
        kv[:, at] = contents[:, i].transpose(0, 1).to(kv.device)


class Kept:
    """A copy in the host's memory, pinned where that helps. It is made before anything is given back."""

    def __init__(self, cache, ids, pin, host_like):
        self.ids = ids
        self.place = {b: i for i, b in enumerate(ids)}
        one = gather(cache, ids[:1])
        self.contents = host_like((len(ids), *one.shape[1:]), one.dtype, one.is_cuda and pin)
        for i in range(0, len(ids), CHUNK):
            self.contents[i:i + CHUNK] = gather(cache, ids[i:i + CHUNK])

    def put_back(self, cache):
        for i in range(0, len(self.ids), CHUNK):
            scatter(cache, self.ids[i:i + CHUNK], self.contents[i:i + CHUNK])

    def gather(self, ids):
        lost = [b for b in ids if b not in self.place]
        if lost:
            raise ValueError(f"block {lost[0]} was not kept by the sleep")
        return self.contents[[self.place[b] for b in ids]]


def check(file, count):
    """Refuses what names no file, or blocks that are not there."""
    if not file or not file.get("path") or file.get("offset", 0) < 0:
        raise ValueError("no file is named")
    for b in file.get("blocks") or []:
        if not 0 <= b < count:
            raise ValueError(f"block {b} is outside the cache of {count} blocks")
    return file["path"], file.get("offset", 0), file.get("blocks") or []


def digest(data):
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def save(file, count, read):
    """Writes the blocks that read(ids) gives to a file that exists, and returns their sums."""
    path, at, ids = check(file, count)
    sums = []
    fd = os.open(path, os.O_WRONLY)
    try:
        for i in range(0, len(ids), CHUNK):
            for one in read(ids[i:i + CHUNK]).cpu():
                data = one.contiguous().view(torch.uint8).numpy().tobytes()
                write_at(fd, data, at)
                at += len(data)
                sums.append(digest(data))
    finally:
        os.close(fd)
    return sums


def write_at(fd, data, at):
    done = 0
    while done < len(data):
        done += os.pwrite(fd, memoryview(data)[done:], at + done)


def load(file, cache):
    """Reads blocks of a file into the cache, whose last block is not the engine's. A block that is not as it was written is refused."""
    path, at, ids = check(file, cache[0].shape[1] - 1)
    sums = file.get("sums") or []
    like = gather(cache, [0])[0]
    size = like.numel() * like.element_size()
    fd = os.open(path, os.O_RDONLY)
    try:
        for i in range(0, len(ids), CHUNK):
            some = ids[i:i + CHUNK]
            data = bytearray()
            for j in range(i, i + len(some)):
                one = read_at(fd, size, at + j * size)
                if len(one) < size:
                    raise ValueError(f"block {j + 1} of {len(ids)} in {path}: the file ends in it")
                if j >= len(sums) or digest(one) != sums[j]:
                    raise ValueError(f"block {j + 1} of {len(ids)} in {path} is not as it was written")
                data += one
            scatter(cache, some, torch.frombuffer(data, dtype=like.dtype).view(len(some), *like.shape))
    finally:
        os.close(fd)


def read_at(fd, size, at):
    """So many bytes, or fewer where the file ends."""
    data = b""
    while len(data) < size:
        got = os.pread(fd, size - len(data), at + len(data))
        if not got:
            break
        data += got
    return data
