"""vLLM's commands, requests, acceptance and facts.

After a wanted change of a command line, ``python tests/test_engine_vllm.py`` writes ``golden/vllm.txt`` anew;
read the difference before it is committed.
"""

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.engines import vllm
from draftmark.engines.vllm_flags import NAMES, RENAMED
from draftmark.errors import BadInput
from draftmark.schema import Message, Request, Speculation
from engine_cases import DRAFTED, LAUNCH, record, service, shown, store, stored

FOUR = {"num_speculative_tokens": 4}
CASES = {
    "none": (service("vllm", "none"), LAUNCH),
    "none by the vllm program": (
        service("vllm", "none", binary="/opt/bin/vllm"),
        replace(LAUNCH, program=("/opt/bin/vllm",)),
    ),
    "none with every key of the plan": (
        service(
            "vllm",
            "none",
            tp=4,
            context_length=32768,
            memory_fraction=0.9,
            args={"attention-backend": "FLASH_ATTN"},
        ),
        LAUNCH,
    ),
    "ngram": (service("vllm", "ngram", {**FOUR, "prompt_lookup_max": 4, "prompt_lookup_min": 2}), LAUNCH),
    "suffix": (service("vllm", "suffix", {"suffix_decoding_max_tree_depth": 16}), LAUNCH),
    "draft-model": (service("vllm", "draft-model", {**FOUR, "use_heterogeneous_vocab": True}), DRAFTED),
    "draft_model": (service("vllm", "draft_model", FOUR), DRAFTED),
    "eagle": (service("vllm", "eagle", {**FOUR, "draft_tensor_parallel_size": 1}), DRAFTED),
    "eagle3": (service("vllm", "eagle3", FOUR), DRAFTED),
    "mtp": (service("vllm", "mtp", {"num_speculative_tokens": 3}), LAUNCH),
    "dflash": (service("vllm", "dflash", {"num_speculative_tokens": 15}), DRAFTED),
    "dflash with synthetic acceptance": (
        service("vllm", "dflash", {"num_speculative_tokens": 15, "synthetic_length": 4.5}),
        DRAFTED,
    ),
    "dspark": (service("vllm", "dspark", {"num_speculative_tokens": 7}), LAUNCH),
    "medusa": (service("vllm", "medusa", FOUR), DRAFTED),
}
COMMANDS = {name: vllm.command(asked, launch) for name, (asked, launch) in CASES.items()}


@pytest.mark.parametrize("case", CASES)
def test_command_is_the_stored_one(case):
    """A service's command line and environment are exactly those that were reviewed."""
    assert shown(COMMANDS[case]) == stored("vllm")[case]


def test_every_method_has_a_stored_command():
    """No method kind, and no stored command, goes unchecked."""
    assert {asked.method.kind for asked, _ in CASES.values()} == set(vllm.METHODS)
    assert set(stored("vllm")) == set(CASES)


@pytest.mark.parametrize("case", CASES)
def test_flags_exist(case):
    """What draftmark sets by itself is a flag that the engine has, under its full name."""
    flags = {word.removeprefix("--") for word in COMMANDS[case].argv if word.startswith("--")}
    assert all(flags <= names for names in NAMES.values())


def test_every_rename_leads_to_a_flag():
    """An alias is replaced by a name that all known versions have."""
    assert all(set(RENAMED.values()) <= names for names in NAMES.values())


ARGS = st.dictionaries(
    st.sampled_from(sorted(NAMES["0.32.0"])),
    st.one_of(st.none(), st.booleans(), st.integers(0, 99), st.sampled_from(["auto", "x"])),
    max_size=6,
)


@given(ARGS)
def test_no_flag_is_given_twice(args):
    """Whatever the plan's args are, the command names each flag once, or the plan is refused."""
    try:
        argv = vllm.command(service("vllm", "ngram", FOUR, args=args), LAUNCH).argv
    except BadInput:
        return
    flags = [word.replace("--no-", "--") for word in argv if word.startswith("--")]
    assert len(flags) == len(set(flags))


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"max-num-seqs": 16}, "server.args.max-num-seqs: 16 contradicts server.max_running_requests: 8"),
        ({"device-memory-utilization": 0.5}, "0.5 contradicts server.memory_fraction: 0.9"),
        ({"model": "/other"}, "server.args.model: /other contradicts model.target: /models/target"),
        ({"speculative-config": "{}"}, "server.args.speculative-config: {} contradicts methods.m.kind"),
        ({"atention-backend": "x"}, "did you mean 'attention-backend'?"),
    ],
)
def test_args_that_cannot_hold_are_refused(args, said):
    """An unknown flag, or one that contradicts a key, is one error that names the key and what to do."""
    with pytest.raises(BadInput) as caught:
        vllm.command(service("vllm", "ngram", FOUR, memory_fraction=0.9, args=args), LAUNCH)
    assert said in str(caught.value)


