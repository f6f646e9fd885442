"""Why a server failed, told from real logs, from lines as the engines print them, and from noise."""

import re
import time
from pathlib import Path
from string import Formatter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.diagnose import UNCLASSIFIED, diagnose, explain, guess_engine, refusal, warnings
from draftmark.diagnose.exits import EXITS, Exit
from draftmark.diagnose.general import GENERAL
from draftmark.diagnose.llamacpp import LLAMACPP
from draftmark.diagnose.sglang import SGLANG
from draftmark.diagnose.signature import Signature
from draftmark.diagnose.vllm import VLLM
from draftmark.schema import Cell, EngineSpec, Method, ModelSpec, Service
from failure_lines import FATAL, HARMLESS

LOGS = Path(__file__).parent / "logs"
DOCUMENT = Path(__file__).parents[1] / "docs" / "diagnose.md"

FAILED = (
    # (file in tests/logs; its name begins with the engine), exit status, cause
    ("llamacpp-architecture.log", 1, "unknown-architecture"),
    ("llamacpp-bad-value.log", 2, "bad-flag"),
    ("llamacpp-cache-memory.log", 1, "host-out-of-memory"),
    ("llamacpp-cut-off.log", 1, "model-damaged"),
    ("llamacpp-draft-cut-off.log", 1, "model-damaged"),
    ("llamacpp-garbled.log", 1, "model-damaged"),
    ("llamacpp-killed.log", -9, "killed"),
    ("llamacpp-no-batch.log", -6, "engine-assertion"),
    ("llamacpp-no-draft.log", 1, "model-missing"),
    ("llamacpp-no-model.log", 1, "model-missing"),
    ("llamacpp-no-mtp-heads.log", 1, "no-draft-heads"),
    ("llamacpp-not-gguf.log", 1, "model-damaged"),
    ("llamacpp-other-drafter.log", -6, "engine-assertion"),
    ("llamacpp-port.log", 1, "port-in-use"),
    ("llamacpp-quantized-cache.log", 1, "bad-flag"),
    ("llamacpp-synthetic-length.log", 1, "speculation-off"),
    ("llamacpp-thread-limit.log", -6, "process-limit"),
    ("llamacpp-unknown-flag.log", 2, "bad-flag"),
    ("llamacpp-weights-memory.log", -6, "host-out-of-memory"),
)
SERVED = (
    # file, what is to be warned of
    ("llamacpp-healthy.log", ()),
    ("llamacpp-draftless.log", ("speculation-off",)),
    ("llamacpp-long-request.log", ("request-too-long",)),
    ("llamacpp-vocabulary.log", ("vocabulary-mismatch", "speculation-off")),
)

TABLES = {"sglang": SGLANG, "vllm": VLLM, "llamacpp": LLAMACPP}

SGLANG_READY = "[2026-11-29 10:00:00] The server is fired up and ready to roll!\n"
SGLANG_END = (
    "[2026-11-29 10:00:09] Received sigquit from a child process. It usually means the child failed.\n"
    "[2026-11-29 10:00:09] kill_process_tree called: parent_pid=1\n"
)


def read(name: str) -> str:
    return (LOGS / name).read_text(errors="replace")


def engine_of(name: str) -> str:
    return name.partition("-")[0]


def cause(
    log: str, engine: str | None = "sglang", status: int | None = -9, ready: bool | None = False
) -> str:
    found = diagnose(log, engine, status, ready=ready)
    return found.cause if found else ""


def scheduler_failure(exception: str, rank: str = "TP0") -> str:
    return (
        f"[2026-11-29 10:00:00 {rank}] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/opt/venv/sglang/srt/managers/scheduler.py", line 4940, in run_scheduler_process\n'
        "    scheduler = Scheduler(\n"
        "                ^^^^^^^^^^\n"
        f"{exception}\n\n"
    )


def service(concurrency: int = 2, **fields: Any) -> Service:
    cell = Cell(
        id="c", workload="concurrency", max_tokens=64, concurrency=concurrency, requests=8, hash="", seed=0
    )
    common: dict[str, Any] = {
        "id": "s",
        "phase": "tp1",
        "host": "local",
        "tp": 1,
        "engine": EngineSpec(kind="sglang"),
        "model": ModelSpec(target="m"),
        "method": Method(name="m", kind="none"),
        "context_needed": 2300,
        "max_running_requests": 8,
        "memory_fraction": 0.85,
        "ready_timeout_s": 900.0,
        "cells": (cell,),
    }
    return Service(**(common | fields))


