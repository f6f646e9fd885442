"""SGLang's commands, requests, acceptance and facts.

After a wanted change of a command line, ``python tests/test_engine_sglang.py`` writes ``golden/sglang.txt``
anew; read the difference before it is committed.
"""

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.engines import sglang
from draftmark.engines.sglang_flags import NAMES, RENAMED
from draftmark.errors import BadInput
from draftmark.schema import Message, Request, Speculation
from engine_cases import DRAFTED, LAUNCH, record, service, shown, store, stored

HYBRID = {"attention-backend": "triton", "mamba-radix-cache-strategy": "extra_buffer"}
CASES = {
    "none": (service("sglang", "none"), LAUNCH),
    "none of 0.5.17": (service("sglang", "none", version="0.5.17"), LAUNCH),
    "none by the sglang program": (
        service("sglang", "none", binary="/opt/bin/sglang"),
        replace(LAUNCH, program=("/opt/bin/sglang",)),
    ),
    "none with every key of the plan": (
        service("sglang", "none", tp=4, context_length=32768, memory_fraction=0.8, args=HYBRID),
        LAUNCH,
    ),
    "ngram": (service("sglang", "ngram", {"num_draft_tokens": 8, "max_bfs_breadth": 4}), LAUNCH),
    "draft-model": (service("sglang", "draft-model", {"num_steps": 3}), DRAFTED),
    "standalone": (service("sglang", "standalone", {"num_steps": 3}), DRAFTED),
    "eagle": (service("sglang", "eagle", {"num_steps": 5, "topk": 4, "num_draft_tokens": 8}), DRAFTED),
    "eagle3": (service("sglang", "eagle3"), DRAFTED),
    "mtp": (service("sglang", "mtp", {"num_steps": 3, "topk": 1}), LAUNCH),
    "nextn": (service("sglang", "nextn", {"num_steps": 3, "topk": 1}), LAUNCH),
    "dflash": (service("sglang", "dflash", {"block_size": 16}), DRAFTED),
    "dflash with synthetic acceptance": (
        service("sglang", "dflash", {"block_size": 16, "synthetic_length": 4.5}),
        DRAFTED,
    ),
    "ddtree": (service("sglang", "ddtree", {"budget": 15, "block_size": 16}, args=HYBRID), DRAFTED),
    "ddtree of a fork": (
        service(
            "sglang",
            "ddtree",
            {"budget": 15, "algorithm": "DFLASH", "budget_flag": "speculative-dflash-verify-budget"},
            method_args={"!speculative-dflash-tree-verify": True},
        ),
        DRAFTED,
    ),
    "dspark": (service("sglang", "dspark", {"block_size": 7, "verify_mode": "cap_accept"}), LAUNCH),
}
COMMANDS = {name: sglang.command(asked, launch) for name, (asked, launch) in CASES.items()}


@pytest.mark.parametrize("case", CASES)
def test_command_is_the_stored_one(case):
    """A service's command line and environment are exactly those that were reviewed."""
    assert shown(COMMANDS[case]) == stored("sglang")[case]


def test_every_method_has_a_stored_command():
    """No method kind, and no stored command, goes unchecked."""
    assert {asked.method.kind for asked, _ in CASES.values()} == set(sglang.METHODS)
    assert set(stored("sglang")) == set(CASES)


@pytest.mark.parametrize("version", NAMES)
@pytest.mark.parametrize("case", [case for case in CASES if not case.startswith("ddtree")])
def test_flags_exist_in_every_known_version(case, version):
    """What draftmark sets by itself is a flag of each version that it knows, under its full name."""
    flags = {word.removeprefix("--") for word in COMMANDS[case].argv if word.startswith("--")}
    assert flags <= NAMES[version]


def test_every_rename_leads_to_a_flag_of_every_version():
    """An old name or alias is replaced by a name that all known versions have."""
    assert all(set(RENAMED.values()) <= names for names in NAMES.values())


