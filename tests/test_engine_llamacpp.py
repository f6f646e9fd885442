"""llama.cpp's command line, pages and streams, without a server; with one in test_launcher.py."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as replaced

from draftmark.engines import ENGINES, llamacpp
from draftmark.engines.llamacpp_flags import NAMES, RENAMED
from draftmark.engines.types import Launch
from draftmark.errors import BadInput
from draftmark.schema import (
    EngineSpec,
    Message,
    Method,
    ModelSpec,
    Request,
    RequestRecord,
    Service,
    Speculation,
)

LAUNCH = Launch(
    port=8123, served_name="s-1", model="/m/t.gguf", draft="/m/d.gguf", program=("llama-server",), cores=8
)
BASE = (
    "llama-server --model /m/t.gguf --host 127.0.0.1 --port 8123 --alias s-1 --ctx-size 5120 --parallel 4 "
    "--threads 7 --metrics --slots --no-webui --cache-ram 0 --fit off "
)


def service(kind: str = "none", params: dict[str, Any] | None = None, **fields: Any) -> Service:
    method = Method(name="m", kind=kind, params=params or {}, args=fields.pop("method_args", {}))
    settings: dict[str, Any] = {
        "id": "s",
        "phase": "tp1",
        "host": "local",
        "tp": 1,
        "engine": EngineSpec(kind="llamacpp"),
        "model": ModelSpec(target="smollm2-135m"),
        "context_needed": 1200,
        "max_running_requests": 4,
        "ready_timeout_s": 60.0,
    }
    return Service(method=method, **(settings | fields))


def line(made: Service, launch: Launch = LAUNCH) -> str:
    return " ".join(llamacpp.command(made, launch).argv)


MAPS = "--spec-{0}-size-n 12 --spec-{0}-size-m 48 --spec-{0}-min-hits 1"
DRAFT = "--spec-draft-n-max {0} --spec-draft-n-min 0 --spec-draft-p-min 0.0"
WITH_DRAFT = "--spec-type {0} --spec-draft-model /m/d.gguf --spec-draft-threads 7 " + DRAFT.format(3)


@pytest.mark.parametrize(
    ("kind", "params", "tail"),
    [
        ("none", {}, "--spec-type none"),
        ("ngram-simple", {}, "--spec-type ngram-simple " + MAPS.format("ngram-simple")),
        ("ngram-map-k", {}, "--spec-type ngram-map-k " + MAPS.format("ngram-map-k")),
        (
            "ngram-map-k4v",
            {"size_n": 4, "size_m": 8},
            "--spec-type ngram-map-k4v --spec-ngram-map-k4v-size-n 4 --spec-ngram-map-k4v-size-m 8 "
            "--spec-ngram-map-k4v-min-hits 1",
        ),
        (
            "ngram-mod",
            {},
            "--spec-type ngram-mod --spec-ngram-mod-n-match 24 --spec-ngram-mod-n-min 48 "
            "--spec-ngram-mod-n-max 64",
        ),
        (
            "ngram-cache",
            {"lookup_static": "/n.bin"},
            "--spec-type ngram-cache --lookup-cache-static /n.bin",
        ),
        ("draft-model", {}, WITH_DRAFT.format("draft-simple")),
        ("eagle3", {}, WITH_DRAFT.format("draft-eagle3")),
        ("dspark", {}, WITH_DRAFT.format("draft-dspark")),
        (
            "dflash",
            {"block_size": 16},
            "--spec-type draft-dflash --spec-draft-model /m/d.gguf --spec-draft-threads 7 "
            + DRAFT.format(15),
        ),
        ("mtp", {"n_max": 2}, "--spec-type draft-mtp --spec-draft-threads 7 " + DRAFT.format(2)),
        (
            "ngram-simple",
            {"synthetic_length": 3.5},
            "--spec-type ngram-simple " + MAPS.format("ngram-simple") + " --spec-synth-len 3.5",
        ),
        (
            "dflash",
            {"synthetic_rates": "0.9,0.5,0.2"},
            WITH_DRAFT.format("draft-dflash") + " --spec-synth-rates 0.9,0.5,0.2",
        ),
    ],
)
def test_golden_command_lines(kind: str, params: dict[str, Any], tail: str) -> None:
    """Each method's command line is known in full, with the engine's defaults spelled out."""
    assert line(service(kind, params)) == BASE + tail


def test_every_method_has_a_golden_command_line() -> None:
    """No method kind is left out of the test above."""
    marks = test_golden_command_lines.pytestmark  # type: ignore[attr-defined]
    assert {case[0] for case in marks[0].args[1]} == set(llamacpp.METHODS)


def test_the_page_names_every_method() -> None:
    """Each method kind and each of its parameters is on the engine's page."""
    page = (Path(__file__).parents[1] / "docs" / "engines.md").read_text()
    for kind, method in llamacpp.METHODS.items():
        for name in (kind, *method.params):
            assert f"`{name}" in page, name


