"""The load client against a server that logs when it truly wrote what."""

import contextlib
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from ast import literal_eval
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from draftmark.client import endpoint, record
from draftmark.engines import attach
from draftmark.engines.openai import streamed
from draftmark.errors import BadInput
from draftmark.load import LoadJob, measure, measure_apart
from draftmark.load.apart import split, worker_count
from draftmark.load.loop import Limits, Loop
from draftmark.load.schedule import Closed
from draftmark.load.shelf import Shelf
from draftmark.metrics import flags
from draftmark.metrics import measure as metrics_of
from draftmark.schema import (
    Cell,
    EngineSpec,
    LoadResult,
    Message,
    Method,
    ModelSpec,
    Request,
    RequestRecord,
    Role,
    Service,
    Session,
    Work,
)
from timed_server import JSON, Handle, running

MEASURES = pytest.mark.parametrize("run", [measure, measure_apart])
Measure = Callable[..., LoadResult]


def service(url: str) -> Service:
    return Service(
        id="attach-none",
        phase="attach",
        host="local",
        tp=1,
        engine=EngineSpec(kind="attach", url=url),
        model=ModelSpec(target="timed"),
        method=Method(name="none", kind="none"),
        context_needed=100,
        max_running_requests=64,
        ready_timeout_s=5.0,
    )


def request(name: str, tokens: int = 16, role: Role = "measured", **fields: Any) -> Request:
    message = Message(role="user", content=f"Please answer {name}")
    return Request(
        id=name, prompt_id=name, kind="code", role=role, messages=(message,), max_tokens=tokens, **fields
    )


def job(server: Handle | str, work: Work, **fields: Any) -> LoadJob:
    url = server if isinstance(server, str) else server.url
    defaults: JSON = {"concurrency": 1, "timeout_s": 30.0, "stall_s": 10.0, "give_up": 3}
    return LoadJob(base_url=url, service=service(url), served_name="timed", work=work, **defaults | fields)


def requests(count: int, tokens: int = 16) -> Work:
    return Work(requests=tuple(request(f"r{i}", tokens) for i in range(count)))


def staggered(count: int) -> Work:
    """Of various lengths, so that the streams do not stay in step."""
    return Work(requests=tuple(request(f"r{i}", 16 + i * 7 % 23) for i in range(count)))


def only(result: LoadResult) -> RequestRecord:
    [record] = result.records
    return record


# --- timing ----------------------------------------------------------------------------------------


def errors_ms(result: LoadResult, truths: list[JSON]) -> tuple[float, float]:
    """Medians of |TTFT - truth| and of |time per token - truth|, in milliseconds."""
    truth = {entry["prompt"]: entry for entry in truths}
    ttft, tpot = [], []
    for answer in result.records:
        assert answer.ok
        entry = truth[f"Please answer {answer.request}"]
        writes = entry["writes"]
        assert len(answer.chunks) == len(writes)
        first, last = answer.chunks[0].t_s * 1e3, answer.chunks[-1].t_s * 1e3
        ttft.append(abs(first - (writes[0][1] - entry["complete_ns"]) / 1e6))
        span = (writes[-1][1] - writes[0][1]) / 1e6
        tpot.append(abs((last - first) - span) / (entry["tokens"] - writes[0][2]))
    return median(ttft), median(tpot)


SHAPES: list[JSON] = [
    {},
    {"chunk_tokens": 4},
    {"role_first": False},
    {"reasoning": 8},
    {"reasoning": 8, "reasoning_field": "reasoning"},
    {"usage": "none"},
    {"newline": "\r\n", "comments": True},
]
CASES = [(streams, shape) for streams in (1, 64) for shape in SHAPES]


@pytest.mark.parametrize(("streams", "shape"), [*CASES, (1, {"split": 1}), (64, {"split": 99})])
def test_times_are_true_to_a_millisecond(timed_server: Handle, streams: int, shape: JSON) -> None:
    """TTFT and time per token are within 1 ms of what the server logged, whatever the stream looks like."""
    timed_server.behave(ttft_ms=30, itl_ms=20 if streams > 1 else 4, **shape)
    for attempt in range(4):
        done = len(timed_server.truth())
        result = measure_apart(job(timed_server, staggered(max(4, 2 * streams)), concurrency=streams))
        ttft, tpot = errors_ms(result, timed_server.truth()[done:])
        if ttft < 1 and tpot < 1:
            return
        time.sleep(attempt)  # others may be using the machine
    pytest.fail(f"median error of TTFT {ttft:.2f} ms, of time per token {tpot:.2f} ms")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the kernel gives no times")
