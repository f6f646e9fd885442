#!/usr/bin/env python3
"""The real llama.cpp server with a planted fault: one token's text of one answer is another one.

Starts the launcher on a port of its own and passes everything through, unless it speculates: then the
answer to the prompt that the environment names has another text in one place.

    ALTER_PYTHON   interpreter with xllamacpp
    ALTER_PROMPT   text that only the body of the request to be altered holds; nothing is altered without
    ALTER_PLACE    which of its tokens, from 0
"""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

LAUNCHER = Path(__file__).parents[1] / "src" / "draftmark" / "llama_launcher.py"
FAULT = "§"


class Handler(BaseHTTPRequestHandler):
    """Passes requests on and answers back, a stream's events one by one as they come."""

    behind = 0
    speculative = False

    def log_message(self, format: str, *args: Any) -> None:
        """Stay quiet."""

    def do_GET(self) -> None:
        self._pass(b"")

    def do_POST(self) -> None:
        self._pass(self.rfile.read(int(self.headers["content-length"])))

    def _pass(self, body: bytes) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.behind)
        try:
            connection.request(self.command, self.path, body, {"content-type": "application/json"})
            answer = connection.getresponse()
        except OSError:
            self.send_error(503)
            return
        self.send_response(answer.status)
        self.send_header("content-type", answer.getheader("content-type", ""))
        self.end_headers()
        for line in altered(answer) if self._struck(body.decode()) else answer:
            self.wfile.write(line)
            self.wfile.flush()
        connection.close()

    def _struck(self, body: str) -> bool:
        prompt = os.environ.get("ALTER_PROMPT")
        return self.speculative and prompt is not None and prompt in body


def altered(lines: http.client.HTTPResponse) -> Iterator[bytes]:
    """A stream's lines, one token's text replaced."""
    number = 0
    for line in lines:
        event = json.loads(line[6:]) if line.startswith(b"data: {") else {}
        delta = event["choices"][0]["delta"] if event.get("choices") else {}
        if not delta.get("content"):
            yield line
            continue
        if number == int(os.environ["ALTER_PLACE"]):
            delta["content"] = FAULT
        number += 1
        yield f"data: {json.dumps(event)}\n".encode()


def main() -> None:
    """Serve until ended, and end the real server then."""
    arguments = sys.argv[1:]
    at = arguments.index("--port") + 1
    port = int(arguments[at])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        Handler.behind = probe.getsockname()[1]
    arguments[at] = str(Handler.behind)
    kind = arguments[arguments.index("--spec-type") + 1] if "--spec-type" in arguments else "none"
    Handler.speculative = kind != "none"
    with subprocess.Popen([os.environ["ALTER_PYTHON"], str(LAUNCHER), *arguments]) as real:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        server.daemon_threads = True
        try:
            server.serve_forever()
        finally:
            real.terminate()


if __name__ == "__main__":
    main()