def test_the_engine_is_listed() -> None:
    """The plan finds the engine by its kind."""
    assert ENGINES["llamacpp"] is llamacpp


@given(st.integers(1, 10**6), st.integers(1, 64), st.integers(1, 256), st.none() | st.integers(1, 10**5))
def test_context_is_enough_for_every_slot(needed: int, slots: int, cores: int, given: int | None) -> None:
    """Each slot has the context that the plan gives, else enough for its longest request; a core is free."""
    made = service(context_needed=needed, max_running_requests=slots, context_length=given)
    words = llamacpp.command(made, replace(LAUNCH, cores=cores)).argv
    total = int(words[words.index("--ctx-size") + 1])
    assert total % slots == 0
    assert total // slots == given or (given is None and needed <= total // slots < needed + 256)
    assert int(words[words.index("--threads") + 1]) == max(1, cores - 1)


def test_args_replace_defaults() -> None:
    """A plan's args replace a default by any of the flag's names; YAML's true and false are on and off."""
    args = {"cram": 512, "ui": True, "fit": True, "fa": "auto", "no-kvu": True, "!brand-new": 7}
    made = service(args=args, method_args={"ngl": 99})
    assert line(made) == BASE.replace(
        "--no-webui --cache-ram 0 --fit off", "--webui --cache-ram 512 --fit on"
    ) + ("--spec-type none --flash-attn auto --no-kv-unified --brand-new 7 --gpu-layers 99")


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (service(args={"np": 8}), ("server.args.np: 8 contradicts server.max_running_requests: 4",)),
        (service(args={"port": 80}), ("server.args.port: draftmark picks a free port",)),
        (service(args={"threads": 2}, threads=4), ("server.args.threads: 2", "server.threads: 4")),
        (service(args={"ctx-size": 64}, context_length=512), ("server.context_length: 2048",)),
        (service("ngram-simple", args={"spec-type": "none"}), ("methods.m.kind: ngram-simple",)),
        (service("ngram-mod", {"n_match": 8}, args={"spec-ngram-mod-n-match": 9}), ("methods.m",)),
        (
            service(args={"ctxsize": 1}),
            ("args.ctxsize", "has no flag", "did you mean 'ctx-size'?", "'!ctxsize'"),
        ),
        (service(args={"metrics": 3}), ("--metrics takes no value",)),
        (service(args={"batch-size": True}), ("--batch-size needs a value",)),
        (service("ngram-mod", {"n_max": 8}), ("n_min 48 and n_max 8 contradict", "48 when not given")),
        (service("dflash", {"block_size": 16, "n_max": 3}), ("block_size 16 and n_max 3", "block_size - 1")),
        (service("dflash", {"synthetic_length": 4.5}), ("synthetic_length 4.5 and 3 drafts", "at most 4")),
        (
            service("dflash", {"synthetic_length": 2.0, "synthetic_rates": "1,1,1"}),
            ("synthetic_length and synthetic_rates", "give one of them"),
        ),
        (
            service("dflash", {"synthetic_rates": "0.2,0.5,0.1"}),
            ("expected 3 comma-separated", "0.2,0.5,0.1"),
        ),
        (service("dflash", {"synthetic_rates": "0.2,0.1"}), ("expected 3 comma-separated",)),
        (service("dflash", {"synthetic_rates": "nan,x"}), ("synthetic_rates",)),
        (service(tp=2), ("no tensor parallelism", "tensor_parallel: [1]")),
        (service(memory_fraction=0.8), ("server.memory_fraction",)),
    ],
)
def test_contradictions_are_reported(made: Service, expected: tuple[str, ...]) -> None:
    """A setting that contradicts another, or makes no sense, is one BadInput that names what is wrong."""
    with pytest.raises(BadInput) as caught:
        llamacpp.command(made, LAUNCH)
    for part in expected:
        assert part in str(caught.value)