@pytest.mark.parametrize(("name", "status", "expected"), FAILED)
def test_a_real_failure_has_its_cause(name: str, status: int, expected: str) -> None:
    """The log of a server that failed gives its cause, with the line that says so."""
    found = diagnose(read(name), engine_of(name), status, ready=None)
    assert found
    assert found.cause == expected
    assert found.summary
    assert found.remedy
    assert found.evidence


@pytest.mark.parametrize("name", [name for name, _, cause in FAILED if cause != "killed"])
def test_a_log_of_unknown_origin_has_its_cause(name: str) -> None:
    """Neither the engine nor the exit status is needed where the log says why."""
    told = diagnose(read(name), engine_of(name), 1, ready=False)
    alone = diagnose(read(name), None, None, ready=None)
    assert told
    assert alone
    assert alone.cause == told.cause


@pytest.mark.parametrize(("name", "expected"), SERVED)
@pytest.mark.parametrize("status", [None, 0, -9])
def test_a_healthy_log_raises_no_diagnosis(name: str, expected: tuple[str, ...], status: int | None) -> None:
    """A server that served and was stopped did not fail, whatever its exit status; warnings stand apart."""
    log = read(name)
    assert diagnose(log, engine_of(name), status, ready=True, stopped=True) is None
    assert diagnose(log, None, None, ready=None) is None
    assert tuple(warning.cause for warning in warnings(log, engine_of(name))) == expected
    assert guess_engine(log) == engine_of(name)


@pytest.mark.parametrize(("engine", "expected", "line"), FATAL)
def test_a_fatal_line_is_the_cause(engine: str, expected: str, line: str) -> None:
    """A line as the engine prints it gives the cause, and is quoted with its number."""
    found = diagnose(f"one\n{line}\nthree\n", engine, 1, ready=False)
    assert found
    assert found.cause == expected
    assert any(shown.startswith("> 2: ") for shown in found.evidence)
    assert not re.search(r"[{]\w+[}]", found.summary)


@pytest.mark.parametrize(("engine", "expected", "line"), HARMLESS)
def test_a_harmless_line_is_a_warning(engine: str, expected: str, line: str) -> None:
    """A line that does not end a server is a warning, and no failure of a server that became ready."""
    ready = {"sglang": SGLANG_READY, "vllm": "Application startup complete.\n"}.get(
        engine, "listening on http\n"
    )
    assert [found.cause for found in warnings(line, engine)] == [expected]
    assert diagnose(f"{line}\n{ready}{line}\n", engine, None, ready=None) is None


def test_every_signature_is_met_by_a_line() -> None:
    """No signature is without an example that it, and none before it in its table, fits."""
    met = set()
    for engine, expected, line in (*FATAL, *HARMLESS):
        for signature in (*TABLES[engine], *GENERAL):
            if signature.needle in line and signature.pattern.search(line):
                assert signature.cause == expected, line
                met.add((signature.cause, signature.needle, signature.regex))
                break
    every = {(row.cause, row.needle, row.regex) for row in rows()}
    assert every - met == set()


def rows() -> list[Signature]:
    return [*GENERAL, *SGLANG, *VLLM, *LLAMACPP]


def test_a_summary_names_only_what_the_pattern_gives() -> None:
    """Each field of a summary is a group of its pattern or the phase."""
    for row in rows():
        fields = {field for _, field, _, _ in Formatter().parse(row.summary) if field}
        assert fields <= set(row.pattern.groupindex) | {"phase"}, row


def test_every_cause_is_documented() -> None:
    """The document's table has each cause once."""
    cells = re.findall(r"^\| (`[^|]+`) \|", DOCUMENT.read_text(), re.MULTILINE)
    documented = [name for cell in cells for name in re.findall(r"`([\w-]+)`", cell)]
    causes = {row.cause for row in rows()} | {row.cause for row in EXITS} | {UNCLASSIFIED, "not-ready"}
    assert sorted(documented) == sorted(causes)


def test_the_earliest_root_cause_wins() -> None:
    """What comes after the first root cause is a consequence of it."""
    log = scheduler_failure("torch.OutOfMemoryError: CUDA out of memory.")
    log += "RuntimeError: Rank 0 scheduler died during initialization (exit code: -9).\n" + SGLANG_END
    assert cause(log) == "gpu-out-of-memory"


