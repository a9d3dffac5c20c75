"""A worker of Rouse's engine for CUDA devices, in torch. `python3 worker.py` speaks the frames of engine/worker on file descriptor 3.

The life of a batch:

 1. A thread reads frames into a queue.
 2. The batch's ids, positions, slots and block tables are packed into pinned memory and copied to the device. A token that
    the engine does not know yet is read from the token pool, where the step before left it: it never visits the host.
 3. The forward pass runs, decode batches as a CUDA graph; tokens are chosen on the device and written to the pool.
 4. Their copy to the host is begun, and an event marks its end. Only then the batch before is finished: its event is
    awaited, its output encoded and sent, while the device computes.

This file has the connection and the ops; steps.py what a batch becomes, holder.py what is held and how it sleeps.
"""
import argparse
import collections
import json
import os
import queue
import socket
import sys
import threading
import time

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads that spin are in the way of everybody else

import blocks
import wire
from attention import BLOCK
from ranks import Ranks
from steps import Steps


class Worker(Steps):
    def __init__(self, sock):
        self.sock, self.lock = sock, threading.Lock()
        self.frames = queue.SimpleQueue()
        self.pending = collections.deque()
        self.model = self.cache = self.load = self.kept = None
        self.level, self.depth, self.blocks = 0, 1, 0
        self.adapters = {}
        self.unpinned = False
        self.ranks = Ranks()

    # -- the connection

    def send(self, data):
        with self.lock:
            self.sock.sendall(data)

    def read(self):
        try:
            while True:
                got = wire.recv_frame(self.sock)
                self.frames.put(got)
                if got is None:
                    return
        except (OSError, wire.Refused) as e:
            print("the connection ends:", e, file=sys.stderr)
            self.frames.put(None)

    def beat(self, period):
        while True:
            time.sleep(period)
            try:
                self.send(wire.frame(wire.HEARTBEAT))
            except OSError:
                return

    def run(self):
        got = wire.recv_frame(self.sock)
        if got is None:
            return
        hello = json.loads(got[1])
        if hello.get("protocol") != wire.PROTOCOL:
            raise SystemExit(f"the engine's protocol version is {hello.get('protocol')}, this worker's is {wire.PROTOCOL}")
        self.depth = hello.get("depth", 1)
        self.send(wire.json_frame(wire.HELLO, {"protocol": wire.PROTOCOL, "pid": os.getpid()}))
        threading.Thread(target=self.read, daemon=True).start()
        if hello.get("heartbeat_ms"):
            threading.Thread(target=self.beat, args=(hello["heartbeat_ms"] / 1000,), daemon=True).start()
        while True:
            got = self.next()
            if got is None:
                return
            kind, payload = got
            if kind == wire.BATCH:
                self.step(wire.decode_batch(payload))
            elif kind == wire.OP:
                while self.pending:
                    self.finish()
                self.send(wire.json_frame(wire.REPLY, self.op(json.loads(payload))))

    def next(self):
        """The next frame. While there is none, batches that the device has done are finished."""
        while self.pending:
            if len(self.pending) >= self.depth:
                self.finish()
                continue
            try:
                return self.frames.get_nowait()
            except queue.Empty:
                if self.pending[0].done():
                    self.finish()
                else:
                    time.sleep(2e-5)
        return self.frames.get()

    # -- ops

    def op(self, op):
        reply = {"id": op.get("id", 0)}
        try:
            verb = op.get("op")
            if verb == "load":
                self.open(op.get("load") or {})
                reply["info"] = {"model": self.model.shape.json() | {"Context": self.context}, "blocks": self.blocks, "block_size": BLOCK,
                                 "keeps": True, "saves": self.ranks.of == 1, "block_bytes": self.block_bytes(), "layout": blocks.layout(self.model.dtype)}
            elif self.load is None:
                raise ValueError("no model is loaded: send load first")
            elif verb == "sleep":
                self.sleep(op.get("level", 1), op.get("keep") or [])
            elif verb == "wake":
                self.wake()
            elif verb == "stats":
                reply["memory"] = self.memory()
            elif verb == "save_blocks":
                reply["sums"] = blocks.save(op.get("file"), self.blocks, self.contents)
            elif verb == "load_blocks":
                if self.cache is None:
                    raise ValueError("the model is asleep")
                blocks.load(op.get("file"), self.cache)
            elif verb == "load_adapter":
                self.load_adapter(op.get("adapter") or {})
            elif verb == "unload_adapter":
                self.adapters.pop((op.get("adapter") or {}).get("id"), None)
            else:
                raise ValueError(f"op {verb!r} is unknown")
        except Exception as e:  # a failed op is an answer; the worker goes on
            reply["error"] = f"{type(e).__name__}: {e}" if not isinstance(e, ValueError) else str(e)
        return reply


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fd", type=int, default=3, help="file descriptor of the socket to the engine")
    args = parser.parse_args()
    Worker(socket.socket(fileno=args.fd)).run()


if __name__ == "__main__":
    main()