def test_a_missing_draft_is_reported() -> None:
    """A method that needs a draft model says so when there is none."""
    with pytest.raises(BadInput, match="eagle3 needs a draft model"):
        llamacpp.command(service("eagle3"), replace(LAUNCH, draft=None))


def test_a_hub_id_is_refused() -> None:
    """A model that is no file is refused before a server is started in vain."""
    with pytest.raises(BadInput, match="serves GGUF files"):
        llamacpp.command(service(), replace(LAUNCH, model="org/name"))


def test_environment_is_handed_on() -> None:
    """The environment of engine, service and method reaches the server, the method's word last."""
    made = service(env={"A": "2", "B": "2"}, engine=EngineSpec(kind="llamacpp", env={"A": "1", "C": "1"}))
    assert llamacpp.command(made, LAUNCH).env == {"A": "2", "B": "2", "C": "1"}


def test_flag_names_are_unambiguous() -> None:
    """An alias is never also a flag's own name, and leads to one that exists."""
    assert not set(RENAMED) & NAMES
    assert set(RENAMED.values()) <= NAMES


def test_request_bodies() -> None:
    """Chat and raw prompts go to the route that takes them, and never reuse a cached prompt."""
    request = Request(
        id="r",
        prompt_id="p",
        kind="code",
        messages=(Message(role="user", content="hi"),),
        max_tokens=9,
        seed=4,
    )
    path, body = llamacpp.request_body(service(), request, "s-1")
    assert path == "/v1/chat/completions"
    assert body == {
        "model": "s-1",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 9,
        "temperature": 0.0,
        "seed": 4,
        "ignore_eos": True,
        "cache_prompt": False,
    }
    raw = replaced(request, messages=(), prompt=(1, 2), ignore_eos=False)
    path, body = llamacpp.request_body(service(), raw, "s-1")
    assert (path, body["prompt"], body["ignore_eos"]) == ("/v1/completions", (1, 2), False)


def test_timings_become_steps() -> None:
    """The first token comes with the prompt; each later step commits one token and its accepted drafts."""
    said = llamacpp.request_speculation(
        {"timings": {"predicted_n": 96, "draft_n": 84, "draft_n_accepted": 39}}, 96
    )
    assert said is not None
    assert (said.tokens, said.steps, said.accepted, said.drafted) == (95, 56, 39, 84)


def test_timings_without_draft_fields_mean_nothing_was_drafted() -> None:
    """Absent draft fields are zeros, as the server leaves them out when it drafted nothing."""
    said = llamacpp.request_speculation({"timings": {"predicted_n": 24}}, 24)
    assert said is not None
    assert (said.tokens, said.steps, said.accepted, said.drafted) == (23, 23, 0, 0)


@pytest.mark.parametrize("tail", [{}, {"timings": None}, {"timings": {}}, {"timings": {"predicted_n": 0}}])
def test_no_timings_no_figures(tail: dict[str, Any]) -> None:
    """A stream that was cut before its timings gives no figure at all."""
    assert llamacpp.request_speculation(tail, None) is None


def test_accepted_drafts_beyond_the_end_leave_steps_unknown() -> None:
    """Where more drafts were accepted than tokens given out, no number of steps is made up."""
    said = llamacpp.request_speculation(
        {"timings": {"predicted_n": 3, "draft_n": 9, "draft_n_accepted": 8}}, 3
    )
    assert said is not None
    assert said.steps is None


def page(predicted: int, accepted: int = 0, drafted: int = 0, drafts: int = 0, *positions: int) -> str:
    samples = {
        "tokens_predicted_total": predicted,
        "spec_decode_num_accepted_tokens_total": accepted,
        "spec_decode_num_draft_tokens_total": drafted,
        "spec_decode_num_drafts_total": drafts,
    }
    lines = [f"# TYPE llamacpp:{name} counter\nllamacpp:{name} {value}" for name, value in samples.items()]
    at = 'llamacpp:spec_decode_num_accepted_tokens_per_pos_total{{position="{}"}} {}'
    return "\n".join(lines + [at.format(*each) for each in enumerate(positions)]) + "\n"