def test_a_wrapper_points_to_its_exception() -> None:
    """An exception that is not known, behind a wrapper, comes before a known consequence of it."""
    log = scheduler_failure("ValueError: no such thing as a square circle")
    log += "Subprocess scheduler_0 (pid=12) crashed with exit code -9.\n" + SGLANG_END
    found = diagnose(log, "sglang", -9, ready=False)
    assert found
    assert found.cause == UNCLASSIFIED
    assert "ValueError: no such thing as a square circle" in found.summary


def test_a_known_exception_within_the_chain_wins() -> None:
    """A known cause inside chained tracebacks is not hidden by what was raised last."""
    log = scheduler_failure("MemoryError").rstrip("\n") + (
        "\n\nDuring handling of the above exception, another exception occurred:\n\n"
        'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    g()\nKeyError: 3\n'
    )
    assert cause(log + SGLANG_END) == "host-out-of-memory"


def test_the_last_of_unknown_chained_exceptions_is_told() -> None:
    """Of a chain of unknown exceptions the one that left the program is named."""
    log = scheduler_failure("KeyError: 3").rstrip("\n") + (
        "\n\nThe above exception was the direct cause of the following exception:\n\n"
        'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    g()\nRuntimeError: no layer 3\n'
    )
    found = diagnose(log + SGLANG_END, "sglang", -9, ready=False)
    assert found
    assert found.summary.endswith("RuntimeError: no layer 3")


def test_tracebacks_of_several_processes_are_told_apart() -> None:
    """Where each line has the prefix of its process, another process's lines do not end a traceback."""
    at = "ERROR 11-29 10:00:00 [core.py:1510]"
    own, other = f"(EngineCore_DP0 pid=7) {at}", f"(EngineCore_DP1 pid=8) {at}"
    log = (
        f"{own} EngineCore failed to start.\n{own} Traceback (most recent call last):\n"
        f'{other} EngineCore failed to start.\n{own}   File "a.py", line 1, in f\n'
        f"{other} Traceback (most recent call last):\n{own}     g()\n{other} TypeError: the other\n"
        f"{own} TypeError: this one\n(APIServer pid=1) RuntimeError: Engine core initialization failed. "
        "See root cause above. Failed core proc(s): {}\n"
    )
    found = diagnose(log, "vllm", 1, ready=False)
    assert found
    assert found.summary.endswith(": TypeError: this one")


@pytest.mark.parametrize("prefix", ["", "ERROR 06-01 22:03:06 [core.py:500] ", "[rank0]: "])
def test_a_traceback_is_read_with_any_prefix(prefix: str) -> None:
    """All lines of a traceback, or its first alone, may have the logger's prefix."""
    lines = ["Traceback (most recent call last):", '  File "a.py", line 1, in f', "    g()", "TypeError: 3"]
    log = "ERROR 06-01 22:03:06 [core.py:500] EngineCore failed to start.\n"
    log += "\n".join(prefix + line for line in lines) + "\nINFO: bye\n"
    found = diagnose(log, "vllm", 1, ready=False)
    assert found
    assert found.summary.endswith(": TypeError: 3")


def test_a_line_of_another_rank_does_not_end_a_traceback() -> None:
    """A log line between the lines of a traceback is passed over."""
    log = scheduler_failure("KeyError: 3").replace(
        "    scheduler =", "[2026-11-29 10:00:00 TP1] Bye\n    scheduler ="
    )
    found = diagnose(log, "sglang", -9, ready=False)
    assert found
    assert found.summary.endswith(": KeyError: 3")


def test_a_wrapper_is_not_its_own_cause() -> None:
    """The traceback that a wrapper stands in is no cause; an error before it is."""
    wrapper = (
        "(APIServer pid=1) Traceback (most recent call last):\n"
        '(APIServer pid=1)   File "a.py", line 1, in f\n'
        "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed\n"
    )
    assert cause(wrapper, "vllm", 1) == "engine-failed"
    found = diagnose(
        f"(EngineCore pid=2) ERROR 11-29 10:00:00 [a.py:1] odd\n{wrapper}", "vllm", 1, ready=False
    )
    assert found
    assert found.cause == UNCLASSIFIED
    assert found.summary.endswith(": odd")


def test_a_needle_alone_is_not_a_match() -> None:
    """A line that has the text of a failure and not its form does not hide a later one."""
    found = diagnose(
        "error: argument \nsglang serve: error: argument --tp: expected one\n", "sglang", 2, ready=False
    )
    assert found
    assert found.summary == "the engine refuses the value of --tp: expected one"


