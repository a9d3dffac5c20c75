"""Runs the worker, on the CPU or ROUSE_TEST_DEVICE: python3 -m unittest in this folder. Needs torch and numpy."""
import json
import os
import socket
import subprocess
import sys
import tempfile
import unittest

import wire

# Where the worker computes. On a CUDA device in float32 too: what is compared are tokens, and halves are close to each other.
DEVICE = os.environ.get("ROUSE_TEST_DEVICE", "cpu")
HERE = os.path.dirname(os.path.abspath(__file__))

try:
    import torch
except ImportError:
    torch = None


def uvarint(v):
    out = bytearray()
    wire._uvarint(out, v)
    return bytes(out)


def batch(step, items, ends=(), copies=()):
    """A batch with ids in full, which is all that the test needs: (id, flags, rest)."""
    out = uvarint(step) + uvarint(len(ends))
    last = 0
    for e in ends:
        out += uvarint((e - last) * 2 if e >= last else (last - e) * 2 - 1)
        last = e
    out += uvarint(len(copies)) + b"".join(uvarint(a) + uvarint(b) for a, b in copies) + uvarint(len(items))
    last = 0
    for id, body in items:
        out += uvarint((id - last) * 2 if id >= last else (last - id) * 2 - 1) + body
        last = id
    return wire.frame(wire.BATCH, out)


def begin(tokens, blocks, pos=0, count=None, spec=None, flags=wire.SAMPLE):
    count = count or len(tokens) - pos
    f = wire.BEGIN | wire.BLOCKS | flags | (wire.MANY if count > 1 else 0)
    out = bytes([f]) + uvarint(pos) + (uvarint(count) if count > 1 else b"") + uvarint(len(blocks))
    last = 0
    for b in blocks:
        out += uvarint((b - last) * 2 if b >= last else (last - b) * 2 - 1)
        last = b
    text = json.dumps(spec).encode() if spec else b""
    return out + uvarint(len(tokens)) + uvarint(len(tokens)) + b"".join(map(uvarint, tokens)) + uvarint(len(text)) + text


def more(pos, count=1, flags=wire.SAMPLE):
    return bytes([flags | (wire.MANY if count > 1 else 0)]) + uvarint(pos) + (uvarint(count) if count > 1 else b"")


