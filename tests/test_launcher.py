"""The launcher and the real llama.cpp behind it, on a tiny model; skipped without ``xllamacpp``."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import reduce
from pathlib import Path
from typing import Any

import psutil
import pytest

import tiny_gguf
from draftmark import llama_launcher
from draftmark.engines import llamacpp
from draftmark.engines.llamacpp_flags import NAMES, RENAMED
from draftmark.engines.types import Launch
from draftmark.schema import EngineSpec, Message, Method, ModelSpec, Request, RequestRecord, Service
from draftmark.staging import LAUNCHER, model_path

pytest.importorskip("xllamacpp", reason="the llamacpp extra is not installed")

GUARD_S = 30.0
PROGRAM = (sys.executable, str(LAUNCHER))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_gguf.write(tmp_path_factory.mktemp("models") / "tiny.gguf")


def service(kind: str = "none", slots: int = 1, context: int = 2048, **params: Any) -> Service:
    return Service(
        id="s",
        phase="tp1",
        host="local",
        tp=1,
        engine=EngineSpec(kind="llamacpp"),
        model=ModelSpec(target="tiny.gguf"),
        method=Method(name="m", kind=kind, params=params),
        context_needed=context,
        max_running_requests=slots,
        ready_timeout_s=GUARD_S,
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Server:
    """A started launcher."""

    def __init__(self, process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
        self.process, self.port, self.log = process, port, log

    def get(self, path: str) -> str:
        return self._exchange("GET", path, None).decode()

    def tail(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Top-level fields of a stream's events, later ones over earlier ones."""
        fields: dict[str, Any] = {}
        for line in self._exchange("POST", path, json.dumps(body)).splitlines():
            if line.startswith(b"data: {"):
                fields |= json.loads(line.removeprefix(b"data: "))
        return fields

    def _exchange(self, verb: str, path: str, body: str | None) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=GUARD_S)
        try:
            connection.request(verb, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
            assert answer.status == 200, text
            return text
        finally:
            connection.close()

    def is_ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        with suppress(OSError, AssertionError):
            return '"ok"' in self.get("/health")
        return False


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + GUARD_S
    while not holds():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.02)


@contextmanager
def running(made: Service, model: Path, folder: Path, draft: Path | None = None) -> Iterator[Server]:
    port, log = free_port(), folder / "server.log"
    launch = Launch(
        port=port,
        served_name="tiny-1",
        model=str(model),
        draft=str(draft) if draft else None,
        program=PROGRAM,
        cores=2,
    )
    with log.open("wb") as out:
        process = subprocess.Popen(llamacpp.command(made, launch).argv, stdout=out, stderr=out)
    server = Server(process, port, log)
    try:
        eventually(server.is_ready)
        yield server
    finally:
        process.terminate()
        try:
            process.wait(GUARD_S)
        finally:
            process.kill()


def requests(tokens: int = 64) -> list[Request]:
    """Chat, raw text and token ids."""
    common: dict[str, Any] = {"prompt_id": "p", "kind": "code", "max_tokens": tokens}
    return [
        Request(id="chat", messages=(Message(role="user", content="abc abc abc abc"),), **common),
        Request(id="text", prompt="abcdefg" * 8, **common),
        Request(id="ids", prompt=tuple(range(60, 90)), **common),
    ]


def record(server: Server, made: Service, request: Request) -> RequestRecord:
    path, body = llamacpp.request_body(made, request, "tiny-1")
    fields = server.tail(path, body)
    tokens = fields["usage"]["completion_tokens"]
    return RequestRecord(
        request=request.id,
        prompt_id="p",
        kind="code",
        role="measured",
        start_s=0.0,
        max_tokens=request.max_tokens,
        output_tokens=tokens,
        cached_tokens=fields["usage"]["prompt_tokens_details"]["cached_tokens"],
        speculation=llamacpp.request_speculation(fields, tokens),
    )


def total(records: list[RequestRecord], field: str) -> int:
    return sum(getattr(each.speculation, field) for each in records)


def decodes(page: str) -> int:
    line = next(line for line in page.splitlines() if line.startswith("llamacpp:n_decode_total "))
    return int(float(line.split()[1]))


