"""Measures starts from nothing and from a snapshot. usage: python3 e2e/bench/snapshot.py ROUSE [N] >docs/bench/snapshot.json

Needs root, CRIU 4 in PATH, and for the second server a /usr/bin/python3 with torch (Debian: python3-torch).
Each time is that of the first request to `rouse up`, over TCP on loopback, to the end of its answer."""
import datetime, glob, json, os, platform, shutil, statistics, subprocess, sys, tempfile, time, urllib.request

SERVER = '''
import http.server, json, socketserver, sys, torch
torch.manual_seed(1); torch.set_num_threads(1)
model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(16)]).eval()
class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer): daemon_threads = True
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *a): pass
    def say(self, o):
        b = json.dumps(o).encode()
        self.send_response(200); self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(b))); self.end_headers(); self.wfile.write(b)
    def do_GET(self): self.say({"object": "list", "data": [{"id": "m", "object": "model"}]})
    def do_POST(self):
        q = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with torch.no_grad(): text = str(int(model(torch.full((1, 2048), float(len(str(q.get("prompt")))))).argmax()))
        self.say({"id": "c", "object": "text_completion", "created": 1, "model": "m", "choices": [{"index": 0, "text": text, "finish_reason": "length"}],
                  "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}})
Server(sys.argv[1], Handler).serve_forever()
'''

MANIFEST = '''
apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: NAME}
spec:
  template:
    metadata:
      annotations: {rouse.dev/snapshot: auto, rouse.dev/memory: 1Gi, rouse.dev/sleep-after: 10m, NOTES}
    spec: {containers: [CONTAINER]}
---
'''


def main():
    rouse, n = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 5
    home = tempfile.mkdtemp(prefix="rs")
    server, manifest = home + "/server.py", home + "/f.yaml"
    open(server, "w").write(SERVER)
    functions = {
        "engine": "Rouse's own engine with pico, which ships with it",
        "torch": "a server in Python that imports torch %s and makes 16 layers of 2048 × 2048 (268 MB)",
    }
    with open(manifest, "w") as f:
        f.write(MANIFEST.replace("NAME", "engine").replace("NOTES", "rouse.dev/runtime: engine, rouse.dev/model: pico").replace("CONTAINER", "{image: x}"))
        f.write(MANIFEST.replace("NAME", "torch").replace("NOTES", "rouse.dev/runtime: command").replace(
            "CONTAINER", '{command: [/usr/bin/python3, %s, "$(SOCKET)"]}' % server))
    env = dict(os.environ, HOME=home, XDG_RUNTIME_DIR=home, ROUSE_CACHE=home + "/cache")
    up = subprocess.Popen([rouse, "up", "-f", manifest, "--listen", "127.0.0.1:0", "--log-format", "json"], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, close_fds=True)
    url = admin = ""
    while not url:
        line = json.loads(up.stdout.readline())
        url, admin = line.get("url", ""), line.get("admin", "")

    def ask(name):
        began = time.monotonic()
        body = json.dumps({"model": name, "prompt": "Once", "max_tokens": 1}).encode()
        with urllib.request.urlopen(urllib.request.Request(url + "/v1/completions", body, {"Content-Type": "application/json"}), timeout=300) as r:
            r.read()
        return (time.monotonic() - began) * 1000

    def said(name):
        return subprocess.run([rouse, "logs", name, "--server", admin], env=env, capture_output=True, text=True).stdout

    def wait(condition):
        deadline = time.monotonic() + 120
        while not condition():
            if time.monotonic() > deadline:
                sys.exit("nothing within two minutes: " + "".join(said(f)[-2000:] for f in functions))
            time.sleep(0.05)

    def unload(name):
        subprocess.run([rouse, "sleep", name, "--unload", "--server", admin], env=env, check=True, capture_output=True)
        time.sleep(1)

    load = open("/proc/loadavg").read().split()[:3]
    measurements = []
    try:
        for name, what in functions.items():
            nothing, restored, made, size = [], [], [], 0
            for _ in range(n):
                record = f"{home}/cache/snapshots/default.{name}/snapshot.json"
                shutil.rmtree(os.path.dirname(record), ignore_errors=True)
                nothing.append(ask(name))
                wait(lambda: os.path.exists(record))
                size = sum(os.path.getsize(f) for f in glob.glob(os.path.dirname(record) + "/*"))
                unload(name)
                before = said(name).count("restoring a snapshot")
                restored.append(ask(name))
                if said(name).count("restoring a snapshot") == before:
                    sys.exit(f"{name} was not restored: " + said(name)[-2000:])
                unload(name)
            p = subprocess.run(["/usr/bin/python3", "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True).stdout.strip()
            row = lambda l: {"p50": round(statistics.median(l), 1), "min": round(min(l), 1), "max": round(max(l), 1)}
            measurements.append({"name": name, "what": what % p if "%" in what else what, "unit": "ms", "n": n, "fromSnapshot": row(restored), "fromNothing": row(nothing),
                                 "ratioOfP50": round(statistics.median(nothing) / statistics.median(restored), 2), "snapshotMiB": round(size / 2**20, 1)})
    finally:
        up.terminate()
        up.wait()
        shutil.rmtree(home, ignore_errors=True)
    print(json.dumps({
        "command": f"python3 e2e/bench/snapshot.py ROUSE {n} >docs/bench/snapshot.json",
        "at": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "machine": {"cores": os.cpu_count(), "kernel": platform.release(), "criu": subprocess.run(["criu", "--version"], capture_output=True, text=True).stdout.split("\n")[0],
                    "loadBefore": " ".join(load), "loadAfter": " ".join(open("/proc/loadavg").read().split()[:3])},
        "measurements": measurements}, indent=2, ensure_ascii=False))


main()
