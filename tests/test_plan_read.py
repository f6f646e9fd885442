"""Reading a plan: what is accepted, and where and how everything else is refused."""

import string
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmark.errors import EXIT_BAD_INPUT, PlanError
from draftmark.plan import check_paths, lossless_plan, read_plan, write_plan
from draftmark.plan.document import dump, parse

QUICKSTART = Path("plans/quickstart.yaml").read_text()
QWEN = Path("plans/qwen36-rtx6000.yaml").read_text()
PLAN = """\
name: small
engine: {kind: sglang}
model: {target: some/model}
methods:
  - {name: ar, kind: none}
  - {name: "ngram-{num_draft_tokens}", kind: ngram, num_draft_tokens: [4, 8]}
workloads:
  - kind: prompts
    max_tokens: [128, 256]
  - {kind: concurrency, levels: [1, 4]}
  - {kind: context, lengths: [3k]}
"""


def refusal(text: str) -> PlanError:
    """The error that a text is refused with."""
    with pytest.raises(PlanError) as caught:
        read_plan(text, "plan.yaml")
    return caught.value


def plan_error(read: Callable[[], object]) -> PlanError | None:
    try:
        read()
    except PlanError as error:
        return error
    return None


def edited(old: str, new: str) -> str:
    assert old in PLAN
    return PLAN.replace(old, new)


def test_a_plan_is_read() -> None:
    """A method's parameters are gathered, defaults filled in and the baseline settled."""
    plan = read_plan(PLAN, "plan.yaml")
    assert plan.baseline == "ar"
    assert plan.methods[1].params == {"num_draft_tokens": (4, 8)}
    assert plan.tensor_parallel == (1,)
    assert [type(workload).__name__ for workload in plan.workloads] == [
        "PromptsWorkload",
        "ConcurrencyWorkload",
        "ContextWorkload",
    ]


def test_anchors_and_merge_keys_work() -> None:
    """What '<<' brings in counts as written there, and the mapping's own keys win."""
    text = edited(
        "  - {name: ar, kind: none}",
        "  - &base {name: ar, kind: none, args: {page-size: 1}}\n  - {<<: *base, name: b}",
    )
    plan = read_plan(text + "baseline: b\n", "plan.yaml")
    assert [(spec.name, spec.args) for spec in plan.methods[:2]] == [
        ("ar", {"page-size": 1}),
        ("b", {"page-size": 1}),
    ]


def test_on_and_off_are_text_and_true_is_not() -> None:
    """An engine's own words reach it as written; only true and false are booleans, and 010 is no number."""
    text = QUICKSTART + "server: {args: {flash-attn: on, batch-size: 64}}\n"
    assert read_plan(text, "p").server.args == {"flash-attn": "on", "batch-size": 64}
    assert parse("{a: 010, b: 0x1f, c: yes, h: True, d: 2026-01-01, e: 1:30, f: .5, g: ~}", "p").data == {
        "a": "010", "b": "0x1f", "c": "yes", "h": True, "d": "2026-01-01", "e": "1:30", "f": 0.5, "g": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("", "plan.yaml:1: the file is empty", "draftmark init"),
        ("# only a comment\n", "plan.yaml:1: the file is empty", "draftmark init"),
        ("- a\n", "plan.yaml:1: expected a mapping of keys such as 'name:', got a list", ""),
        ("name: [a\nengine: b", "plan.yaml:2: not valid YAML: expected ',' or ']', but got ':'", ""),
        ("name:\tx: y\n\t- z", "plan.yaml:1: not valid YAML", ""),
        ("name: a\x07b", "plan.yaml:1: not valid YAML: a character that may not stand here", ""),
        ("a: 1\n---\nb: 2\n", "plan.yaml:2: not valid YAML: but found another document", ""),
        ("a: *b\n", "plan.yaml:1: not valid YAML: found undefined alias 'b'", ""),
        ("a: &a {<<: *a}\n", "nested too deeply, or an alias that contains itself", ""),
        ("a: " + "[" * 1200, "nested too deeply", ""),
        (
            "a: !!python/name:os.system x\n",
            "plan.yaml:1: a: a plan has no use for the tag !!python/name:os.system",
            "",
        ),
        ("!own-flag: 1\n", "plan.yaml:1: a plan has no use for the tag !own-flag", "in quotes it is text"),
        ("a: 1e999\n", "plan.yaml:1: a: expected a finite number of ordinary size", ""),
        ("? [a]\n: 1\n", "plan.yaml:1: expected a plain word as a key", ""),
        ("a: {<<: 3}\n", "plan.yaml:1: a: '<<' takes a mapping, or a list of mappings", ""),
        ("name: a\nmodel: {}\nname: b\n", "plan.yaml:3: name: the key is already given on line 1", ""),
        ("name: a\n", "plan.yaml:1: missing key 'engine'", "for example engine: {kind: llamacpp}"),
    ],
)
def test_what_is_no_document_is_refused(text: str, message: str, hint: str) -> None:
    """Text that is not one YAML mapping is refused at its line, without a traceback."""
    error = refusal(text)
    assert message in error.message
    assert hint in error.hint
    assert error.exit_code == EXIT_BAD_INPUT