def test_a_capture_failure_is_not_always_memory() -> None:
    """SGLang advises less memory for every failed capture; the cause is what stands before it."""
    log = scheduler_failure("RuntimeError: rmsnorm failed to dispatch data type Float")
    log += "Exception: Capture cuda graph failed: rmsnorm failed to dispatch data type Float\n"
    log += "Possible solutions:\n1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)\n"
    assert cause(log + SGLANG_END) == "unsupported-dtype"


@pytest.mark.parametrize(
    ("marker", "phase"),
    [
        ("Load weight begin. avail mem=78.9 GB", "loading the weights"),
        ("Memory pool end. avail mem=9.0 GB", "capturing CUDA graphs"),
        ("max_total_num_tokens=4096, chunked_prefill_size=4096", "warming up"),
        ("Using seed 0", "starting"),
    ],
)
def test_an_out_of_memory_names_its_phase(marker: str, phase: str) -> None:
    """The last sign of progress before it says what the memory was wanted for."""
    log = f"[2026-11-29 10:00:00 TP0] {marker}\n" + scheduler_failure("torch.OutOfMemoryError: CUDA")
    found = diagnose(log + "Load weight begin.\n", "sglang", -9, ready=False)
    assert found
    assert found.summary == f"the GPU ran out of memory while {phase}"


def test_sglang_ending_itself_is_not_the_oom_killer() -> None:
    """SGLang's own SIGKILL is blamed on memory only where the log tells that a process got one."""
    assert cause(SGLANG_END) == "process-failed"
    assert cause("") == "killed"
    assert (
        cause("Subprocess scheduler_0 (pid=12) crashed with exit code -9.\n" + SGLANG_END)
        == "host-out-of-memory"
    )


@pytest.mark.parametrize("entry", EXITS)
def test_an_exit_status_speaks_where_the_log_is_silent(entry: Exit) -> None:
    """Each exit status that is known gives its cause, as a signal and as a shell writes it."""
    engine = entry.engine or "llamacpp"
    assert cause("INFO fine\n", engine, entry.status) == entry.cause
    if entry.status < 0:
        assert cause("INFO fine\n", engine, 128 - entry.status) == entry.cause


def test_a_failure_of_a_server_that_was_ready_comes_after_that() -> None:
    """What was said before a server became ready did not stop it."""
    log = f"MemoryError\n{SGLANG_READY}" + scheduler_failure(
        "RuntimeError: Decode out of memory. Try to lower"
    )
    assert cause(log, ready=True) == UNCLASSIFIED
    log = f"MemoryError\n{SGLANG_READY}RuntimeError: Decode out of memory. Try to lower your batch size.\n"
    assert cause(log, ready=True) == "kv-exhausted"
    assert cause(f"MemoryError\n{SGLANG_READY}", ready=True) == "killed"
    assert cause(f"{SGLANG_READY}a:1 [0] NCCL WARN slow\n", ready=True) == "killed"


def test_sglang_ready_for_another_server_is_not_ready() -> None:
    """A server that could not bind its port failed, though its warm-up reached the one that holds it."""
    log = "ERROR: [Errno 98] error while attempting to bind on address ('127.0.0.1', 30000): in use\n"
    assert cause(log + SGLANG_READY, "sglang", None, None) == "port-in-use"
    assert cause(SGLANG_READY, "sglang", 3, False) == "port-in-use"


def test_a_server_that_was_given_up_was_not_ready_in_time() -> None:
    """A stop while it started is a failure, told by what it was doing; its exit status says nothing."""
    log = read("llamacpp-healthy.log").partition("0.00.020")[0]
    found = diagnose(log, "llamacpp", -15, ready=False, stopped=True)
    assert found
    assert found.cause == "not-ready"
    assert "loading the model" in found.summary


def test_a_log_without_an_end_is_no_failure() -> None:
    """Where neither the log nor the caller says that it failed, it did not."""
    assert diagnose("INFO loading\nERROR: retrying\n", "sglang", None, ready=None) is None
    assert diagnose("", None, None, ready=None) is None


def test_an_unknown_failure_shows_its_last_error() -> None:
    """Without a known text, the last error before anything that only points back is shown as unclassified."""
    log = "INFO a\nERROR: first\nERROR: the disk is made of cheese\n" + SGLANG_END + "ERROR: bye\n"
    found = diagnose(log, "sglang", -9, ready=False)
    assert found
    assert found.cause == UNCLASSIFIED
    assert "the disk is made of cheese" in found.summary
    silent = diagnose("INFO a\n", "sglang", 77, ready=False)
    assert silent
    assert "status 77" in silent.summary