def flags_of(**fields) -> list[str]:
    return shown(vllm.command(service("vllm", "none", **fields), LAUNCH)).splitlines()


@pytest.mark.parametrize("args", [{"enable-prefix-caching": True}, {"no-enable-prefix-caching": False}])
def test_a_switch_is_set_by_either_of_its_names(args):
    """A switch and its negation are one flag, so that the plan's word replaces draftmark's."""
    lines = flags_of(args=args)
    assert "  --enable-prefix-caching" in lines
    assert "  --no-enable-prefix-caching" not in lines


@pytest.mark.parametrize(
    ("fields", "length"),
    [({"context_length": 5000}, 5000), ({"context_needed": 256}, 256), ({"context_needed": 257}, 512)],
)
def test_context_is_the_plans_or_enough(fields, length):
    """The context is the plan's, else what the longest request needs, rounded up to 256."""
    assert f"  --max-model-len {length}" in flags_of(**fields)


@pytest.mark.parametrize(
    ("kind", "params", "said"),
    [
        ("ngram", {}, "methods.m.num_speculative_tokens: needed by ngram"),
        ("mtp", {}, "methods.m.num_speculative_tokens: needed by mtp"),
        ("eagle", {**FOUR, "synthetic_length": 5.5}, "a step commits at most 5 tokens, got 5.5"),
    ],
)
def test_parameters_that_the_engine_cannot_honour_are_refused(kind, params, said):
    """What vLLM would fail on after minutes of start-up is an error before anything starts."""
    with pytest.raises(BadInput) as caught:
        vllm.command(service("vllm", kind, params), DRAFTED)
    assert said in str(caught.value)


def test_pins_are_equal_for_all_methods():
    """Methods run under the same pinned settings, and the plan's args show in them."""
    own = [vllm.pins(service("vllm", kind)) for kind in vllm.METHODS]
    assert all(pins == own[0] for pins in own)
    assert own[0]["enable-prefix-caching"] is False
    assert vllm.pins(service("vllm", "none", args={"seed": 7}))["seed"] == 7


CHAT = Request(
    id="r", prompt_id="p", kind="code", messages=(Message(role="user", content="hi"),), max_tokens=64, seed=3
)
RAW = Request(id="r", prompt_id="p", kind="context", prompt="once", max_tokens=64, ignore_eos=False)


def test_chat_body():
    """A chat asks for the forced length, usage and token ids in each chunk."""
    path, body = vllm.request_body(service("vllm", "none"), CHAT, "served-1")
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
        "return_token_ids": True,
    }


def test_raw_body():
    """A raw prompt goes to completions as it is."""
    path, body = vllm.request_body(service("vllm", "ngram"), RAW, "served-1")
    assert (path, body["prompt"], body["ignore_eos"]) == ("/v1/completions", "once", False)


def tail(histogram: list[int], drafted: int) -> dict:
    accepted = sum(count * steps for count, steps in enumerate(histogram))
    own = {
        "acceptance_histogram": histogram,
        "num_spec_steps": sum(histogram),
        "num_accepted_draft_tokens": accepted,
        "num_draft_tokens": drafted,
        "num_spec_tokens": 4,
    }
    return {"metrics": {"speculative_decoding": own}}


def test_acceptance_of_a_stream_whose_steps_all_had_a_draft():
    """Where the tokens are those of the steps with a draft, these are all, also when the last was cut."""
    whole = vllm.request_speculation(tail([2, 1, 0, 0, 3], 24), 20)
    assert whole == Speculation(
        source="metrics.speculative_decoding",
        tokens=19,
        steps=6,
        accepted=13,
        drafted=24,
        draft_steps=6,
        accepted_per_position=(4, 3, 3, 3),
    )
    assert vllm.request_speculation(tail([2, 1, 0, 0, 3], 24), 18) == whole


def test_acceptance_of_a_stream_with_steps_without_a_draft():
    """Where some steps had no draft, the number of steps is not claimed, and what is known is kept."""
    told = vllm.request_speculation(tail([0, 1, 0, 0, 8], 34), 48)
    assert told is not None
    assert (told.tokens, told.steps, told.accepted, told.draft_steps) == (None, None, 33, 9)


