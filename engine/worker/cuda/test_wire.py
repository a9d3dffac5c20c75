"""Reads the golden frames of engine/worker/testdata: python3 -m unittest in this folder."""
import glob
import json
import os
import random
import unittest

import wire

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "testdata")


class TestGolden(unittest.TestCase):
    def test_frames(self):
        seen = 0
        for path in sorted(glob.glob(os.path.join(FOLDER, "*.json"))):
            with open(path) as f:
                golden = json.load(f)
            data = bytes.fromhex(golden["hex"])
            with self.subTest(os.path.basename(path)):
                if golden["frame"] == "batch":
                    self.assertEqual(wire.decode_batch(data), golden["batch"])
                else:
                    self.assertEqual(wire.encode_output(golden["output"]).hex(), golden["hex"])
                seen += 1
        self.assertGreater(seen, 5)

    def test_damage_is_refused(self):
        rng = random.Random(1)
        for path in glob.glob(os.path.join(FOLDER, "batch-*.json")):
            with open(path) as f:
                data = bytearray.fromhex(json.load(f)["hex"])
            for _ in range(2000):
                broken = bytearray(data[:rng.randrange(len(data) + 1)])
                if broken:
                    broken[rng.randrange(len(broken))] = rng.randrange(256)
                try:
                    wire.decode_batch(bytes(broken))
                except (wire.Refused, UnicodeDecodeError, json.JSONDecodeError):
                    pass


if __name__ == "__main__":
    unittest.main()