@unittest.skipIf(torch is None, "torch is not installed")
class TestWorker(unittest.TestCase):
    def start(self, model="random:tiny", depth=2, **load):
        ours, theirs = socket.socketpair()
        os.set_inheritable(theirs.fileno(), True)
        self.process = subprocess.Popen([sys.executable, os.path.join(HERE, "worker.py"), "--fd", str(theirs.fileno())],
                                        pass_fds=[theirs.fileno()], stderr=subprocess.DEVNULL)
        theirs.close()
        ours.settimeout(120)
        self.sock = ours
        self.addCleanup(self.process.wait)
        self.addCleanup(ours.close)
        ours.sendall(wire.json_frame(wire.HELLO, {"protocol": 1, "depth": depth}))
        self.assertEqual(wire.recv_frame(ours)[0], wire.HELLO)
        return self.op("load", load={"model": model, "sequences": 4, "context": 128, "options": {"device": DEVICE, "dtype": "float32"}} | load)

    def op(self, verb, **more):
        self.sock.sendall(wire.json_frame(wire.OP, {"id": 1, "op": verb} | more))
        return json.loads(wire.recv_frame(self.sock)[1])

    def output(self):
        kind, data = wire.recv_frame(self.sock)
        self.assertEqual(kind, wire.OUTPUT)
        r = wire.Reader(data)
        step, _, error, items, last = r.uvarint(), r.uvarint(), r.text().decode(), [], 0
        for _ in range(r.count(2)):
            last += r.svarint()
            flags, it = r.byte(), {"id": last}
            if flags & 1:
                it["tokens"] = []
                for _ in range(r.uvarint()):
                    it["tokens"].append(r.uvarint())
                    if flags & 2:
                        r.take(4)
                        for _ in range(r.uvarint()):
                            r.uvarint(), r.take(4)
            if flags & 8:
                r.take(4 * r.uvarint())
                it["vector"] = True
            if flags & 16:
                it["error"] = r.text().decode()
            items.append(it)
        return step, error, items

    def generate(self, prompt, n, spec=None, id=5, blocks=(1, 2, 3), ahead=False):
        """n tokens after a prompt; ahead sends each step before the output of the one before it came."""
        self.sock.sendall(batch(1, [(id, begin(prompt, list(blocks), spec=spec))]))
        out, sent = [], 1
        while len(out) < n:
            while sent < n and sent - len(out) < (2 if ahead else 1):
                self.sock.sendall(batch(sent + 1, [(id, more(len(prompt) + sent - 1))]))
                sent += 1
            step, error, items = self.output()
            self.assertEqual((step, error), (len(out) + 1, ""))
            self.assertNotIn("error", items[0])
            out += items[0]["tokens"]
        self.sock.sendall(batch(n + 1, [], ends=[id]))
        self.output()
        return out

    def test_ahead_is_the_same(self):
        for model in ("random:tiny", "random:tiny-moe"):
            info = self.start(model)
            self.assertEqual(info["info"]["block_size"], 16)
            prompt = list(range(3, 24))
            want = self.generate(prompt, 12)
            self.assertEqual(self.generate(prompt, 12, ahead=True, blocks=(7, 0, 4)), want)
            drawn = {"temperature": 1.3, "seed": 7, "top_p": 0.9, "top_k": 50}
            self.assertEqual(self.generate(prompt, 12, drawn, ahead=True), self.generate(prompt, 12, drawn))
            chatty = {"temperature": 1.0, "seed": 7, "frequency_penalty": 1.0, "repetition_penalty": 1.2, "logprobs": True, "top": 3}
            self.assertEqual(self.generate(prompt, 6, chatty), self.generate(prompt, 6, chatty))
            # A prompt in parts, and a sequence that begins again with what it made.
            self.sock.sendall(batch(1, [(5, begin(prompt, [1, 2, 3], count=9, flags=0))]) + batch(2, [(5, more(9, 12))]))
            self.output()
            self.assertEqual(self.output()[2][0]["tokens"], want[:1])
            self.sock.sendall(batch(3, [(5, begin(prompt + want[:4], [3, 2, 1]))]))
            self.assertEqual(self.output()[2][0]["tokens"], want[4:5])
            self.sock.close()

    def test_sleep_and_errors(self):
        self.start()
        want = self.generate([1, 2, 3], 4)
        for level in (1, 2):
            self.assertNotIn("error", self.op("sleep", level=level))
            self.sock.sendall(batch(9, [(5, begin([1], [1]))]))
            self.assertIn("asleep", self.output()[1])
            self.assertNotIn("error", self.op("wake"))
            self.assertEqual(self.generate([1, 2, 3], 4), want)
        self.assertIn("No such file", self.op("load_adapter", adapter={"id": 1, "path": "/nowhere/x"})["error"])
        self.assertIn("number", self.op("load_adapter")["error"])
        self.sock.sendall(batch(9, [(6, begin([1], [1], spec={"adapter": 3}))]))
        self.assertIn("adapter 3 is not loaded", self.output()[2][0]["error"])
        self.assertIn("unknown", self.op("dance")["error"])
        self.sock.sendall(batch(1, [(77, more(3))]))
        self.assertIn("has not begun", self.output()[2][0]["error"])
        self.sock.sendall(batch(2, [(78, begin([1, 2], [999]))]))
        self.assertIn("blocks", self.output()[2][0]["error"])
        self.assertEqual(self.generate([1, 2, 3], 4), want)
        self.assertIn("no shape", self.op("load", load={"model": "random:none"})["error"])

    def next(self, prompt, first, id=6):
        """The token after a prompt of which the first 16 positions are in a block already."""
        self.sock.sendall(batch(1, [(id, begin(prompt, [first, 5], pos=16))]) + batch(2, [], ends=[id]))
        step, error, items = self.output()
        self.assertEqual((error, items[0].get("error", "")), ("", ""))
        self.output()
        return items[0]["tokens"]

    def test_kept_blocks(self):
        info = self.start()["info"]
        self.assertTrue(info["keeps"] and info["saves"] and "float32" in info["layout"])
        prompt = list(range(3, 24))
        want = self.generate(prompt, 1)  # in blocks 1 and 2
        self.assertEqual(self.next(prompt, 1), want)
        with tempfile.NamedTemporaryFile() as f:
            file = {"path": f.name, "offset": 24, "blocks": [2, 1]}
            sums = self.op("save_blocks", file=file)["sums"]
            self.assertEqual(os.path.getsize(f.name), 24 + 2 * info["block_bytes"])
            # A sleep keeps what it is told to keep, and a file is written asleep as awake.
            self.assertNotIn("error", self.op("sleep", level=1, keep=[2, 1]))
            self.assertEqual(self.op("save_blocks", file=file)["sums"], sums)
            self.assertIn("not kept", self.op("save_blocks", file=file | {"blocks": [3]})["error"])
            self.assertIn("asleep", self.op("load_blocks", file=file | {"sums": sums})["error"])
            self.assertNotIn("error", self.op("wake"))
            self.assertEqual(self.next(prompt, 1), want)
            # Nothing is left after level 2, nor after a sleep that keeps nothing; the file has it.
            for level in (2, 1):
                self.assertNotIn("error", self.op("sleep", level=level))
                self.assertIn("asleep", self.op("save_blocks", file=file)["error"])
                self.assertNotIn("error", self.op("wake"))
                self.assertNotEqual(self.op("save_blocks", file=file | {"path": os.devnull})["sums"], sums)
                self.assertNotIn("error", self.op("load_blocks", file=file | {"blocks": [4, 6], "sums": sums}))
                self.assertEqual(self.next(prompt, 6), want)
            # What is not as it was written is refused, and so is what is not there.
            for change, word in (({"sums": sums[::-1]}, "not as it was"), ({"sums": sums[:1]}, "not as it was"), ({"offset": 25, "sums": sums}, "not as it was"),
                                 ({"offset": 24 + info["block_bytes"], "sums": sums[1:]}, "ends in it"), ({"blocks": [0, 99999], "sums": sums}, "outside"),
                                 ({"blocks": [-1], "sums": sums}, "outside"), ({"path": ""}, "no file"), ({"offset": -1}, "no file"), ({"path": f.name + "x"}, "No such file")):
                self.assertIn(word, self.op("load_blocks", file=file | change)["error"], change)
            self.assertIn("no file", self.op("save_blocks")["error"])
            self.assertIn("No such file", self.op("save_blocks", file=file | {"path": "/nowhere/x"})["error"])
        # A sleep that names what is not there fails, and changes nothing.
        self.assertIn("outside", self.op("sleep", level=1, keep=[99999])["error"])
        self.assertEqual(self.next(prompt, 6), want)
        self.sock.close()

    def test_halves(self):
        import gguf
        import model
        want = torch.randn(4, 32)
        for kind, dtype in ((1, torch.float16), (30, torch.bfloat16)):
            bits = want.to(dtype).view(torch.int16).numpy().tobytes()
            f = gguf.File.__new__(gguf.File)
            f.tensors, f.base, f.data = {"x": ([32, 4], kind, 0)}, 0, bits
            got = model.read_tensor(f, "x")
            self.assertEqual(got.dtype, dtype)
            self.assertTrue(torch.equal(got, want.to(dtype)))
        self.assertIsNone(model.read_tensor(f, "y"))

    def test_split(self):
        """A model in several files has the tensors of all."""
        import gguf
        import struct
        text = lambda s: struct.pack("<Q", len(s)) + s.encode()
        with tempfile.TemporaryDirectory() as dir:
            for i in range(3):
                head = struct.pack("<4sIQQ", b"GGUF", 3, 1, 1) + text("split.count") + struct.pack("<IH", 2, 3)
                head += text(f"t{i}") + struct.pack("<IQIQ", 1, 4, 0, 0)
                with open(f"{dir}/m-{i + 1:05}-of-00003.gguf", "wb") as f:
                    f.write(head + bytes(-len(head) % 32) + struct.pack("<4f", *[i] * 4))
            f = gguf.File(f"{dir}/m-00001-of-00003.gguf")
            self.assertEqual([f.tensor(f"t{i}").tolist() for i in range(3)], [[i] * 4 for i in range(3)])
            os.remove(f"{dir}/m-00002-of-00003.gguf")
            with self.assertRaisesRegex(FileNotFoundError, "m-00002-of-00003"):
                gguf.File(f"{dir}/m-00001-of-00003.gguf")

    def test_not_pinned(self):
        """Where memory can't be pinned, as on a machine without a driver, copies are made all the same."""
        import worker
        if torch.cuda.is_available():
            self.skipTest("memory can be pinned here")
        w = worker.Worker(None)
        for _ in range(2):
            self.assertFalse(w.host_like((4,), torch.float32, True).is_pinned())
            self.assertTrue(w.unpinned)

    def test_no_model(self):
        """A step before any load is answered, and says why."""
        import worker
        ours, theirs = socket.socketpair()
        self.addCleanup(ours.close)
        self.addCleanup(theirs.close)
        self.sock = ours
        worker.Worker(theirs).step({"step": 7})
        step, error, _ = self.output()
        self.assertEqual(step, 7)
        self.assertIn("not loaded", error)

    def test_sizes(self):
        self.start("random:4e6")
        held = self.op("stats")["memory"]
        self.assertGreater(held, 2e6)
        if DEVICE == "cpu":  # libraries have workspaces on a GPU
            self.assertLess(held, 12e6)
        want = self.generate([1, 2, 3], 4)
        # A load that fails leaves the model as it was; weights that are not pinned are the same.
        for model in ("random:5", "random:1e99", "/nowhere.gguf"):
            self.assertIn("error", self.op("load", load={"model": model}))
        self.assertEqual(self.generate([1, 2, 3], 4), want)
        self.sock.close()
        self.start("random:4e6", options={"device": DEVICE, "dtype": "float32", "pin": False})
        for _ in range(2):
            self.assertNotIn("error", self.op("sleep", level=1))
            self.assertEqual(self.op("stats").get("memory", 0), 0)
            self.assertNotIn("error", self.op("wake"))
            self.assertEqual(self.generate([1, 2, 3], 4), want)
        self.sock.close()


if __name__ == "__main__":
    unittest.main()