@pytest.mark.parametrize("said", [{}, {"metrics": None}, {"metrics": {}}, {"usage": {}}])
def test_no_acceptance_where_none_is_told(said):
    """A stream that says nothing of acceptance yields none."""
    assert vllm.request_speculation(said, 64) is None


def page(drafts: int, drafted: int, positions: tuple[int, ...], steps: int) -> str:
    labels = 'engine="0",model_name="served-1"'
    per_position = "\n".join(
        f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{{labels},position="{at}"}} {count}.0'
        for at, count in enumerate(positions)
    )
    return f"""# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{{{labels}}} {drafts}.0
vllm:spec_decode_num_drafts_created{{{labels}}} 1.795993062635207e+09
vllm:spec_decode_num_draft_tokens_total{{{labels}}} {drafted}.0
vllm:spec_decode_num_accepted_tokens_total{{{labels}}} {sum(positions)}.0
{per_position}
vllm:generation_tokens_total{{{labels}}} 96.0
vllm:inter_token_latency_seconds_count{{{labels}}} {steps}.0
vllm:cache_config_info{{block_size="16",enable_prefix_caching="False",num_gpu_blocks="27430"}} 1.0
"""


def test_acceptance_of_a_cell_from_counters():
    """Steps without a draft count as steps: they are the samples of the time between tokens."""
    told = vllm.speculation(page(2, 8, (1, 0), 5), page(20, 76, (19, 18), 34), [record(48, None)])
    assert told == Speculation(
        source="/metrics difference",
        tokens=65,
        steps=29,
        accepted=36,
        drafted=68,
        draft_steps=18,
        accepted_per_position=(18, 18),
    )


def test_engines_of_one_server_are_added():
    """Data-parallel engines have their own labels, and their counters are one sum."""
    both = page(20, 76, (19, 18), 34) + page(20, 76, (19, 18), 34).replace('engine="0"', 'engine="1"')
    told = vllm.speculation(page(0, 0, (0, 0), 0), both, [])
    assert told is not None
    assert (told.steps, told.drafted, told.accepted_per_position) == (68, 152, (38, 36))


def test_records_that_know_their_steps_come_first():
    """Records that tell every step are the cell's figures; those that do not give way to the counters."""
    pages = page(0, 0, (0,), 0), page(20, 76, (19,), 34)
    whole = record(20, vllm.request_speculation(tail([2, 1, 0, 0, 3], 24), 20))
    parted = record(48, vllm.request_speculation(tail([0, 1, 0, 0, 8], 34), 48))
    for records, source, steps in (([whole], "summed", 6), ([whole, parted], "/metrics", 34)):
        told = vllm.speculation(*pages, records)
        assert told is not None
        assert source in told.source
        assert told.steps == steps
    alone = vllm.speculation("", "", [parted])
    assert alone is not None
    assert (alone.steps, alone.accepted) == (None, 33)


@pytest.mark.parametrize("after", ["", "vllm:generation_tokens_total 9\n", "# nothing"])
def test_no_acceptance_of_a_server_that_does_not_speculate(after):
    """Without the counters of speculation there is no acceptance."""
    assert vllm.speculation("vllm:generation_tokens_total 1\n", after, [record(9, None)]) is None


LOG = """\
(EngineCore pid=7) INFO 11-29 10:00:05 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: \
model='/models/target', \
speculative_config=SpeculativeConfig(method='ngram', model='ngram', num_spec_tokens=4),
(EngineCore pid=7) INFO 11-29 10:00:06 [cuda.py:507] Using FLASH_ATTN attention backend out of potential \
backends: ['FLASH_ATTN', 'TRITON_ATTN'].
(EngineCore pid=7) INFO 11-29 10:00:06 [runner.py:5060] Starting to load model /models/target...
(EngineCore pid=7) INFO 11-29 10:00:25 [runner.py:5150] Model loading took 51.71 GiB memory and 18.2 s
(EngineCore pid=7) INFO 11-29 10:00:40 [gpu_worker.py:760] Available KV cache memory: 63.5 GiB
(EngineCore pid=7) INFO 11-29 10:00:40 [kv_cache_utils.py:2328] GPU KV cache size: 438,880 tokens, \
Maximum concurrency for 32,768 tokens per request: 13.39x
(EngineCore pid=7) INFO 11-29 10:00:52 [runner.py:6582] Graph capturing finished in 11 secs, took 0.83 GiB
(EngineCore pid=7) INFO 11-29 10:00:52 [core.py:386] init engine (profile, create kv cache, warmup model) \
took 27 s
(APIServer pid=1) INFO 11-29 10:00:54 [entry.py:140] Starting vLLM server on http://127.0.0.1:30001
(APIServer pid=1) INFO:     Application startup complete.
"""