def test_aliases_that_multiply_are_refused() -> None:
    """A few lines of aliases do not fill the memory."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    assert "aliases multiply here" in refusal("\n".join(lines)).message


@pytest.mark.parametrize(
    ("old", "new", "message", "hint"),
    [
        # unknown, missing and mistyped keys
        ("workloads:\n", "worklods:\n", "7: worklods: unknown key", "did you mean 'workloads'?"),
        ("name: small\n", "name: small\ntp: [1]\n", "2: tp: unknown key", "did you mean 'tensor_parallel'?"),
        ("{target: some/model}", "{targt: x}", "3: model.targt: unknown key", "did you mean 'target'?"),
        ("{target: some/model}", "{}", "3: model: missing key 'target'", "target: smollm2-135m"),
        (
            "max_tokens: [128, 256]",
            "max_token: [1]",
            "9: workloads[0].max_token: unknown key",
            "'max_tokens'",
        ),
        (
            "max_tokens: [128, 256]",
            "max_tokens: [128, 0]",
            "9: workloads[0].max_tokens[1]: expected a whole number of at least 1 or thousands such as 3k, "
            "got 0",
            "",
        ),
        ("max_tokens: [128, 256]", "max_tokens: 128", "9: workloads[0].max_tokens: expected a list", "[128]"),
        ("max_tokens: [128, 256]", "max_tokens: []", "a list with at least one item", ""),
        ("max_tokens: [128, 256]", "max_tokens: [1.5]", "thousands such as 3k, got 1.5", ""),
        (
            "max_tokens: [128, 256]",
            "max_tokens:",
            "9: workloads[0].max_tokens: expected a list",
            "remove the key",
        ),
        ("[3k]", "[3x]", "workloads[2].lengths[0]: expected a whole number of at least 1 or thousands", ""),
        (
            "kind: context, ",
            "",
            "11: workloads[2]: missing key 'kind'",
            "one of prompts, concurrency",
        ),
        ("kind: context", "kind: [context]", "11: workloads[2].kind: expected one of", ""),
        (
            "kind: context",
            "kind: contxt",
            "11: workloads[2].kind: expected one of",
            "did you mean 'context'?",
        ),
        (", lengths: [3k]", "", "11: workloads[2]: missing key 'lengths'", "lengths: [3k, 30k]"),
        ("name: small", "name: 12", "1: name: expected a name of letters", "in quotes it is text"),
        ("name: small", "name: true", "1: name: expected a name of letters", "in quotes it is text"),
        ("name: small", "name: a/b", "got 'a/b'", ""),
        ("name: small", "name: |\n  small\n", "1: name: expected a name of letters", ""),
        (
            "model: {target: some/model}",
            "model: some/model",
            "3: model: expected a mapping, got 'some/model'",
            "",
        ),
        ("engine: {kind: sglang}", "engine: [sglang]", "2: engine: expected a mapping, got a list", ""),
        # engines
        ("sglang", "slang", "2: engine.kind: expected one of attach, llamacpp", "did you mean 'sglang'?"),
        (
            "kind: sglang",
            "kind: reference",
            "2: engine.kind: the engine 'reference' is not available",
            "known: ",
        ),
        (
            "kind: sglang",
            "kind: sglang, url: 'http://h:1'",
            "2: engine.url: 'sglang' is started by draftmark",
            "kind: attach",
        ),
        (
            "kind: sglang",
            "kind: sglang, env: {A: 1}",
            "2: engine.env.A: expected text",
            "in quotes it is text",
        ),
        # methods
        (
            "kind: none",
            "kind: nne",
            "5: methods[0].kind: sglang has no method kind 'nne'",
            "did you mean 'none'?",
        ),
        ("kind: none", "kind: medusa", "sglang has no method kind 'medusa'", "vllm has it"),
        ("kind: none", "knd: none", "5: methods[0].knd: unknown key", "did you mean 'kind'?"),
        (
            "kind: none",
            "kind: none, budget: 3",
            "5: methods[0].budget: 'none' of sglang has no parameter 'budget'",
            "",
        ),
        ("kind: none", "kind: none, arg: {}", "no parameter 'arg'", "did you mean 'args'?"),
        ("kind: none", "kind: none, params: {}", "no parameter 'params'", "beside 'kind'"),
        ("kind: none", "kind: dflash", "5: methods[0]: 'dflash' needs a draft model", "give model.draft"),
        ("kind: none", "kind: none, draft: a/b", "5: methods[0].draft: 'none' uses no draft model", ""),
        (
            "[4, 8]",
            "[4, 1]",
            "6: methods[1].num_draft_tokens[1]: expected a whole number of at least 2, got 1",
            "",
        ),
        ("[4, 8]", "[]", "methods[1].num_draft_tokens: expected a whole number", ""),
        ("[4, 8]", "[4, 4]", "methods[1].num_draft_tokens[1]: 4 is given twice", ""),
        ("[4, 8]", "[4, '8']", "expected a whole number of at least 2, got '8'", ""),
        ("[4, 8]", "[4, true]", "expected a whole number of at least 2, got true", ""),
        ("[4, 8]", "{a: 1}", "expected a whole number of at least 2, got a mapping", ""),
        (
            '"ngram-{num_draft_tokens}"',
            "ngram",
            "6: methods[1].name: one name for several values",
            'add {num_draft_tokens} to the name, for example "ngram-num_draft_tokens{num_draft_tokens}"',
        ),
        (
            "ngram-{num_draft_tokens}",
            "ngram-{num_draft}",
            "no parameter 'num_draft' to fill in",
            "did you mean 'num_draft_tokens'?",
        ),
        (
            "ngram-{num_draft_tokens}",
            "n{num_draft_tokens}}",
            "expected braces around one parameter's name",
            "",
        ),
        ("ngram-{num_draft_tokens}", "n {num_draft_tokens}", "'n 4' cannot be a name", ""),
        (
            "kind: none}",
            "kind: none}\n  - {name: ar, kind: ngram}",
            "6: methods[1].name: the name 'ar' is already taken",
            "",
        ),
        ("{name: ar, kind: none}", "ar", "5: methods[0]: expected a mapping, got 'ar'", ""),
        # workloads
        (
            "levels: [1, 4]",
            "levels: []",
            "10: workloads[1]: missing key 'levels' (or 'rates')",
            "levels: [1, 2, 4, 8]",
        ),
        ("levels: [1, 4]", "levels: [4, 4]", "10: workloads[1].levels[1]: 4 is given twice", ""),
        (
            "levels: [1, 4]",
            "levels: [1], arrival: gamma",
            "10: workloads[1].arrival: only 'rates' have arrivals",
            "",
        ),
        ("levels: [1, 4]", "rates: [1], burstiness: 2", "workloads[1].burstiness: only 'arrival: gamma'", ""),
        ("[3k]", "[3k, 3000]", "11: workloads[2].lengths[1]: 3000 is given twice", ""),
        (
            "{kind: context, lengths: [3k]}",
            "{kind: concurrency, levels: [4]}",
            "11: workloads[2]: gives the cell 'c4-256' that workloads[1] already gives",
            "",
        ),
        (
            "{kind: context, lengths: [3k]}",
            "{kind: agentic, scenarios: [cli-calc]}",
            "11: workloads[2].scenarios[0]: there is no scenario 'cli-calc'",
            "'cli-calculator'",
        ),
        (
            "lengths: [3k]",
            "lengths: [3k], precision: 0.05",
            "11: workloads[2]: missing key 'max_repetitions'",
            "e.g. max_repetitions: 60",
        ),
        (
            "levels: [1, 4]",
            "levels: [1], precision: 0.05",
            "10: workloads[1]: missing key 'max_requests'",
            "",
        ),
        (
            "levels: [1, 4]",
            "levels: [1, 4], max_requests: 90",
            "10: workloads[1].max_requests: only with 'precision'",
            "precision: 0.05",
        ),
        (
            "levels: [1, 4]",
            "levels: [1, 8], precision: 0.05, max_requests: 20",
            "10: workloads[1].max_requests: 20 requests are fewer than the 32 of a first round of 'c8-256'",
            "",
        ),
        (
            "lengths: [3k]",
            "lengths: [3k], precision: 1",
            "workloads[2].precision: expected a number above 0",
            "",
        ),
        ("lengths: [3k]", "lengths: [3k], api: text", "workloads[2].api: expected one of chat, complet", ""),
        (
            "{kind: context, lengths: [3k]}",
            "{kind: trace, file: t.json, format: sharegpt, requests: 4}",
            "11: workloads[2]: missing key 'levels' (or 'rates', or 'speedup')",
            "speedup: 1 sends as recorded",
        ),
        (
            "{kind: context, lengths: [3k]}",
            "{kind: trace, file: t.json, format: sharegpt, requests: 4, speedup: 2}",
            "11: workloads[2].speedup: a 'sharegpt' file has no times",
            "'levels' or 'rates'",
        ),
        (
            "{kind: context, lengths: [3k]}",
            "{kind: trace, file: t.json, format: sharegpt, requests: 4, levels: [1], arrival: gamma}",
            "11: workloads[2].arrival: only 'rates' have arrivals",
            "",
        ),
        (
            "{kind: context, lengths: [3k]}",
            "{kind: trace, file: t.json, requests: 4, levels: [1]}",
            "11: workloads[2]: missing key 'format'",
            "format: sharegpt",
        ),
    ],
)
def test_a_wrong_place_is_named(old: str, new: str, message: str, hint: str) -> None:
    """Each mistake is one error with the line, the key, what was expected and what is near."""
    error = refusal(edited(old, new))
    assert error.message.startswith("plan.yaml:")
    assert message in error.message
    assert hint in error.hint
    assert "\n" not in error.message


@pytest.mark.parametrize(
    ("addition", "message", "hint"),
    [
        ("baseline: a", "12: baseline: there is no method 'a'", "did you mean 'ar'?"),
        ("baseline: ar\ndrift: yes", "13: drift: expected true or false, got 'yes'", ""),
        ("tensor_parallel: [1, 2, 1]", "12: tensor_parallel[2]: 1 is given twice", ""),
        ("tensor_parallel: [0]", "12: tensor_parallel[0]: expected a whole number of at least 1, got 0", ""),
        ("slo: {}", "12: slo: expected at least one target", "tpot_ms"),
        ("hosts: {a b: {}}", "12: hosts.a b: expected a name of letters", ""),
        (
            "on_failure: stop",
            "12: on_failure: expected one of adjust, skip, got 'stop'",
            "known: adjust, skip",
        ),
        ("server: {memory_fraction: 2}", "expected a number above 0 and at most 1 or a mapping, got 2", ""),
        (
            "server: {memory_fraction: {tp2: 0.5}}",
            "server.memory_fraction.tp2: unknown key",
            "did you mean 'tp1'?",
        ),
        (
            "server: {context_length: 32k, context_needed: 16k}",
            "server.context_needed: 'context_length' already says how long a request may be",
            "remove one of them",
        ),
        ("server: {memory_fraction: {}}", "server.memory_fraction: nothing is given for tp1", "'default:'"),
        ("server: {context_length: 3k}", "3000 tokens are too few for 'ctx-3k-256' on sglang-tp1-ar", "3256"),
        ("server: {args: {a: [1]}}", "server.args.a: expected", ""),
        ("server: {args: {page-sise: 1}}", "12: server.args.page-sise: ", "page-size"),
        (
            "select: [{why: no}]",
            "12: select[0]: expected one of 'keep' and 'drop', got neither",
            "for example",
        ),
        ("select: [{keep: {tp: 1}, drop: {tp: 1}}]", "got both 'keep' and 'drop'", ""),
        (
            "select: [{drop: {method: ngram-5}}]",
            "select[0].drop.method: no cell of this plan has the method 'ngram-5'",
            "did you mean 'ngram-",
        ),
        ("select: [{drop: {method: [ar, b*]}}]", "select[0].drop.method[1]: no cell", ""),
        ("select: [{drop: {tp: '1'}}]", "no cell of this plan has the tp '1'", ""),
        ("select: [{drop: {rate: 1}}]", "no cell of this plan has the rate 1", "none is known here"),
        ("select: [{drop: {length: 4k}}]", "no cell of this plan has the length '4k'", "known: 3000"),
        ("select: [{drop: {metod: ar}}]", "select[0].drop.metod: unknown key", "did you mean 'method'?"),
        ("select: [{drop: {method: '*'}, why: tired}]", "12: select: nothing is left to measure", "tired"),
        ("hosts: {a: {gpus: 1}}\ntensor_parallel: [2]", "13: tensor_parallel: nothing is left", "a has 1"),
    ],
)
def test_a_wrong_section_is_named(addition: str, message: str, hint: str) -> None:
    """What contradicts the rest of a plan is refused at its own line."""
    error = refusal(PLAN + addition + "\n")
    assert message in error.message
    assert hint in error.hint


@pytest.mark.parametrize(
    ("addition", "where", "way_out"),
    [
        ("engine: {kind: attach, api_key: SECRET}", "engine.api_key: unknown key", "api_key_env"),
        ("engine: {kind: sglang, env: {HF_TOKEN: SECRET}}", "engine.env.HF_TOKEN", "environment"),
        ("engine: {kind: sglang, env: {A: [SECRET]}}", "engine.env.A: expected text, got a list", ""),
        ("engine: {kind: sglang}\nserver: {args: {api-key: SECRET}}", "server.args.api-key", "api_key_env"),
        ("engine: {kind: sglang, env: SECRET}", "got a value that is not shown here", ""),
    ],
)
def test_secrets_are_refused_and_never_repeated(addition: str, where: str, way_out: str) -> None:
    """A key in a plan would be published with the results; the error says where it belongs instead."""
    error = refusal(edited("engine: {kind: sglang}", addition))
    assert where in error.message
    assert way_out in error.hint
    assert "SECRET" not in str(error)


ATTACH = """\
name: attached
engine: {kind: attach, url: "http://127.0.0.1:8000"}
model: {target: m}
methods: [{name: ar, kind: none}]
workloads: [{kind: prompts}]
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (', url: "http://127.0.0.1:8000"', "", "4: methods[0]: no server is named for 'ar'"),
        ("http://127", "http://u:SECRET@127", "2: engine.url: a user name, password or query"),
        (":8000", "/?key=SECRET", "2: engine.url: a user name, password or query"),
        ("http://127.0.0.1:8000", "127.0.0.1:8000", "2: engine.url: expected the base URL of a server"),
        ("127.0.0.1", "[1", "2: engine.url: expected the base URL of a server"),
        ("kind: none}", "kind: none, url: nowhere}", "4: methods[0].url: expected the base URL"),
        ("kind: none}", "kind: none}, {name: b, kind: unknown}", "'ar' and 'b' are the same server"),
        (
            "name: attached",
            "name: attached\ntensor_parallel: [1, 2]",
            "tensor_parallel[1]: a server that already runs",
        ),
    ],
)
def test_an_attached_server_is_one_configuration(old: str, new: str, message: str) -> None:
    """A server that already runs has one address and one name, so that it is not compared with itself."""
    read_plan(ATTACH, "plan.yaml")
    assert old in ATTACH
    error = refusal(ATTACH.replace(old, new))
    assert message in error.message
    assert "SECRET" not in str(error)