ARGS = st.dictionaries(
    st.sampled_from(sorted(NAMES["0.5.23"] - {"model", "model-path", "port", "served-model-name"})),
    st.one_of(st.none(), st.booleans(), st.integers(0, 99), st.sampled_from(["auto", "x"])),
    max_size=6,
)


@given(ARGS, ARGS)
def test_no_flag_is_given_twice(server_args, method_args):
    """Whatever the plan's args are, the command names each flag once, or the plan is refused."""
    try:
        asked = service("sglang", "dflash", args=server_args, method_args=method_args)
        argv = sglang.command(asked, DRAFTED).argv
    except BadInput:
        return
    flags = [word for word in argv if word.startswith("--")]
    assert len(flags) == len(set(flags))


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (
            {"max-running-requests": 16},
            "server.args.max-running-requests: 16 contradicts server.max_running_req",
        ),
        ({"tp": 2}, "server.args.tp: 2 contradicts tensor_parallel: 1"),
        (
            {"context-length": None},
            "server.args.context-length: null contradicts server.context_length: 4096",
        ),
        ({"port": 1}, "server.args.port: draftmark picks a free port for each start"),
        ({"attention-backand": "fa3"}, "server.args.attention-backand: SGLang 0.5.23 has no flag"),
        ({"attention-backand": "fa3"}, "did you mean 'attention-backend'?"),
        ({"--attention-backend": "fa3"}, "without their dashes: attention-backend"),
        ({"torchao-config": "x"}, "SGLang 0.5.23 has no flag 'torchao-config'"),
    ],
)
def test_args_that_cannot_hold_are_refused(args, said):
    """An unknown flag, or one that contradicts a key, is one error that names the key and what to do."""
    with pytest.raises(BadInput) as caught:
        sglang.command(service("sglang", "none", context_length=4096, args=args), LAUNCH)
    assert said in str(caught.value)


def test_a_methods_contradiction_names_its_key():
    """Where a method's args contradict its parameter, both of its keys are named."""
    asked = service("sglang", "dflash", {"block_size": 16}, method_args={"speculative-dflash-block-size": 8})
    with pytest.raises(BadInput, match=r"methods\.m\.args\.\S+: 8 contradicts methods\.m\.block_size: 16"):
        sglang.command(asked, DRAFTED)


def flags_of(**fields) -> list[str]:
    return shown(sglang.command(service("sglang", "none", **fields), LAUNCH)).splitlines()


def test_args_win_over_draftmarks_own_settings():
    """false and null take a flag away, a value replaces one, and a method's args win over the server's."""
    lines = flags_of(
        args={"disable-radix-cache": False, "random-seed": None, "chunked-prefill-size": 2048},
        method_args={"chunked-prefill-size": 8192},
    )
    assert "  --chunked-prefill-size 8192" in lines
    assert not [line for line in lines if "radix" in line or "seed" in line]


def test_old_names_become_the_new():
    """A flag under the name of an earlier version is passed on under the one that both versions have."""
    assert "  --mamba-radix-cache-strategy extra_buffer" in flags_of(
        args={"mamba-scheduler-strategy": "extra_buffer"}
    )


def test_flags_depend_on_the_version():
    """A flag of one version alone is taken for it and for versions that are not listed."""
    for version in ("0.5.17", "0.5.20"):
        assert "  --torchao-config x" in flags_of(version=version, args={"torchao-config": "x"})


@pytest.mark.parametrize(
    ("kind", "params", "said"),
    [
        ("eagle", {"topk": 4}, "methods.m.num_steps: needed beside topk"),
        ("eagle", {"num_steps": 3, "num_draft_tokens": 8}, "3 steps verify 4 tokens, got 8"),
        ("eagle", {"num_steps": 3, "topk": 4}, "methods.m.num_draft_tokens: needed with topk 4"),
        ("eagle", {"num_steps": 3, "synthetic_length": 4.5}, "a step commits at most 4 tokens, got 4.5"),
        ("dflash", {"block_size": 8, "synthetic_length": 9.0}, "a step commits at most 8 tokens"),
        ("dspark", {"block_size": 7, "synthetic_length": 9.0}, "a step commits at most 8 tokens"),
        ("ngram", {"synthetic_length": 13.0}, "a step commits at most 12 tokens"),
    ],
)
def test_parameters_that_the_engine_cannot_honour_are_refused(kind, params, said):
    """What SGLang would assert on, adjust or clamp in silence is an error before anything starts."""
    with pytest.raises(BadInput) as caught:
        sglang.command(service("sglang", kind, params), DRAFTED)
    assert said in str(caught.value)