def test_a_setback_explains_only_a_start_that_failed() -> None:
    """A plug-in that did not load is the cause where nothing else is, and evidence where something is."""
    line = "Failed to load plugin: demo\n"
    assert cause(line + SGLANG_END) == "plugin-failed"
    found = diagnose(
        line + "ValueError: Unknown speculative algorithm name: DEMO\n", "sglang", 1, ready=False
    )
    assert found
    assert found.cause == "unknown-algorithm"
    assert found.evidence[0] == "> 1: Failed to load plugin: demo"


def test_evidence_has_line_numbers_and_neighbours() -> None:
    """Evidence is the line with two before and three after it, as an editor numbers them."""
    log = "\n".join(
        ["a", "b", "c\x1b[31m", "AssertionError: \x1b[1mmax_running_request is zero", "", "e", "f", "g"]
    )
    found = diagnose(log, "sglang", -9, ready=False)
    assert found
    assert found.evidence == (
        "  2: b",
        "  3: c",
        "> 4: AssertionError: max_running_request is zero",
        "  5: ",
        "  6: e",
        "  7: f",
    )


def test_progress_bars_share_a_line() -> None:
    """A carriage return does not count as a line, and only what matched of the line is shown."""
    log = "a\nLoading:  1%\rLoading: 99%\rNo CUDA GPUs are available\rmore\nb\n"
    found = diagnose(log, "sglang", 1, ready=False)
    assert found
    assert found.evidence[:2] == ("  1: a", "> 2: No CUDA GPUs are available")


@pytest.mark.parametrize(
    "secret",
    [
        "HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz012345",
        "--api-key s3cr3t-value-of-mine",
        "'api_key': 's3cr3t-value-of-mine'",
        "Authorization: Bearer abc.def.ghi-012345",
        "http://user:s3cr3t-value@proxy:8080",
        "AWS_SECRET_ACCESS_KEY=s3cr3tvalue",
    ],
)
def test_secrets_are_masked(secret: str) -> None:
    """Neither evidence nor summary shows a key, a token or a password."""
    log = f"args {secret}\nerror: unrecognized arguments: {secret} --x\n"
    found = diagnose(log, "sglang", 2, ready=False)
    assert found
    shown = "\n".join(explain(found))
    assert "***" in shown
    assert not re.search("s3cr3t|hf_abc|abc[.]def", shown)


def test_counts_of_tokens_are_not_secrets() -> None:
    """A figure about tokens is shown."""
    log = "max_total_num_tokens=123456789 tokens: 1234567 api_key=None\nNo CUDA GPUs are available\n"
    found = diagnose(log, "sglang", 1, ready=False)
    assert found
    assert "*" not in found.evidence[0]


@pytest.mark.parametrize(
    ("line", "fields", "expected"),
    [
        ("torch.OutOfMemoryError: CUDA", {}, {"memory_fraction": 0.8, "max_running_requests": 4}),
        ("torch.OutOfMemoryError: CUDA", {"concurrency": 8}, {"memory_fraction": 0.8}),
        ("Load weight begin.\ntorch.OutOfMemoryError: CUDA", {"concurrency": 8}, {}),
        (
            "torch.OutOfMemoryError: CUDA",
            {"memory_fraction": None, "concurrency": 6},
            {"max_running_requests": 6},
        ),
        ("AssertionError: max_running_request is zero", {}, {"memory_fraction": 0.9}),
        ("AssertionError: max_running_request is zero", {"memory_fraction": 0.93}, {}),
        (
            "Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.5. "
            "Raise --mem-fraction-static above 0.61 (",
            {"memory_fraction": 0.5},
            {"memory_fraction": 0.64},
        ),
        (
            "Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.5. "
            "Raise --mem-fraction-static above 0.97 (",
            {"memory_fraction": 0.5},
            {},
        ),
        (
            "User-specified context_length (9000) is greater than the derived context_length (4096).",
            {},
            {"context_length": 4096},
        ),
        ("User-specified context_length (9000) is greater than the derived context_length (2048).", {}, {}),
        ("No CUDA GPUs are available", {}, {}),
    ],
)
def test_only_what_is_safe_is_adjusted(line: str, fields: dict[str, Any], expected: dict[str, Any]) -> None:
    """Settings move within their limits, the cap never below the concurrency that is measured."""
    found = diagnose(line, "sglang", -9, ready=False, service=service(**fields))
    assert found
    assert found.adjust == expected
    unknown = diagnose(line, "sglang", -9, ready=False)
    assert unknown
    assert unknown.adjust == {}