def test_many_streams_are_not_the_clients_fault(timed_server: Handle) -> None:
    """From 32 on the loop looks only now and then: the kernel has the times, and no flag is raised."""
    timed_server.behave(ttft_ms=30, itl_ms=20)
    asked = Cell(id="c64-100", workload="concurrency", max_tokens=100, concurrency=64, requests=64)
    for attempt in range(4):
        result = measure_apart(job(timed_server, requests(64, 100), concurrency=64))
        assert result.health.kernel_times
        raised = {flag.kind: flag.detail for flag in flags(asked, result, metrics_of(asked, result, None))}
        if "client-bound" not in raised:
            return
        time.sleep(attempt)  # others may be using the machine
    pytest.fail(raised["client-bound"])


@MEASURES
def test_records_are_one_per_request_in_order_of_start(timed_server: Handle, run: Measure) -> None:
    """Each request of a closed loop is recorded once, with its text, tokens and role."""
    result = run(job(timed_server, requests(9), concurrency=2))
    assert [record.request for record in result.records] == [f"r{i}" for i in range(9)]
    assert all(record.ok and record.text == " the" * 16 for record in result.records)
    assert {(record.output_tokens, record.prompt_tokens, record.role) for record in result.records} == {
        (16, 7, "measured")
    }
    assert len(timed_server.truth()) == 9


@MEASURES
def test_progress_counts_up_to_all(timed_server: Handle, run: Measure) -> None:
    """The number of ended requests is told as it grows, and at last is all of them."""
    seen: list[int] = []
    run(job(timed_server, requests(6, 60)), seen.append)
    assert seen == sorted(seen)
    assert len(set(seen)) > 2
    assert seen[-1] == 6


def in_flight(truths: list[JSON]) -> int:
    """Most requests that the server had at a time."""
    marks = [(entry["complete_ns"], 1) for entry in truths] + [
        (entry["writes"][-1][0], -1) for entry in truths
    ]
    running = most = 0
    for _, step in sorted(marks):
        running += step
        most = max(most, running)
    return most


def test_a_closed_loop_keeps_its_streams_busy(timed_server: Handle) -> None:
    """As many requests run as there are streams, never more."""
    measure(job(timed_server, staggered(24), concurrency=4))
    assert in_flight(timed_server.truth()) == 4


def test_an_open_loop_sends_on_time_whatever_is_running(timed_server: Handle) -> None:
    """Requests go out at their times though the first is still running, and how late is recorded."""
    timed_server.behave(itl_ms=10)
    work = Work(requests=tuple(request(f"r{i}", 40, send_at_s=0.02 * i) for i in range(10)))
    result = measure(job(timed_server, work))
    assert in_flight(timed_server.truth()) == 10
    for i, sent in enumerate(result.records):
        assert sent.ok
        assert sent.sent_late_s is not None
        assert sent.start_s == pytest.approx(0.02 * i + sent.sent_late_s, abs=1e-6)


def test_a_session_grows_with_the_models_own_replies(timed_server: Handle) -> None:
    """Each turn holds all before it, the reply to the last turn included."""
    turns = tuple((Message(role="user", content=f"turn {i}"),) for i in range(3))
    sessions = tuple(
        Session(id=f"s{i}", prompt_id=f"s{i}", scenario="cli", turns=turns, max_tokens=4) for i in range(3)
    )
    result = measure(job(timed_server, Work(sessions=sessions), concurrency=2))
    assert sorted((record.session, record.turn) for record in result.records) == [
        (f"s{i}", turn) for i in range(3) for turn in range(3)
    ]
    assert sorted(entry["messages"] for entry in timed_server.truth()) == [1, 1, 1, 3, 3, 3, 5, 5, 5]
    assert in_flight(timed_server.truth()) == 2


# --- failures --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fail", "error", "chunks"),
    [
        ("500", "http-500", 0),
        ("429", "http-429", 0),
        ("close", "cut", 0),
        ("cut", "cut", 3),
        ("reset", "reset", 3),
        ("json", "bad-json", 3),
        ("error", "server-error", 3),
        ("stall", "stalled", 3),
    ],
)
def test_a_failure_is_a_record(timed_server: Handle, fail: str, error: str, chunks: int) -> None:
    """A request that fails says how, in a word, and keeps what had come."""
    timed_server.behave(fail=fail)
    record = only(measure(job(timed_server, requests(1), stall_s=0.5)))
    assert record.error == error
    assert record.error_detail
    assert len(record.chunks) == chunks
    assert record.output_tokens is None or fail in ("json", "error")


