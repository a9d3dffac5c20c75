"""A client of mlflow-extensions' wire format, on httpx: what its compat clients
send and how they read the answer, written anew from the format.

    compat.py URL MODEL [HOST]

URL is an endpoint, with /invocations at its end or without; HOST is the name by
which it is called, where no name server knows it. The program asks for
a few things in the way that OpenAI's client on a compat client does, and prints
one line of JSON for each: its name and what came back. It judges nothing; who
runs it does. It ends with status 1 where an answer can't be read at all.
"""

import base64
import json
import sys
import time
from urllib.parse import urlparse

import httpx

TEXT = ("application/json", "text/plain")


class Compat(httpx.Client):
    """An httpx client whose requests travel in envelopes."""

    def __init__(self, endpoint, token=None, timeout=30, openai=True, host=None):
        super().__init__()
        self.path = urlparse(endpoint).path.rstrip("/")
        self.openai = openai
        headers = {"Content-Type": "application/json"}
        if token:
            headers["Authorization"] = "Bearer " + token
        if host:
            headers["Host"] = host
        root = endpoint.rstrip("/")
        if root.endswith("/invocations"):
            root = root[: -len("/invocations")]
        self.outer = httpx.Client(base_url=root, headers=headers, timeout=timeout)

    def send(self, request, **_):
        return unpack(self.invoke(self.pack(request))[0], request)

    def invoke(self, *strings):
        """Sends strings and returns the predictions."""
        answer = self.outer.post("/invocations", json={"inputs": list(strings)}).json()
        if "predictions" not in answer:
            raise ValueError(f"the answer has no predictions: {answer}")
        return answer["predictions"]

    def pack(self, request):
        """Writes a request as the string that is its envelope."""
        kind = request.headers.get("content-type", "text/plain")
        content = request.read()
        if kind.startswith("multipart/form-data"):
            body, body_type = content.decode("utf-8"), "multipart"
        elif kind.startswith(TEXT):
            body, body_type = content.decode("utf-8"), "text"
        else:
            body, body_type = base64.b64encode(content).decode("ascii"), "stream"
        path = request.url.path
        if self.path:
            path = path.replace(self.path, "")
        return json.dumps(
            {
                "method": request.method,
                "url_path": path,
                "headers": {"content-type": kind},
                "body": body,
                "body_type": body_type,
                "requires_openai_compat": self.openai,
            }
        )


def unpack(prediction, request=None):
    """Reads the answer that a string holds."""
    answer = json.loads(prediction)
    content = answer["content"]
    if answer["content_type"] == "stream":
        content = base64.b64decode(content)
    return httpx.Response(answer["status_code"], headers=answer["headers"], content=content, request=request)


def events(text):
    """The data of a stream of events, without its end."""
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ") and line != "data: [DONE]"]


def wait(headers):
    """The seconds after which an answer asks to try again, as OpenAI's clients read them."""
    if "retry-after-ms" in headers:
        return float(headers["retry-after-ms"]) / 1000
    return float(headers["retry-after"])


def shown(response):
    """What is told of an answer."""
    return {"status": response.status_code, "headers": dict(response.headers), "text": response.text}


def main(url, model, host=None):
    base = url.rstrip("/")
    client, plain = Compat(url, host=host), Compat(url, openai=False, host=host)

    def tell(name, **facts):
        print(json.dumps({"name": name, **facts}), flush=True)

    def chat(text, **more):
        messages = [{"role": "user", "content": text}]
        return client.post(base + "/chat/completions", json={"model": model, "messages": messages, "max_tokens": 8, **more})

    # An SDK tries again where the answer in the envelope says so: a model that is not there yet.
    for _ in range(100):
        first = chat("echo a \"quoted\" word\n\\ é😀")
        if first.status_code not in (429, 503):
            break
        time.sleep(wait(first.headers))
    tell("chat", **shown(first))

    streamed = chat("echo one two", stream=True)
    tell("stream", **shown(streamed), events=len(events(streamed.text)), done="data: [DONE]" in streamed.text)
    tell("models", **shown(client.get(base + "/models", headers={"content-type": "application/json"})))
    tell("bad request", **shown(client.post(base + "/chat/completions", json={"model": model, "messages": "none"})))
    tell("unknown path", **shown(client.post(base + "/nothing", json={})))
    tell("administration", **shown(plain.post(base + "/sleep", json={})))
    tell("form", **shown(client.post(base + "/audio/transcriptions", files={"file": ("a.txt", b"text", "text/plain")})))
    tell("bytes", **shown(client.post(base + "/audio/x", content=b"\x00\xff", headers={"content-type": "application/octet-stream"})))

    request = httpx.Request("GET", base + "/models", headers={"content-type": "text/plain"})
    many = client.invoke("HEALTH_CHECK", *[client.pack(request)] * 3, "COMPUTE_DIAGNOSTICS:cpu-count")
    tell("many", health=json.loads(many[0]), statuses=[unpack(m).status_code for m in many[1:4]], diagnostics=many[4])

    refused = client.outer.post("/invocations", json={"inputs": ["{hello"]})
    tell("no envelope", **shown(refused))
    for path in ("/ping", "/version"):
        tell(path, **shown(client.outer.get(path)))

    unified = client.outer.post("/invocations", json={"messages": [{"role": "user", "content": "echo hi"}], "max_tokens": 8})
    tell("unified", **shown(unified))
    with client.outer.stream("POST", "/invocations", json={"messages": [{"role": "user", "content": "echo hi"}], "max_tokens": 8, "stream": True}) as s:
        s.read()
        tell("unified stream", **shown(s))


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit("usage: compat.py URL MODEL [HOST]")
    main(*sys.argv[1:])
