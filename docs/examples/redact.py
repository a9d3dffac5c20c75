#!/usr/bin/env python3
"""A handler for pre- and post-processing: the model sees no e-mail addresses,
and the client learns how many were taken out. Python's standard library only.

    function --runtime ollama --model qwen2.5:0.5b --handler python3,redact.py
"""
import http.server
import os
import re
import urllib.error
import urllib.request

ADDRESS = re.compile(rb"[\w.+-]+@[\w-]+(\.[\w-]+)+")


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body, found = ADDRESS.subn(b"[address]", body)
        self.forward(body, found)

    def do_GET(self):
        self.forward(None, 0)

    def forward(self, body, found):
        request = urllib.request.Request(
            os.environ["ROUSE_RUNTIME_URL"] + self.path,
            data=body,
            method=self.command,
            headers={
                "Content-Type": self.headers.get("Content-Type", "application/json"),
                "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"],
            },
        )
        try:
            answer = urllib.request.urlopen(request)
        except urllib.error.HTTPError as refused:  # its status and body are the answer
            answer = refused
        with answer:
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.headers.get("Content-Type", "application/json"))
            self.send_header("X-Redacted", str(found))
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            while chunk := answer.read1(64 << 10):  # streams pass through as they come
                self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *args):
        pass


http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