def test_drift_needs_a_baseline_and_its_name() -> None:
    """There must be something to measure again, and no method may be called what that is called."""
    head = (
        "name: p\nengine: {kind: sglang}\nmodel: {target: t/m}\nworkloads: [{kind: prompts}]\ndrift: true\n"
    )
    bare = head + "methods: [{name: a, kind: ngram}]\n"
    taken = head + "methods: [{name: ar, kind: none}, {name: ar-again, kind: ngram}]\n"
    assert "drift: there is no baseline to measure again" in refusal(bare).message
    assert "methods[1].name: with 'drift' the name 'ar-again' is that of 'ar'" in refusal(taken).message


def test_without_a_plain_method_there_is_no_baseline() -> None:
    """Neither zero nor two methods of kind none make a baseline by themselves."""
    none = edited("  - {name: ar, kind: none}\n", "")
    two = edited("kind: none}", "kind: none}\n  - {name: ar2, kind: none, args: {page-size: 1}}")
    assert read_plan(none, "p").baseline is None
    assert read_plan(two, "p").baseline is None
    assert read_plan(two + "baseline: ar2\n", "p").baseline == "ar2"


def test_files_that_a_plan_names_must_exist() -> None:
    """What looks like a path is asked for, a hub id is not, and the missing one is named with its line."""
    text = edited("some/model", "./models/m.gguf").replace(
        "[3k]}",
        "[3k]}\n  - {kind: agentic, scenarios: [s.yaml]}"
        "\n  - {kind: trace, file: t, format: mooncake, requests: 4, speedup: 1}",
    )
    asked: list[str] = []

    def exists(path: str) -> bool:
        asked.append(path)
        return True

    check_paths(text, "plan.yaml", exists)
    assert asked == ["./models/m.gguf", "s.yaml", "t"]
    with pytest.raises(PlanError, match=r"plan.yaml:12: workloads\[3\].scenarios\[0\]: no such file: s.yaml"):
        check_paths(text, "plan.yaml", lambda path: path != "s.yaml")
    with pytest.raises(PlanError, match=r"plan.yaml:13: workloads\[4\].file: no such file: t"):
        check_paths(text, "plan.yaml", lambda path: path != "t")
    check_paths(PLAN, "plan.yaml", lambda path: pytest.fail(path))


