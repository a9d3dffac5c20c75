"""Prints, as JSON, what torch says of the device, and how fast it copies: python3 probe.py DEVICE BYTES."""
import importlib.metadata
import importlib.util
import json
import os
import platform
import sys
import time

import torch


def package(name):
    """The version of a package, "" where it is not there. It is not imported: some take a minute."""
    if importlib.util.find_spec(name) is None:
        return ""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def available():
    """Bytes of the host that can be had; what files are cached in counts."""
    try:
        with open("/proc/meminfo") as f:
            return next(1024 * int(line.split()[1]) for line in f if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def rate(device, size, copy):
    """Bytes a second of a copy of so many bytes: the best of five, after one that warms up."""
    best = 0
    for i in range(6):
        if device == "cuda":
            torch.cuda.synchronize()
        began = time.perf_counter()
        copy()
        if device == "cuda":
            torch.cuda.synchronize()
        if i:
            best = max(best, size / (time.perf_counter() - began))
    return best


def rates(device, size):
    make = lambda where, **kw: torch.empty(size, dtype=torch.uint8, device=where, **kw).zero_()
    a, b, host = make(device), make(device), make("cpu")
    out = {"device": 2 * rate(device, size, lambda: b.copy_(a)), "toDevice": rate(device, size, lambda: a.copy_(host)), "toHost": rate(device, size, lambda: host.copy_(a))}
    if device == "cuda":
        try:
            pinned = make("cpu", pin_memory=True)
        except RuntimeError as e:  # a limit of the container, or no memory that can be locked
            return out, f"{size} bytes of the host can't be pinned: {e}".splitlines()[0]
        out["toDevicePinned"] = rate(device, size, lambda: a.copy_(pinned, non_blocking=True))
        out["toHostPinned"] = rate(device, size, lambda: pinned.copy_(a, non_blocking=True))
    return out, ""


def main():
    device, size = sys.argv[1], int(sys.argv[2])
    out = {"torch": torch.__version__, "python": platform.python_version(), "cuda": torch.version.cuda or "", "hasCuda": torch.cuda.is_available(), "triton": package("triton"),
           "vllm": package("vllm"), "lmcache": package("lmcache"), "hostFree": available()}
    if out["hasCuda"]:
        p = torch.cuda.get_device_properties(0)
        free, total = torch.cuda.mem_get_info()
        out |= {"name": p.name, "capability": f"{p.major}.{p.minor}", "total": total, "free": free}
    if device == "cpu" or out["hasCuda"]:
        if out["hasCuda"]:
            size = min(size, out["free"] // 4)
        try:
            out["rates"], out["unpinned"] = rates(device, size)
        except RuntimeError as e:  # another process has taken the device, or all of its memory
            if device == "cpu":
                raise
            out |= {"hasCuda": False, "noCuda": str(e).splitlines()[0]}
    elif torch.version.cuda is None:
        out["noCuda"] = "it is built without CUDA: install torch's build with CUDA"
    else:
        try:
            torch.cuda.init()
        except Exception as e:  # the driver is missing, or too old, or the device is taken
            out["noCuda"] = str(e).splitlines()[0]
    json.dump(out, sys.stdout)


main()