def test_an_answer_that_never_ends_is_timed_out(timed_server: Handle) -> None:
    """The time limit of a request holds though the server keeps sending."""
    timed_server.behave(fail="endless")
    record = only(measure(job(timed_server, requests(1), timeout_s=0.5)))
    assert record.error == "timeout"
    assert record.chunks


@pytest.mark.parametrize("fail", ["stall", "500", "close"])
def test_a_broken_server_ends_the_cell_soon(timed_server: Handle, fail: str) -> None:
    """After so many failures in a row no more is sent."""
    timed_server.behave(fail=fail)
    result = measure(job(timed_server, requests(50), stall_s=0.3, give_up=3))
    assert len(result.records) == 3


def test_a_server_that_is_not_there_ends_the_cell_soon() -> None:
    """Nothing listens: the failures are recorded, and not many of them."""
    with running() as server:
        url = server.url
    assert [record.error for record in measure(job(url, requests(50))).records] == ["connect"] * 3


def test_a_failure_now_and_then_does_not_end_the_cell(timed_server: Handle) -> None:
    """Only consecutive failures count."""
    timed_server.behave(fail="500", fail_every=2)
    result = measure(job(timed_server, requests(10), give_up=2))
    assert [record.ok for record in result.records] == [True, False] * 5


def test_a_server_that_closes_after_each_answer_costs_no_request(timed_server: Handle) -> None:
    """Connections are opened again as needed, announced or not."""
    for close in ("announced", "silent"):
        timed_server.behave(close=close)
        assert all(record.ok for record in measure(job(timed_server, requests(6), concurrency=2)).records)


def test_a_chunk_of_ten_megabytes_is_one_chunk(timed_server: Handle) -> None:
    """Size does not matter, nor that it arrives in hundreds of reads."""
    timed_server.behave(word="x" * 10_000_000, tokens=2)
    record = only(measure(job(timed_server, requests(1))))
    assert [len(chunk.text) for chunk in record.chunks] == [10_000_000] * 2


def test_a_large_body_is_sent_whole(timed_server: Handle) -> None:
    """A prompt larger than the socket takes at once arrives complete."""
    text = "".join(f"{i} " for i in range(600_000))
    big = structs.replace(request("r0"), messages=(Message(role="user", content=text),))
    assert only(measure(job(timed_server, Work(requests=(big,))))).ok
    assert timed_server.truth()[0]["length"] == len(text)


def test_cached_and_counted_tokens_are_the_servers_word(timed_server: Handle) -> None:
    """Running totals give each chunk its tokens; without usage nothing is guessed."""
    timed_server.behave(usage="running", chunk_tokens=3, cached_tokens=5)
    record = only(measure(job(timed_server, requests(1, 8))))
    assert [chunk.tokens for chunk in record.chunks] == [3, 3, 2]
    assert record.cached_tokens == 5
    timed_server.behave(usage="none")
    record = only(measure(job(timed_server, requests(1, 8))))
    assert (record.output_tokens, {chunk.tokens for chunk in record.chunks}) == (None, {None})


@pytest.mark.parametrize(
    ("how", "error"),
    [({}, None), ({"close": "sole"}, None), ({"fail": "cut"}, "cut"), ({"fail": "500"}, "http-500")],
)
def test_what_does_not_fit_into_memory_is_not_lost(
    timed_server: Handle, how: dict[str, str], error: str | None
) -> None:
    """Answers that went through the temporary file give the same records, however they ended."""
    timed_server.behave(**how)
    to, limits = endpoint(timed_server.url, {}), Limits(30.0, 10.0, 99)
    texts = []
    for in_memory in (1 << 30, 8000, 0):
        loop = Loop(to, limits)
        loop.shelf = Shelf(in_memory)
        loop.run(Closed(requests(8).requests, 2, lambda each: to.wire(*streamed(each, "timed"))), print)
        records = [record(exchange, 0, attach.request_speculation) for exchange in loop.shelf.take_all()]
        loop.close()
        assert {each.error for each in records} == {error}
        assert all(each.chunks[0].t_s > 0.01 for each in records if each.chunks)
        texts.append(
            sorted((each.request, each.text, len(each.chunks), each.output_tokens) for each in records)
        )
    assert texts[0] == texts[1] == texts[2]