def test_pins_are_equal_for_all_methods():
    """Methods run under the same pinned settings, save the delay that only block drafters switch on."""
    own = {kind: sglang.pins(service("sglang", kind)) for kind in sglang.METHODS}
    assert {kind for kind, pins in own.items() if pins.pop("min-free-slots-delay", None)} == {
        "dflash",
        "ddtree",
        "dspark",
    }
    assert all(pins == own["none"] for pins in own.values())
    assert own["none"]["cuda-graph-max-bs-decode"] == 8
    assert sglang.pins(service("sglang", "none", args={"random-seed": 7}))["random-seed"] == 7


CHAT = Request(
    id="r", prompt_id="p", kind="code", messages=(Message(role="user", content="hi"),), max_tokens=64, seed=3
)
RAW = Request(id="r", prompt_id="p", kind="context", prompt=(1, 2, 3), max_tokens=64, ignore_eos=False)


def test_chat_body():
    """A chat asks for the forced length, usage in each chunk and, where there is some, acceptance."""
    path, body = sglang.request_body(service("sglang", "dflash"), CHAT, "served-1")
    assert path == "/v1/chat/completions"
    assert body == {
        "model": "served-1",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "max_tokens": 64,
        "temperature": 0.0,
        "seed": 3,
        "ignore_eos": True,
        "return_spec_tokens_details": True,
    }


def test_raw_body():
    """A raw prompt goes to completions as it is, with ids back, and a baseline asks for no acceptance."""
    path, body = sglang.request_body(service("sglang", "none"), RAW, "served-1")
    assert path == "/v1/completions"
    assert body["prompt"] == (1, 2, 3)
    assert body["return_token_ids"] is True
    assert body["ignore_eos"] is False
    assert "return_spec_tokens_details" not in body


DETAILS = {
    "spec_accept_length": 8.0,
    "spec_num_correct_drafts": 20,
    "spec_num_proposed_drafts": 56,
    "spec_verify_ct": 8,
    "spec_correct_drafts_histogram": [1, 2, 1, 1, 3],
}
OWN = Speculation(
    source="spec_tokens_details",
    tokens=28,
    steps=8,
    accepted=20,
    drafted=56,
    draft_steps=8,
    accepted_per_position=(7, 5, 4, 3),
)


def test_acceptance_of_a_stream():
    """A request's acceptance is one token a verify pass and its accepted drafts, whichever API tells them."""
    said = sglang.request_speculation({"sglext": {"spec_tokens_details": DETAILS}}, 28)
    assert said == OWN
    native = sglang.request_speculation({"meta_info": DETAILS}, 28)
    assert native is not None
    assert (native.source, native.tokens, native.steps) == ("meta_info", 28, 8)


@pytest.mark.parametrize("tail", [{}, {"sglext": None}, {"sglext": {}}, {"meta_info": {"id": "x"}}])
def test_no_acceptance_where_none_is_told(tail):
    """A stream that says nothing of acceptance yields none."""
    assert sglang.request_speculation(tail, 64) is None


def page(tokens: int, requests: int, verifies: float) -> str:
    labels = 'model_name="served-1",tp_rank="0"'
    return f"""# HELP sglang:generation_tokens_total Tokens
# TYPE sglang:generation_tokens_total counter
sglang:generation_tokens_total{{{labels},streaming="True"}} {tokens}.0
sglang:num_requests_total{{{labels},streaming="True"}} {requests}.0
sglang:spec_verify_calls_total{{{labels}}} {verifies}
sglang:spec_accept_length{{{labels}}} 3.7
"""