def test_facts_of_the_log():
    """The log tells sizes in GiB, the backend, and whether there is a speculative configuration."""
    assert vllm.facts(LOG, {}) == {
        "version": "0.32.0",
        "weights_gib": 51.71,
        "kv_gib": 63.5,
        "kv_tokens": 438880,
        "context_length": 32768,
        "full_length_requests": 13.39,
        "attention_backend": "FLASH_ATTN",
        "graphs_gib": 0.83,
        "speculation": True,
    }
    assert vllm.facts("with config: speculative_config=None, x", {}) == {"speculation": False}


def test_markers_stand_in_the_order_of_the_log():
    """Each mark of progress appears in a start's log, in the order that is promised."""
    at = [LOG.find(text) for text, _ in vllm.readiness(service("vllm", "none")).markers]
    assert at == sorted(at)
    assert min(at) >= 0


def test_facts_of_the_pages():
    """The pages tell version, context, KV blocks and whether the counters of speculation exist."""
    pages = {
        "/version": '{"version": "0.32.1"}',
        "/v1/models": '{"data": [{"id": "served-1", "max_model_len": 2304}]}',
        "/metrics": page(0, 0, (0,), 0),
    }
    assert vllm.facts("", pages) == {
        "version": "0.32.1",
        "context_length": 2304,
        "kv_blocks": 27430,
        "kv_block_size": 16,
        "speculation": True,
    }
    assert vllm.facts("", {"/metrics": "vllm:generation_tokens_total 1\n"}) == {"speculation": False}


@given(st.text(), st.text())
def test_any_log_and_page_are_read(log, text):
    """A log or page of any text yields facts, at worst none."""
    assert isinstance(vllm.facts(log, dict.fromkeys(("/version", "/v1/models", "/metrics"), text)), dict)


@given(st.text(), st.text())
def test_any_counter_page_is_read(before, after):
    """Pages of any text yield acceptance or none, never an exception."""
    told = vllm.speculation(before, after, [])
    assert told is None or told.source == "/metrics difference"


def test_tokens_are_counted_by_the_server():
    """A chat's tokens are what the server's own template and tokenizer make of it, or an error."""
    asked = []

    def post(path: str, body: object) -> object:
        asked.append((path, body))
        return {"count": 7, "max_model_len": 8192, "tokens": [1] * 7}

    assert vllm.count_tokens(post, "served-1", CHAT.messages) == 7
    assert asked == [("/tokenize", {"model": "served-1", "messages": [{"role": "user", "content": "hi"}]})]
    with pytest.raises(BadInput, match="without a count"):
        vllm.count_tokens(lambda path, body: {"error": f"no {path} of {body}"}, "served-1", CHAT.messages)


KEYS = st.sampled_from(("data", "metrics", "speculative_decoding", "version"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=3),
)


@given(
    JSON,
    st.dictionaries(KEYS, JSON, max_size=3),
)
def test_json_of_another_shape_tells_nothing(value, tail):
    """A page or a stream whose JSON is not of the expected shape tells no acceptance, and breaks nothing."""
    assert isinstance(
        vllm.facts("", dict.fromkeys(("/version", "/v1/models", "/metrics"), json.dumps(value))), dict
    )
    assert vllm.request_speculation(tail, 9) is None


def test_the_page_names_every_method():
    """The documentation names each method kind, and each parameter by its last words at least."""
    page = (Path(__file__).parent.parent / "docs" / "engines-vllm.md").read_text()
    for name, kind in vllm.METHODS.items():
        assert f"`{name}`" in page
        assert not [param for param in kind.params if param.removeprefix("suffix_decoding_") not in page]


PARSE = """
import json, sys
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser
argvs = json.load(sys.stdin)
sys.argv = ["vllm", "serve"]
parser = make_arg_parser(FlexibleArgumentParser())
for argv in argvs:
    parser.parse_args(argv)
"""


@pytest.mark.timeout(300)
def test_the_real_parser_takes_every_command():
    """vLLM's own parser accepts each command; opt in with DRAFTMARK_VLLM_PYTHON=/path/to/its/python."""
    python = os.environ.get("DRAFTMARK_VLLM_PYTHON")
    if not python:
        pytest.skip("DRAFTMARK_VLLM_PYTHON names no interpreter that has vLLM")
    argvs = [command.argv[4:] for command in COMMANDS.values() if "-m" in command.argv]
    done = subprocess.run(
        [python, "-c", PARSE], input=json.dumps(argvs), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


if __name__ == "__main__":
    store("vllm", COMMANDS)