# --- processes -------------------------------------------------------------------------------------


def test_a_url_that_is_none_is_bad_input() -> None:
    """Nothing is sent; the message says what was expected."""
    with pytest.raises(BadInput, match="expected http"):
        measure_apart(job("localhost:80", requests(1)))


def test_several_workers_report_as_one(timed_server: Handle) -> None:
    """The streams are shared out, and the records come back on one clock, in order of start."""
    result = measure_apart(job(timed_server, staggered(24), concurrency=5), workers=2)
    assert sorted(each.request for each in result.records) == sorted(f"r{i}" for i in range(24))
    starts = [each.start_s for each in result.records]
    assert starts == sorted(starts)
    assert max(starts[:5]) < 0.02
    assert (result.health.workers, in_flight(timed_server.truth())) == (2, 5)


@given(streams=st.integers(1, 5000), cores=st.integers(1, 256), count=st.integers(0, 40))
def test_splitting_loses_nothing(streams: int, cores: int, count: int) -> None:
    """Each request and each stream goes to one worker, and every worker has a stream."""
    whole = job("http://localhost", requests(count), concurrency=streams)
    parts = split(whole, worker_count(streams, cores))
    assert sum(part.concurrency for part in parts) == streams
    assert min(part.concurrency for part in parts) >= 1
    sent = [each.id for part in parts for each in part.work.requests]
    assert sorted(sent) == sorted(each.id for each in whole.work.requests)
    assert len(parts) <= max(1, cores // 4)


THROUGH_TLS = """
import sys; sys.path.insert(0, {tests!r})
from test_load import *
result = measure(job({url!r}, requests(6, 40), concurrency=2))
print([(each.error, each.error_detail, len(each.chunks)) for each in result.records])
assert not result.health.kernel_times
"""


def tls_relay(listener: ssl.SSLSocket, to: Handle) -> None:
    """Pass everything on, encrypted on one side."""
    while True:
        try:
            near, _ = listener.accept()
        except ssl.SSLError:
            continue  # the client did not like the certificate
        except OSError:
            return
        far = socket.create_connection(("127.0.0.1", to.port))
        for source, sink in ((near, far), (far, near)):
            threading.Thread(target=pump, args=(source, sink), daemon=True).start()


def pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError), source, sink:
        while data := source.recv(65536):
            sink.sendall(data)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")
@pytest.mark.parametrize("trusted", [True, False])
def test_tls(timed_server: Handle, tmp_path: Path, trusted: bool) -> None:
    """The same answers come through TLS, from servers that are trusted; others are not spoken to."""
    pem = tmp_path / "server.pem"
    subject = "-subj /CN=localhost -addext subjectAltName=DNS:localhost -days 2"
    made = f"openssl req -x509 -newkey rsa:2048 -nodes -keyout {pem} -out {tmp_path}/cert {subject}"
    subprocess.run(made.split(), check=True, capture_output=True)
    pem.write_text(pem.read_text() + (tmp_path / "cert").read_text())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    with context.wrap_socket(socket.create_server(("127.0.0.1", 0)), server_side=True) as listener:
        threading.Thread(target=tls_relay, args=(listener, timed_server), daemon=True).start()
        url = f"https://localhost:{listener.getsockname()[1]}"
        code = THROUGH_TLS.format(tests=str(Path(__file__).parent), url=url)
        environ = os.environ | ({"SSL_CERT_FILE": str(tmp_path / "cert")} if trusted else {})
        said = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True)
    assert not said.stderr
    if trusted:
        assert literal_eval(said.stdout) == [(None, "", 40)] * 6
    else:
        assert "certificate verify failed" in said.stdout


PARENT = """
import sys; sys.path.insert(0, {tests!r})
from test_load import *
measure_apart(job({url!r}, requests(1)))
"""


@pytest.mark.parametrize("with_signal", [signal.SIGKILL, signal.SIGINT])
def test_the_client_ends_with_its_parent(timed_server: Handle, with_signal: int) -> None:
    """When the parent is killed or interrupted, the connection to the server closes at once."""
    timed_server.behave(fail="endless")
    code = PARENT.format(tests=str(Path(__file__).parent), url=timed_server.url)
    parent = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    while not timed_server.truth():
        time.sleep(0.05)
    parent.send_signal(with_signal)
    parent.wait(10)
    for _ in range(100):
        if timed_server.truth()[0].get("gone"):
            return
        time.sleep(0.05)
    pytest.fail("the load client outlived its parent")
