#!/usr/bin/env python3
"""A stand-in for ``llama-server``: its flags, its pages and its stream, and failures on demand.

Takes ``--port`` and ``--alias`` and ignores the other flags. The environment says what goes wrong:

    FAKE_FAULT     die-at-start, no-memory (for more than four slots), never-ready; on a request
                   error-500, cut, bad-json, die, alter (one word in the middle, if it speculates),
                   silent (tokens without text)
    FAKE_PROMPTS   the fault only hits requests whose body holds this text
    FAKE_ONCE      a file: the fault happens once, and this file remembers it
    FAKE_WHILE     a file: the fault happens only while it exists
    FAKE_STARTS    a file that gets one line, the process id, for each start
    FAKE_TOKEN_S   seconds between tokens, kept to on the clock
    FAKE_SLOW      the number of a start, from 1: from this one on tokens take twice as long
    FAKE_MARGIN    nats between the two likeliest tokens, where a request asks; nothing is said without
"""

import argparse
import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

FAULT = os.environ.get("FAKE_FAULT", "")
ON_REQUESTS = ("error-500", "cut", "bad-json", "die", "alter", "silent")
MARGIN = os.environ.get("FAKE_MARGIN")
TOKEN_S = float(os.environ.get("FAKE_TOKEN_S", "0.002"))
totals = {"predicted": 0, "drafted": 0, "accepted": 0, "drafts": 0}


def strikes(body: str = "") -> bool:
    """Whether the fault happens now."""
    if os.environ.get("FAKE_PROMPTS", "") not in body:
        return False
    if (broken := os.environ.get("FAKE_WHILE")) and not Path(broken).exists():
        return False
    if once := os.environ.get("FAKE_ONCE"):
        try:
            Path(once).touch(exist_ok=False)
        except FileExistsError:
            return False
    return True


def likely() -> dict[str, Any]:
    """A choice's log-probabilities, if they are told."""
    two = [{"logprob": -0.5}, {"logprob": -0.5 - float(MARGIN or 0)}]
    return {"logprobs": {"content": [{"top_logprobs": two}]}} if MARGIN else {}


class Handler(BaseHTTPRequestHandler):
    """Answers as llama-server does; with a method, two tokens of every three are accepted drafts."""

    protocol_version = "HTTP/1.1"
    alias = ""
    speculative = False
    token_s = TOKEN_S

    def log_message(self, format: str, *args: Any) -> None:
        """Stay quiet."""

    def do_GET(self) -> None:
        """The pages that are read around a measurement."""
        if self.path == "/health" and FAULT == "never-ready":
            self._answer(503, {"error": {"message": "Loading model"}})
        elif self.path == "/metrics":
            names = {
                "tokens_predicted_total": "predicted",
                "spec_decode_num_draft_tokens_total": "drafted",
                "spec_decode_num_accepted_tokens_total": "accepted",
                "spec_decode_num_drafts_total": "drafts",
            }
            self._send(200, "".join(f"llamacpp:{name} {totals[key]}\n" for name, key in names.items()))
        elif self.path == "/v1/models":
            self._answer(200, {"data": [{"id": self.alias, "meta": {}}]})
        elif self.path == "/slots":
            self._answer(200, [{"n_ctx": 2048, "speculative": self.speculative}])
        else:
            self._answer(200, {"status": "ok", "total_slots": 8})

    def do_POST(self) -> None:
        """One streamed chat completion, with the fault if it strikes."""
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        fault = FAULT if FAULT in ON_REQUESTS and strikes(body) else ""
        if fault == "error-500":
            self._answer(500, {"error": {"message": "the fake engine broke"}})
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        asked = json.loads(body)
        self._stream(asked["max_tokens"], fault, likely() if asked.get("logprobs") else {})

    def _stream(self, tokens: int, fault: str, likely: dict[str, Any]) -> None:
        self._event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": None}}]})
        due_s = time.monotonic()
        for number in range(tokens):
            middle = number == tokens // 2
            if middle and fault not in ("", "alter", "silent"):
                self._break(fault)
                return
            if number % 3 == 0 or not self.speculative:
                due_s += self.token_s
                time.sleep(max(0.0, due_s - time.monotonic()))
            word = " fault" if middle and fault == "alter" and self.speculative else f" word{number}"
            word = "" if fault == "silent" else word
            self._event({"choices": [{"index": 0, "delta": {"content": word}} | likely]})
        accepted = 2 * ((tokens - 1) // 3) if self.speculative else 0
        totals["predicted"] += tokens
        totals["drafted"] += accepted
        totals["accepted"] += accepted
        totals["drafts"] += accepted // 2
        timings = {"predicted_n": tokens} | (
            {"draft_n": accepted, "draft_n_accepted": accepted} if accepted else {}
        )
        self._event({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]})
        usage = {"prompt_tokens": 20, "completion_tokens": tokens}
        self._event({"choices": [], "usage": usage, "timings": timings})
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _break(self, fault: str) -> None:
        if fault == "die":
            os._exit(9)
        if fault == "bad-json":
            self._chunk(b"data: {not json\n\n")
            self._chunk(b"")
        self.close_connection = True

    def _event(self, content: object) -> None:
        self._chunk(f"data: {json.dumps(content)}\n\n".encode())

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def _answer(self, status: int, content: object) -> None:
        self._send(status, json.dumps(content))

    def _send(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())


def main() -> None:
    """Serve until ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    parser.add_argument("--alias")
    parser.add_argument("--spec-type", default="none")
    parser.add_argument("--parallel", type=int, default=1)
    given, _ = parser.parse_known_args()
    if starts := os.environ.get("FAKE_STARTS"):
        with Path(starts).open("a") as file:
            file.write(f"{os.getpid()}\n")
        if len(Path(starts).read_text().split()) >= int(os.environ.get("FAKE_SLOW", sys.maxsize)):
            Handler.token_s = 2 * TOKEN_S
    if FAULT == "die-at-start" and strikes():
        sys.exit("the fake engine refuses to start")
    if FAULT == "no-memory" and given.parallel > 4:
        print("llama_kv_cache: failed to allocate buffer for kv cache", flush=True)  # noqa: T201 - its log
        sys.exit(1)
    Handler.alias = given.alias
    Handler.speculative = given.spec_type != "none"
    server = ThreadingHTTPServer(("127.0.0.1", given.port), Handler)
    server.daemon_threads = True
    print("model loaded", flush=True)  # noqa: T201 - its output is its log
    server.serve_forever()


if __name__ == "__main__":
    main()
