"""The least that a Python client can do with the same bytes: receive them and take the time, nothing else.

Usage: python floor.py URL STREAMS REQUESTS TOKENS PROMPT_CHARACTERS
"""

import json
import select
import socket
import sys
from statistics import mean, quantiles
from time import monotonic_ns
from urllib.parse import urlsplit


def main() -> None:
    """A closed loop; prints the mean and p99 of the time to the first token."""
    to = urlsplit(sys.argv[1])
    streams, requests, tokens, characters = map(int, sys.argv[2:])
    body = {
        "stream": True,
        "max_tokens": tokens,
        "messages": [{"role": "user", "content": "lorem " * (characters // 6)}],
    }
    content = json.dumps(body).encode()
    wire = b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (len(content), content)
    epoll, sockets = select.epoll(), {}
    started, first, left = {}, [], requests
    for _ in range(streams):
        sock = socket.create_connection((to.hostname, to.port))
        sockets[sock.fileno()] = sock
        epoll.register(sock.fileno(), select.EPOLLIN)

    def send(fd: int) -> None:
        nonlocal left
        if left:
            left -= 1
            started[fd] = monotonic_ns()
            sockets[fd].sendall(wire)

    begin = monotonic_ns()
    for fd in sockets:
        send(fd)
    ended = 0
    while ended < requests:
        for fd, _ in epoll.poll():
            data = sockets[fd].recv(65536)
            now = monotonic_ns()
            if fd in started and b'"content":" ' in data:
                first.append((now - started.pop(fd)) / 1e6)
            if data.endswith(b"\r\n0\r\n\r\n"):
                ended += 1
                send(fd)
    seconds = (monotonic_ns() - begin) / 1e9
    report = {
        "ttft_ms": mean(first),
        "ttft_p99_ms": quantiles(first, n=100)[98],
        "tok_s": requests * tokens / seconds,
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