METHODS: list[tuple[str, dict[str, Any]]] = [
    ("none", {}),
    ("ngram-simple", {"size_n": 2, "size_m": 4}),
    ("ngram-map-k", {"size_n": 2, "size_m": 4}),
    ("ngram-map-k4v", {"size_n": 2, "size_m": 4}),
    ("ngram-mod", {"n_match": 2, "n_min": 1, "n_max": 4}),
    ("ngram-cache", {}),
    ("draft-model", {"n_max": 3}),
    ("dflash", {"block_size": tiny_gguf.BLOCK}),
]


@pytest.mark.parametrize(("kind", "params"), METHODS, ids=[kind for kind, _ in METHODS])
def test_acceptance_agrees(kind: str, params: dict[str, Any], tiny: Path, tmp_path: Path) -> None:
    """Streams, counters and decode calls give the same steps, for each method and each kind of prompt."""
    made = service(kind, **params)
    draft = tiny_gguf.write_dflash(tmp_path / "draft.gguf") if kind == "dflash" else tiny
    with running(made, tiny, tmp_path, draft=draft) as server:
        before = server.get("/metrics")
        records = [record(server, made, request) for request in requests()]
        after = server.get("/metrics")
        facts = llamacpp.facts(server.log.read_text(), {path: server.get(path) for path in FACT_PATHS})
    said = llamacpp.speculation(before, after, records)
    assert said is not None
    for field in ("tokens", "steps", "accepted", "drafted"):
        assert getattr(said, field) == total(records, field)
    # One further decode call for each request is its prompt's, which gives the first token.
    assert decodes(after) - decodes(before) == total(records, "steps") + len(records)
    assert all(each.output_tokens == 64 and each.cached_tokens == 0 for each in records)
    assert facts["speculation"] is llamacpp.METHODS[kind].speculative
    assert (said.drafted or 0) > 0 or kind in ("none", "ngram-simple")


FACT_PATHS = llamacpp.readiness(service()).fact_paths


def test_a_perfect_draft_is_always_accepted(tiny: Path, tmp_path: Path) -> None:
    """A model that drafts for itself has each draft accepted: n_max + 1 tokens a step, until the end."""
    made = service("draft-model", n_max=3)
    with running(made, tiny, tmp_path, draft=tiny) as server:
        said = record(server, made, requests(tokens=101)[0]).speculation
    assert said is not None
    assert said.accepted == said.drafted
    assert (said.tokens, said.steps) == (100, 25)


def test_acceptance_agrees_under_concurrency(tiny: Path, tmp_path: Path) -> None:
    """With four slots in use the sum over streams is still what the counters say."""
    made = service("ngram-map-k4v", slots=4, size_n=2, size_m=4)
    with running(made, tiny, tmp_path) as server, ThreadPoolExecutor(4) as pool:
        before = server.get("/metrics")
        records = list(pool.map(lambda request: record(server, made, request), requests() * 4))
        said = llamacpp.speculation(before, server.get("/metrics"), records)
    assert said is not None
    assert (said.tokens, said.steps) == (total(records, "tokens"), total(records, "steps"))
    assert (said.accepted, said.drafted) == (total(records, "accepted"), total(records, "drafted"))
    assert said.accepted == sum(said.accepted_per_position)


def test_facts(tiny: Path, tmp_path: Path) -> None:
    """What was asked for is what the server says it has."""
    with running(service(slots=3, context=500), tiny, tmp_path) as server:
        # It answers a moment before it says so.
        eventually(lambda: "listening on http" in server.log.read_text())
        log = server.log.read_text()
        facts = llamacpp.facts(log, {path: server.get(path) for path in FACT_PATHS})
        listed = json.loads(server.get("/v1/models"))
    assert (facts["max_running_requests"], facts["context_length"]) == (3, 512)
    assert facts["chat_template"] is True
    assert facts["version"] != "b0-unknown"
    assert listed["data"][0]["id"] == "tiny-1"
    places = [log.index(text) for text, _ in llamacpp.readiness(service()).markers]
    assert places == sorted(places)


def test_context_holds_the_longest_request(tiny: Path, tmp_path: Path) -> None:
    """A request that needs exactly the context of its slot is not cut short."""
    made = service(context=256)
    with running(made, tiny, tmp_path) as server:
        request = Request(id="r", prompt_id="p", kind="code", prompt=(65,) * 56, max_tokens=200)
        assert record(server, made, request).output_tokens == 200