def test_acceptance_of_a_cell_from_counters():
    """Without the records' own figures, tokens after each first one and verify calls give the cell's."""
    told = sglang.speculation(page(100, 2, 30.0), page(612, 10, 156.0), [record(64, None)])
    assert told is not None
    assert (told.source, told.tokens, told.steps, told.accepted) == ("/metrics difference", 504, 126, 378)
    assert told.drafted is None


def test_acceptance_of_a_cell_from_its_records():
    """Where each measured request tells its own, their sum is the cell's, without warm-up and failures."""
    records = [
        record(28, OWN),
        record(28, OWN),
        record(1, None),
        record(28, OWN, role="warmup"),
        record(5, None, error="cut"),
    ]
    told = sglang.speculation("", "", records)
    assert told is not None
    assert (told.tokens, told.steps, told.accepted, told.drafted) == (56, 16, 40, 112)
    assert told.accepted_per_position == (14, 10, 8, 6)
    assert told.source == "spec_tokens_details, summed over requests"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", page(9, 1, 4.0)),
        (page(9, 1, 4.0), ""),
        (page(9, 1, 0.0), page(73, 2, 0.0)),
        ("", ""),
        ("x", "y z"),
    ],
)
def test_no_acceptance_of_a_cell_without_counters(before, after):
    """A page that is missing, or whose counter of verify calls stands still, yields no acceptance."""
    assert sglang.speculation(before, after, [record(64, None)]) is None


def test_a_restart_between_the_pages_is_no_acceptance():
    """Counters that fell yield none."""
    assert sglang.speculation(page(612, 10, 156.0), page(100, 2, 30.0), []) is None


LOG = """\
[2026-11-29 10:00:01 TP0] Init torch distributed begin.
[2026-11-29 10:00:03 TP0] Load weight begin. avail mem=138.90 GB
[2026-11-29 10:00:20 TP1] Load weight end. elapsed=17.01 s, type=X, avail mem=111.00 GB, mem usage=27.90 GB.
[2026-11-29 10:00:20 TP0] Load weight end. elapsed=17.02 s, type=X, avail mem=111.10 GB, mem usage=27.80 GB.
[2026-11-29 10:00:24 TP0] Load weight end. elapsed=3.10 s, type=Draft, avail mem=109.1 GB, mem usage=2.00 GB.
[2026-11-29 10:00:25 TP0] Mamba Cache is allocated. max_mamba_cache_size: 47, conv_state size: 0.14GB, ssm
[2026-11-29 10:00:25 TP0] max_running_requests is capped to 9 by the mamba state cache (size=47)
[2026-11-29 10:00:26 TP0] Memory pool end. avail mem=9.00 GB
[2026-11-29 10:00:27 TP0] Capture target decode CUDA graph begin. This can take up to several minutes. bs=[1]
[2026-11-29 10:00:40 TP0] max_total_num_tokens=543235, chunked_prefill_size=4096, max_prefill_tokens=16384, \
max_running_requests=9, context_len=32768, available_gpu_mem=8.25 GB
[2026-11-29 10:00:41] INFO:     Uvicorn running on http://127.0.0.1:30001 (Press CTRL+C to quit)
[2026-11-29 10:00:44] The server is fired up and ready to roll!
"""


def test_facts_of_the_log():
    """The log tells caps, sizes and the weights of target and draft on the first GPU."""
    assert sglang.facts(LOG, {}) == {
        "kv_tokens": 543235,
        "max_running_requests": 9,
        "context_length": 32768,
        "free_gib": 8.25,
        "weights_gib": 29.8,
        "recurrent_slots": 47,
        "capped": "max_running_requests is capped to 9 by the mamba state cache (size=47)",
    }


def test_markers_stand_in_the_order_of_the_log():
    """Each mark of progress appears in a start's log, in the order that is promised."""
    at = [LOG.find(text) for text, _ in sglang.readiness(service("sglang", "none")).markers]
    assert at == sorted(at)
    assert min(at) >= 0