def test_files_on_another_machine_are_not_asked_for() -> None:
    """Only scenario files are read here when the servers run elsewhere."""
    check_paths(QWEN, "plan.yaml", lambda path: pytest.fail(path))


SNIPPETS = [
    "on",
    "null",
    "-1",
    "0",
    "3k",
    "1e400",
    "[]",
    "{}",
    "[1, x]",
    "{a: b}",
    "'",
    '"',
    "*a",
    "&a",
    "<<",
    "!t",
    "~",
]


@settings(deadline=None)
@given(st.data())
def test_any_damage_gives_a_plan_or_one_plan_error(data: st.DataObject) -> None:
    """Replacing any stretch of a valid plan ends in a plan or a PlanError, never in another exception."""
    text = data.draw(st.sampled_from([PLAN, QWEN, QUICKSTART, ATTACH]))
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 12)))
    fill = data.draw(st.sampled_from(SNIPPETS) | st.text(max_size=4) | st.text(string.printable, max_size=4))
    error = plan_error(lambda: read_plan(text[:start] + fill + text[end:], "plan.yaml"))
    assert error is None or (error.message.startswith("plan.yaml:") and "\n" not in error.message)


@given(
    st.recursive(
        st.text("ab: -", max_size=3) | st.integers(-9, 9) | st.none(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.text("ab", min_size=1, max_size=2), inner, max_size=3)
        ),
    )
)
def test_every_key_and_item_has_a_line(data: object) -> None:
    """After reading, each key and item of the data can be pointed at."""
    document = parse(yaml.safe_dump({"root": data}), "p")

    def paths(value: object, at: tuple[str | int, ...]) -> None:
        assert at in document.lines
        entries = (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        )
        for key, item in entries:
            paths(item, (*at, key))

    paths(document.data, ())


# --- writing -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [PLAN, QUICKSTART, QWEN], ids=["small", "quickstart", "qwen36"])
def test_a_plan_that_is_written_reads_as_it_was(text: str) -> None:
    """To the field, and so does one that was derived; what is as by default is not written."""
    plan = read_plan(text, "plan.yaml")
    for one in plan, lossless_plan(plan):
        written = write_plan(one)
        assert read_plan(written, "written.yaml") == one
        assert "version" not in parse(written, "written.yaml").data["engine"]


looks = st.sampled_from(["on", "1e5", "0x10", "null", "<<", "=", "2026-01-01", "1_000", "~", "!x"])
words = st.text() | looks
numbers = st.integers(-(2**62), 2**62) | st.floats(allow_nan=False, allow_infinity=False)
scalars = words | numbers | st.booleans() | st.none()


@given(st.dictionaries(words, scalars | st.lists(scalars)))
@settings(max_examples=200, deadline=None)
def test_every_value_that_is_written_reads_as_it_was(data: dict[str, object]) -> None:
    """Text stays text, whatever it looks like, and a number a number."""
    assert parse(dump(data), "written.yaml").data == data