def record(tokens: int | None, error: str | None = None) -> RequestRecord:
    return RequestRecord(
        request="r",
        prompt_id="p",
        kind="code",
        role="measured",
        start_s=0.0,
        max_tokens=99,
        output_tokens=tokens,
        error=error,
    )


def test_metrics_difference() -> None:
    """Between two pages each request's first token belongs to its prompt, and the rest to steps."""
    said = llamacpp.speculation(
        page(100, 10, 20, 5, 5, 4), page(296, 50, 100, 25, 20, 10, 5), [record(96), record(100)]
    )
    assert said is not None
    assert said.source == "/metrics difference"
    assert (said.tokens, said.accepted, said.steps, said.drafted, said.draft_steps) == (194, 40, 154, 80, 20)
    assert said.accepted_per_position == (15, 6, 5)


@pytest.mark.parametrize("records", [[], [record(96)], [record(95), record(100)], [record(None, "cut")]])
def test_foreign_tokens_leave_steps_unknown(records: list[RequestRecord]) -> None:
    """Where the server generated other tokens than the records hold, steps are unknown and the rest stays."""
    said = llamacpp.speculation(page(0), page(196, 40, 80, 20, 40), records)
    assert said is not None
    assert (said.tokens, said.steps, said.accepted, said.drafted) == (None, None, 40, 80)


def test_a_warm_up_is_left_to_the_requests_own_word() -> None:
    """Where the pages count a warm-up too, what the measured requests say of themselves is summed instead."""
    own = Speculation(source="timings", tokens=99, steps=60, accepted=39, drafted=50)
    measured = replaced(record(100), speculation=own)
    warm = replaced(record(100), role="warmup", speculation=own)
    for records in ([warm, measured], [measured]):
        said = llamacpp.speculation(page(0), page(200, 78, 100, 20, 40), records)
        assert said is not None
        assert said.source == "timings, summed over requests"
        assert (said.tokens, said.steps, said.accepted, said.drafted) == (99, 60, 39, 50)


@pytest.mark.parametrize(
    ("before", "after"), [("", ""), ("", page(9)), (page(9), ""), (page(9), page(3)), ("x", "<html>")]
)
def test_pages_that_do_not_belong_together(before: str, after: str) -> None:
    """A missing page, or counters that fell because the server was restarted, give no figure."""
    assert llamacpp.speculation(before, after, [record(3)]) is None


PAGES = {
    "/props": json.dumps(
        {"total_slots": 2, "chat_template": "{{x}}", "build_info": "b11549-abc", "model_ftype": "Q4_1"}
    ),
    "/slots": json.dumps([{"id": 0, "n_ctx": 1280, "speculative": True}, {"id": 1, "n_ctx": 1280}]),
    "/v1/models": json.dumps({"data": [{"meta": {"n_params": 5, "size": 6, "n_ctx_train": 8192}}]}),
}


def test_facts() -> None:
    """The server's own pages tell its version, its slots, and whether all of them speculate."""
    assert llamacpp.facts("", PAGES) == {
        "version": "b11549-abc",
        "max_running_requests": 2,
        "context_length": 1280,
        "speculation": False,
        "chat_template": True,
        "quantization": "Q4_1",
        "model_parameters": 5,
        "model_bytes": 6,
        "model_context_length": 8192,
    }


def test_facts_of_the_log() -> None:
    """The log tells the wheel's version, why speculation is off, and that acceptance is made up."""
    log = (
        "xllamacpp 2026.10.1\n"
        "E srv load_model: failed to initialize speculative decoding context: draft model is not eagle3\n"
        "W spec: synthetic speculative acceptance is enabled for benchmarking\n"
    )
    assert llamacpp.facts(log, {}) == {
        "version": "2026.10.1",
        "speculation_fault": "failed to initialize speculative decoding context: draft model is not eagle3",
        "synthetic": True,
    }


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["data", "meta", "n_ctx", "chat_template", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(sorted(PAGES)), JSON.map(json.dumps) | st.text(max_size=9)))
def test_facts_survive_any_page(pages: dict[str, str]) -> None:
    """A page that is not what it should be states no fact, and breaks nothing."""
    assert set(llamacpp.facts("", pages)) <= {*llamacpp.facts("", PAGES), "speculation"}