def test_facts_of_the_page():
    """The page tells version, effective cap and whether the server speculates, over what the log said."""
    info = {
        "version": "0.5.23",
        "attention_backend": "triton",
        "speculative_algorithm": None,
        "disable_radix_cache": True,
        "max_total_num_tokens": 999,
        "internal_states": [{"effective_max_running_requests_per_dp": 7}],
    }
    told = sglang.facts(LOG, {"/server_info": json.dumps(info)})
    assert told["speculation"] is False
    assert (told["version"], told["max_running_requests"], told["kv_tokens"]) == ("0.5.23", 7, 999)
    assert sglang.facts("", {"/server_info": json.dumps({"speculative_algorithm": "DFLASH"})}) == {
        "speculation": True,
        "algorithm": "DFLASH",
    }


@given(st.text(), st.text())
def test_any_log_and_page_are_read(log, text):
    """A log or page of any text yields facts, at worst none."""
    assert isinstance(sglang.facts(log, {"/server_info": text}), dict)
    assert sglang.facts("", {"/server_info": "[1]"}) == {}


@given(st.text(), st.text())
def test_any_counter_page_is_read(before, after):
    """Pages of any text yield acceptance or none, never an exception."""
    told = sglang.speculation(before, after, [])
    assert told is None or told.source == "/metrics difference"


def test_tokens_are_counted_by_the_server():
    """A chat's tokens are what the server's own template and tokenizer make of it, or an error."""
    asked = []

    def post(path: str, body: object) -> object:
        asked.append((path, body))
        return {"count": 7, "max_model_len": 8192, "tokens": [1] * 7}

    assert sglang.count_tokens(post, "served-1", CHAT.messages) == 7
    assert asked == [("/tokenize", {"model": "served-1", "messages": [{"role": "user", "content": "hi"}]})]
    with pytest.raises(BadInput, match="without a count"):
        sglang.count_tokens(lambda path, body: {"error": f"no {path} of {body}"}, "served-1", CHAT.messages)


KEYS = st.sampled_from(("internal_states", "sglext", "spec_tokens_details", "meta_info"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            KEYS,
            inner,
            max_size=3,
        )
    ),
)


@given(
    JSON,
    st.dictionaries(KEYS, JSON, max_size=3),
)
def test_json_of_another_shape_tells_nothing(value, tail):
    """A page or a stream whose JSON is not of the expected shape tells no acceptance, and breaks nothing."""
    assert isinstance(sglang.facts("", {"/server_info": json.dumps(value)}), dict)
    assert sglang.request_speculation(tail, 9) is None


def test_the_page_names_every_method():
    """The documentation names each method kind, and each parameter by its last words at least."""
    page = (Path(__file__).parent.parent / "docs" / "engines-sglang.md").read_text()
    for name, kind in sglang.METHODS.items():
        assert f"`{name}`" in page
        assert not [param for param in kind.params if param.removeprefix("suffix_decoding_") not in page]


PARSE = """
import argparse, json, sys
from sglang.srt.server_args import ServerArgs
parser = argparse.ArgumentParser(allow_abbrev=False)
ServerArgs.add_cli_args(parser)
for argv in json.load(sys.stdin):
    parser.parse_args(argv)
"""


@pytest.mark.timeout(300)
def test_the_real_parser_takes_every_command():
    """SGLang's own parser accepts each command; opt in with DRAFTMARK_SGLANG_PYTHON=/path/to/its/python."""
    python = os.environ.get("DRAFTMARK_SGLANG_PYTHON")
    if not python:
        pytest.skip("DRAFTMARK_SGLANG_PYTHON names no interpreter that has SGLang")
    argvs = [
        command.argv[3:] for case, command in COMMANDS.items() if "-m" in command.argv and "tree" not in case
    ]
    done = subprocess.run(
        [python, "-c", PARSE], input=json.dumps(argvs), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


if __name__ == "__main__":
    store("sglang", COMMANDS)