def test_a_refused_request_has_its_cause() -> None:
    """The text of an error answer gives the cause, and an unknown text none."""
    found = refusal('{"error": {"message": "The request queue is full."}}', "sglang")
    assert found
    assert found.cause == "queue-full"
    assert refusal("nothing known") is None


def test_an_explanation_has_cause_evidence_and_remedy() -> None:
    """What is printed begins with the cause and tells what to do and which settings to change."""
    found = diagnose(
        "AssertionError: max_running_request is zero", "sglang", -9, ready=False, service=service()
    )
    assert found
    lines = list(explain(found))
    assert lines[0].startswith("no-running-requests: ")
    assert lines[1] == "    > 1: AssertionError: max_running_request is zero"
    assert lines[-1] == "  settings that would avoid it: memory_fraction: 0.9"


@pytest.mark.parametrize(
    ("line", "engine"),
    [
        ("[2026-11-29] server_args=ServerArgs(model_path='vllm/llama_model')", "sglang"),
        ("(APIServer pid=1) INFO 11-29 vLLM API server version 0.32.0", "vllm"),
        ("0.00.010.292 E llama_model_load: error loading model: x", "llamacpp"),
        ("nothing of an engine", None),
    ],
)
def test_the_engine_is_told_from_its_words(line: str, engine: str | None) -> None:
    """The engine whose own words come first wrote the log."""
    assert guess_engine(line) == engine


pieces = st.sampled_from(
    [
        *(line for _, _, line in (*FATAL, *HARMLESS)),
        "Traceback (most recent call last):",
        "During handling of the above exception, another exception occurred:",
        SGLANG_READY,
        "\x1b[31m",
        "\x1b]0;title",
        "\r",
        "\n",
        "\0",
        "(EngineCore pid=7) ERROR 11-29 10:00:00 [core.py:1510] ",
        '  File "a.py", line 1, in f',
    ]
)


@given(
    st.lists(
        pieces | st.text(max_size=40) | st.binary(max_size=40).map(lambda raw: raw.decode(errors="replace"))
    ),
    st.sampled_from(["sglang", "vllm", "llamacpp", "attach", None]),
    st.sampled_from([None, 0, 1, 2, 3, 137, -6, -9, -11, 77]),
    st.sampled_from([None, True, False]),
    st.booleans(),
)
def test_nothing_in_a_log_is_an_error(
    parts: list[str], engine: str | None, status: int | None, ready: bool | None, stopped: bool
) -> None:
    """Any text gives a diagnosis or none; a failed start always gives one, of printable lines."""
    log = "".join(parts)
    found = diagnose(log, engine, status, ready=ready, stopped=stopped, service=service())
    if ready is False and (stopped or status is not None):
        assert found
    for each in (*([found] if found else []), *warnings(log, engine)):
        assert each.cause
        assert all(char.isprintable() or char == "\t" for line in explain(each) for char in line)
        assert all(line.startswith(("> ", "  ")) and len(line) < 330 for line in each.evidence)


@given(st.lists(pieces, min_size=1), st.integers(min_value=0, max_value=4000))
def test_a_log_may_be_cut_anywhere(parts: list[str], kept: int) -> None:
    """The end of a log is enough to say something, wherever it was cut."""
    assert diagnose("\n".join(parts)[-kept:], "sglang", 1, ready=False)


@pytest.mark.parametrize(
    "unit",
    [
        "[2026-11-29 10:00:00 TP0] Decode batch, #running-req: 8, #token: 3211, token usage: 0.02\n",
        "x",
        "Loading 3%|###\r",
        "error: argument \n",
        "Traceback (most recent call last):\n",
        "\x1b[0",
        "://a:",
    ],
)
def test_reading_takes_linear_time(unit: str) -> None:
    """Four times the log takes about four times as long, whatever it is made of."""

    def seconds(length: int) -> float:
        log = unit * (length // len(unit))
        started = time.process_time()
        assert diagnose(log, "sglang", -9, ready=False)
        return time.process_time() - started

    seconds(1 << 16)
    small = min(seconds(1 << 19) for _ in range(3))
    assert min(seconds(1 << 21) for _ in range(2)) < 4 * 4 * small