def test_fallback_to_no_speculation_shows(tiny: Path, tmp_path: Path) -> None:
    """A server that cannot speculate as asked serves without; its facts say so, and why."""
    with running(service("eagle3"), tiny, tmp_path, draft=tiny) as server:
        facts = llamacpp.facts(server.log.read_text(), {path: server.get(path) for path in FACT_PATHS})
    assert facts["speculation"] is False
    assert "not eagle3" in facts["speculation_fault"]


def test_synthetic_acceptance(tiny: Path, tmp_path: Path) -> None:
    """Acceptance that is made up has the length that was asked for, and the server says what it is."""
    made = service("draft-model", n_max=4, synthetic_length=3.0)
    with running(made, tiny, tmp_path, draft=tiny) as server:
        said = record(server, made, requests(tokens=400)[0]).speculation
        facts = llamacpp.facts(server.log.read_text(), {})
    assert facts["synthetic"] is True
    assert said is not None
    assert said.tokens is not None
    assert said.steps is not None
    assert said.tokens / said.steps == pytest.approx(3.0, rel=0.2)


def test_it_stops_while_it_generates(tiny: Path, tmp_path: Path) -> None:
    """A SIGTERM in the middle of an endless answer still ends it in order."""
    made = service(context=4096)
    with running(made, tiny, tmp_path) as server, ThreadPoolExecutor(1) as pool:
        path, body = llamacpp.request_body(made, requests(tokens=4000)[1], "tiny-1")
        asked = pool.submit(server.tail, path, body)
        eventually(lambda: '"is_processing":true' in server.get("/slots"))
        server.process.terminate()
        assert server.process.wait(GUARD_S) == 0
        assert asked.exception() is not None or "timings" not in asked.result()


def test_it_ends_with_its_parent(tiny: Path) -> None:
    """A launcher whose parent was killed does not live on."""
    port = free_port()
    words = [*PROGRAM, "--model", str(tiny), "--port", str(port), "--threads", "1"]
    start = f"import subprocess; print(subprocess.Popen({words!r}, stderr=-3).pid, flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", start], stdin=-1, stdout=-1) as parent:
        assert parent.stdout is not None
        launcher = psutil.Process(int(parent.stdout.readline()))
        eventually(lambda: b"listening" in _peek(port))
        os.kill(parent.pid, signal.SIGKILL)
    eventually(lambda: not launcher.is_running() or launcher.status() == psutil.STATUS_ZOMBIE)


def _peek(port: int) -> bytes:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return b"listening"
    return b""


def refused(*arguments: str, python: tuple[str, ...] = (sys.executable,)) -> tuple[int, str]:
    words = [*python, str(LAUNCHER), *arguments]
    run = subprocess.run(words, capture_output=True, text=True, timeout=GUARD_S)
    return run.returncode, run.stderr


def test_a_wrong_start_is_refused(tiny: Path, tmp_path: Path) -> None:
    """What cannot be served ends with status 1 and one line that says why."""
    other = tmp_path / "other.gguf"
    other.write_bytes(b"not a model")
    assert refused() == (1, "error: --model is missing\n")
    assert refused("-m", "/no/such.gguf") == (
        1,
        "error: failed to load model, '/no/such.gguf': No such file or directory\n",
    )
    assert refused("-m", str(other)) == (1, f"error: failed to load model, '{other}': not a GGUF file\n")
    assert refused("-m", str(tiny), "-md", str(other))[0] == 1


def test_a_damaged_model_is_refused(tiny: Path, tmp_path: Path) -> None:
    """A model that llama.cpp cannot load ends with status 1; the log above the last line says why."""
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(tiny.read_bytes()[:5000])
    status, said = refused("-m", str(cut), "--port", str(free_port()))
    assert status == 1
    assert "error: llama.cpp did not start" in said.splitlines()[-1]


