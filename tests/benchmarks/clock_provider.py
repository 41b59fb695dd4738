"""A provider whose answer is the time at which it sent each piece of it."""

from __future__ import annotations

import json
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CHUNKS = 40
CHUNK_SECONDS = 0.5


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for _ in range(CHUNKS):
            time.sleep(CHUNK_SECONDS)
            self._say({"choices": [{"index": 0, "delta": {"content": f"{time.time():.6f} "}}]})
        self._say({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _say(self, document: object) -> None:
        self._chunk(b"data: " + json.dumps(document).encode() + b"\n\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def log_message(self, *_: object) -> None:
        """Nothing: a line for each request would be measured as well."""


class _Server(ThreadingHTTPServer):
    request_queue_size = 512
    daemon_threads = True


def serve(port: int) -> None:
    """Serve until killed."""
    _Server(("127.0.0.1", port), _Handler).serve_forever()
