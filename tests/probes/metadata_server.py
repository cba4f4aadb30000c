"""A stand-in for the providers' metadata servers: it knows the paths that a test gives it, and EC2's sessions."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

TOKEN = "token-1"


class MetadataServer:
    """What it answers, and what it was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, str]] = {}
        self.asked: list[str] = []
        self.has_tokens = True
        self.url = ""


@contextmanager
def metadata_server() -> Iterator[MetadataServer]:
    state = MetadataServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_PUT(self) -> None:
            if state.has_tokens and self.headers["X-aws-ec2-metadata-token-ttl-seconds"]:
                self.say(200, TOKEN)
            else:
                self.say(403, "")

        def do_GET(self) -> None:
            state.asked.append(self.path)
            may = self.headers["Metadata-Flavor"] == "Google" or not state.has_tokens
            if not may and self.headers["X-aws-ec2-metadata-token"] != TOKEN:
                self.say(401, "")
            else:
                self.say(*state.answers.get(self.path, (404, "not found")))

        def say(self, status: int, body: str) -> None:
            encoded = body.encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(encoded)))
            self.end_headers()
            self.wfile.write(encoded)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the server's own name for it)
            """Keep the test's output clean."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