def test_a_taken_port_is_refused(tiny: Path) -> None:
    """A port that another program has is named."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        status, said = refused("-m", str(tiny), "--port", str(port))
    assert status == 1
    assert f"hostname: 127.0.0.1, port: {port}" in said


def test_wrong_flags_are_refused(tiny: Path) -> None:
    """A flag that is unknown or has a wrong value ends with status 2, and abbreviations are unknown."""
    for words, part in [
        (("--parallell", "2"), "unrecognized arguments: --parallell"),
        (("--para", "2"), "unrecognized arguments: --para"),
        (("--cache-type-k", "q3"), "invalid value 'q3'; known: f32, f16"),
        (("--fit", "maybe"), "invalid value 'maybe'; known: on, off"),
        (("--ctx-size", "many"), "--ctx-size"),
        (("--spec-type", "ngram"), "invalid value 'ngram'"),
    ]:
        status, said = refused("-m", str(tiny), *words)
        assert status == 2
        assert part in said


def test_without_the_wheel() -> None:
    """An interpreter without xllamacpp says what to install."""
    status, said = refused("-m", "x.gguf", python=(sys.executable, "-I", "-S"))
    assert status == 1
    assert "pip install 'draftmark[llamacpp]'" in said


def test_version() -> None:
    """The version can be asked for without a model."""
    run = subprocess.run([*PROGRAM, "--version"], capture_output=True, text=True, timeout=GUARD_S)
    assert run.returncode == 0
    assert run.stdout.startswith("version: 20")


WORDS = {
    "--host": "127.0.0.1",
    "--alias": "a,b",
    "--api-key": "k",
    "--gpu-layers": "all",
    "--spec-draft-ngl": "auto",
    "--spec-type": "draft-dflash,ngram-mod",
    "--spec-synth-rates": "0.5,0.25",
    "--chat-template-file": __file__,
    "--chat-template-kwargs": '{"a": true}',
    "--fit": "on",
    "--reasoning": "auto",
    "--spec-draft-sampling": "greedy",
    "--flash-attn": "on",
    "--split-mode": "row",
    "--load-mode": "mmap",
    "--rope-scaling": "yarn",
    "--reasoning-format": "none",
}
KINDS: dict[Any, str] = {int: "3", float: "0.5", str: "word"}


def test_every_flag_reaches_the_server_s_parameters() -> None:
    """Each flag of the launcher sets what it names, and is one that a plan may set or draftmark sets."""
    words = []
    for names, _, convert in llama_launcher.OPTIONS:
        first = names.split()[0]
        words += [first, KINDS.get(convert) or WORDS.get(first, "q8_0")]
    words += [names.split()[0] for names in llama_launcher.SWITCHES]
    options = vars(llama_launcher.parser().parse_args(words))
    options.pop("version")
    params = llama_launcher.configured(options)
    for targets, value in options.items():
        for target in targets.split():
            assert reduce(getattr, target.split("."), params) == value, target


def test_every_flag_of_the_launcher_is_known() -> None:
    """A plan may set each flag of the launcher, by each of its names, except for those about who may ask."""
    known = NAMES | set(RENAMED)
    rows = [names for names, *_ in llama_launcher.OPTIONS] + list(llama_launcher.SWITCHES)
    names = {name.lstrip("-") for row in rows for name in row.split()}
    assert names - known == {"api-key", "api-prefix"}


@pytest.mark.llamacpp_slow
@pytest.mark.parametrize(("kind", "params"), METHODS[:-2], ids=[kind for kind, _ in METHODS[:-2]])
def test_acceptance_agrees_on_a_real_model(kind: str, params: dict[str, Any], tmp_path: Path) -> None:
    """The same on the bundled model, whose answers end by themselves too."""
    made = service(kind, **params)
    model = Path(model_path("smollm2-135m"))
    with running(made, model, tmp_path) as server:
        before = server.get("/metrics")
        records = [record(server, made, request) for request in real_requests()]
        after = server.get("/metrics")
    said = llamacpp.speculation(before, after, records)
    assert said is not None
    assert said.steps == total(records, "steps")
    assert decodes(after) - decodes(before) == total(records, "steps") + len(records)


def real_requests() -> list[Request]:
    code = "Repeat this code:\ndef add(a, b):\n    return a + b\n\ndef sub(a, b):\n    return a - b\n"
    asked = [code, "Say hello.", "List the numbers from 1 to 9.", "What is two plus two?"]
    return [
        Request(
            id=f"r{at}",
            prompt_id="p",
            kind="code",
            messages=(Message(role="user", content=text),),
            max_tokens=128,
            ignore_eos=at == 0,
        )
        for at, text in enumerate(asked)
    ]
