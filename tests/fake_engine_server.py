"""A program that behaves like an inference server, well or badly; standard library only.

Usage: fake_engine_server.py --port N --name NAME [...]; it prints log markers and the ids of what it forks.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SLEEPER = [sys.executable, "-c", "import time; time.sleep(120)"]


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - its output is its log


def fork(kind: str) -> None:
    """A child that outlives its parent unless someone looks for it."""
    if kind == "detached":  # its own session, and its parent is gone: only its environment tells
        script = f"import subprocess; print(subprocess.Popen({SLEEPER!r}, stdout=subprocess.DEVNULL).pid)"
        out = subprocess.run(
            [sys.executable, "-c", script], start_new_session=True, stdout=subprocess.PIPE, check=True
        )
        say(f"forked {int(out.stdout)}")
    else:  # no environment: only its session tells, or where it has its own, its parent
        own_session = kind == "nameless"
        say(f"forked {subprocess.Popen(SLEEPER, start_new_session=own_session, env={}).pid}")


def handler(args: argparse.Namespace, loaded: threading.Event) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.path in ("/health", "/v1/models", "/die")
            body = json.dumps({"data": [{"id": args.name}]}).encode()
            self.send_response(404 if not known else args.status if loaded.is_set() else 503)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            if self.path == "/die":
                os._exit(5)

        def do_POST(self) -> None:
            self.send_response(200 if self.path == "/flush" else 404)
            self.end_headers()
            self.wfile.write(b"flushed")

        def log_message(self, *args: object) -> None:
            pass

    return Handler


def load(seconds: float, loaded: threading.Event) -> None:
    """Print the markers of a start that takes so long."""
    for part in ("weights", "cache", "graphs"):
        time.sleep(seconds / 3)
        say(f"INFO loaded {part}")
    loaded.set()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--name", default="fake")
    parser.add_argument("--status", type=int, default=200, help="of every answer once loaded")
    parser.add_argument("--load-s", type=float, default=0.0)
    parser.add_argument("--die", type=int, help="end at once with this status")
    parser.add_argument("--deaf", action="store_true", help="never listen")
    parser.add_argument("--ignore-term", action="store_true")
    parser.add_argument("--fork", choices=["child", "detached", "nameless"])
    args = parser.parse_args()
    if args.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if args.fork:
        fork(args.fork)
    if args.die is not None:
        say("ERROR out of luck")
        sys.exit(args.die)
    if args.deaf:
        time.sleep(120)
    loaded = threading.Event()
    server = ThreadingHTTPServer(("127.0.0.1", args.port), handler(args, loaded))
    threading.Thread(target=load, args=(args.load_s, loaded), daemon=True).start()
    server.serve_forever()


if __name__ == "__main__":
    main()
