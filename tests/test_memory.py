"""The memory plan of SGLang services, against the failure it is to predict and against real servers."""

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import engine_cases as cases
import known_models as known
from draftmark.errors import BadInput
from draftmark.memory import (
    ASSUMED,
    GPUS,
    Assumed,
    Gpu,
    MemoryPlan,
    gpu_named,
    memory_text,
    plan_memory,
    reported,
    reported_text,
)
from draftmark.memory.gpus import GIB
from draftmark.models.config import config_facts
from draftmark.models.facts import ModelFacts
from draftmark.schema import Cell

QWEN36 = config_facts(known.text(known.QWEN36), stored=(55_560_000_000, "index"))
DRAFTER = config_facts(known.text(known.QWEN36_DFLASH), stored=(3_300_000_000, "index"))
LLAMA = config_facts(known.text(known.LLAMA_8B))
PREFIXES = {"disable-radix-cache": False}
EXACT = Assumed(context_bytes=0)


def plan(
    kind: str = "none",
    params: dict[str, Any] | None = None,
    *,
    target: ModelFacts = QWEN36,
    gpu: Gpu = GPUS["RTX-PRO-6000"],
    assumed: Assumed = ASSUMED,
    **fields: Any,
) -> MemoryPlan:
    draft = DRAFTER if kind in ("dflash", "ddtree") else None
    return plan_memory(cases.service("sglang", kind, params, **fields), target, draft, gpu, assumed)


def size(plan: MemoryPlan, label: str) -> float:
    """GiB of one line."""
    return next(line.bytes for line in plan.fit.lines if line.label == label) / GIB


# --- a drafter with a block of 16 and 32k of context on one 96 GB GPU -------------------------------

SETTING: dict[str, Any] = {"memory_fraction": 0.75, "context_length": 32768, "version": "0.5.17"}
BLOCK = {"block_size": 16}


def test_eight_requests_do_not_fit_and_the_plan_says_why() -> None:
    """Twice the requests need twice the states: more than what the weights leave."""
    eight = plan("dflash", BLOCK, max_running_requests=8, **SETTING)
    assert eight.verdict == "does not fit"
    assert size(eight, "left for states and KV cache") == pytest.approx(15.5, abs=0.6)
    states = size(eight, "recurrent states") + size(eight, "states during verification")
    assert states == pytest.approx(21.5, abs=0.6)
    assert "recurrent states of 8 requests need 21.9 GiB" in "\n".join(memory_text(eight))


def test_four_requests_fit_with_few_tokens_against_the_context() -> None:
    """Half as many run, and the plan says how little context is left for them."""
    four = plan("dflash", BLOCK, max_running_requests=4, **SETTING)
    assert (four.verdict, four.fit.running) == ("fits", 4)
    assert four.full_length_requests == pytest.approx(1.4, abs=0.1)
    assert "1.5 requests of 32,768 tokens at once" in "\n".join(memory_text(four))


def test_with_prefixes_kept_it_starts_and_runs_one_request_at_a_time() -> None:
    """The engine sizes its states itself, and in silence runs fewer requests than it was told to."""
    kept = PREFIXES | {"mamba-radix-cache-strategy": "extra_buffer"}
    one = plan("dflash", BLOCK, max_running_requests=8, args=kept, **SETTING)
    assert one.verdict == "fits with less concurrency"
    assert one.fit.running == 1
    assert "runs 1 of 8 requests at once: 8 state slots, 5 per request" in "\n".join(memory_text(one))


@pytest.mark.parametrize("args", [{}, PREFIXES])
def test_every_proposal_fits_by_the_same_arithmetic(args: dict[str, Any]) -> None:
    """What is proposed was planned in turn, and runs everything that was asked for at full length."""
    eight = plan("dflash", BLOCK, max_running_requests=8, args=args, **SETTING)
    assert eight.proposals
    for proposal in eight.proposals:
        again = plan_memory(proposal.service, QWEN36, DRAFTER, eight.gpu)
        assert (again.verdict, again.fit) == ("fits", proposal.fit), proposal.change
        assert (again.full_length_requests or 0) >= 1


def test_proposals_are_the_smallest_changes() -> None:
    """One step less of what is proposed would not fit."""
    eight = plan("dflash", BLOCK, max_running_requests=8, **SETTING)
    changes = [proposal.change for proposal in eight.proposals]
    assert changes == [
        "server.memory_fraction: 0.85",
        "server.max_running_requests: 4",
        "methods.m.block_size: 9",
        "server.args: {mamba-ssm-dtype: bfloat16}",
        "tensor_parallel: [2]",
    ]
    less = plan("dflash", BLOCK, max_running_requests=8, **SETTING | {"memory_fraction": 0.84})
    assert (less.full_length_requests or 0) < 1


def test_what_runs_on_the_machine_weighs_what_is_predicted() -> None:
    """The target's weights were reported as 51.05 GB per GPU: without its next-token layers."""
    assert size(plan(**SETTING), "target weights") == pytest.approx(51.05, rel=0.03)


# --- the engine's arithmetic, step by step ----------------------------------------------------------

ON_H200: dict[str, Any] = {
    "gpu": Gpu("H200", round(139.0 * GIB)),
    "assumed": EXACT,
    "target": replace(QWEN36, weight_bytes=round(52.5 * GIB), mtp_bytes=0, vision=None),
    "memory_fraction": 0.85,
    "max_running_requests": 48,
}


def chain(width: int) -> dict[str, Any]:
    return {"num_steps": width - 1, "topk": 1, "num_draft_tokens": width}


@pytest.mark.parametrize(
    ("tp", "width", "strategy", "rest", "slots", "running", "speculative", "tokens"),
    [
        (1, 0, "extra_buffer", 65.05, 213, 42, 0, 563_093),
        (1, 4, "extra_buffer", 65.05, 116, 23, 13.76, 532_180),
        (1, 4, "extra_buffer_lazy", 65.05, 104, 26, 15.48, 532_180),
        (1, 4, "no_buffer", 65.05, 89, 29, 17.21, 538_813),
        (1, 8, "extra_buffer", 65.05, 79, 15, 18.35, 543_235),
        (1, 16, "extra_buffer", 65.05, 47, 9, 22.94, 543_235),
        (4, 4, "extra_buffer", 104.43, 763, 48, 7.03, 4_318_641),
        (4, 16, "extra_buffer", 104.43, 324, 48, 28.10, 3_989_228),
        (8, 4, "extra_buffer", 110.99, 1626, 48, 3.51, 4_830_647),
        (8, 16, "extra_buffer", 110.99, 694, 48, 14.05, 5_210_909),
    ],
)
def test_a_hybrid_divides_its_memory_as_the_engine_does(
    tp: int,
    width: int,
    strategy: str,
    rest: float,
    slots: int,
    running: int,
    speculative: float,
    tokens: int,
) -> None:
    """Slots, cap and tokens of a worked table come out, for every strategy, width and number of GPUs."""
    args = PREFIXES | {"mamba-radix-cache-strategy": strategy}
    kind, params = ("nextn", chain(width)) if width else ("none", {})
    made = plan(kind, params, tp=tp, args=args, **ON_H200)
    assert size(made, "left for states and KV cache") == pytest.approx(rest, abs=0.01)
    assert (made.fit.recurrent_slots, made.fit.running) == (slots, running)
    if width:
        assert size(made, "states during verification") == pytest.approx(speculative, abs=0.01)
    assert made.fit.kv_tokens == pytest.approx(tokens, rel=1e-3)


@pytest.mark.parametrize(
    ("tp", "token", "slot"), [(1, 65_536, 146.81), (2, 32_768, 73.41), (4, 16_384, 36.70), (8, 16_384, 18.35)]
)
def test_kv_heads_are_repeated_and_states_are_divided(tp: int, token: int, slot: float) -> None:
    """Beyond four GPUs four KV heads no longer shrink, while the states do."""
    made = plan(tp=tp, **ON_H200)
    assert size(made, "KV of one token") * GIB == token
    assert size(made, "state of one request") * 1024 == pytest.approx(slot, abs=0.01)


@pytest.mark.parametrize(
    ("kind", "params", "width"),
    [
        ("dflash", {}, 16),
        ("dflash", {"block_size": 8}, 8),
        ("ddtree", {"budget": 15}, 16),
        ("ngram", {}, 12),
        ("nextn", {}, 4),
        ("nextn", {"num_steps": 5}, 6),
    ],
)
def test_a_method_keeps_a_state_for_each_verified_token(
    kind: str, params: dict[str, Any], width: int
) -> None:
    """The width of a step follows from the method's own parameter, or from the engine's default."""
    made = plan(kind, params, gpu=GPUS["H200"], max_running_requests=2)
    states = size(made, "states during verification") / size(made, "state of one request")
    assert states == pytest.approx(3 * width)


# --- real servers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("slots", "running"), [(40, 8), (19, 3), (10, 2)])
def test_given_slots_cap_requests_as_servers_reported(slots: int, running: int) -> None:
    """Three servers with a given number of slots reported these caps."""
    made = plan("nextn", chain(4), gpu=GPUS["H200"], args=PREFIXES | {"max-mamba-cache-size": slots})
    assert made.fit.running == running


@pytest.mark.parametrize(
    ("args", "fraction", "why"),
    [
        ({"max-total-tokens": 1}, 0.8, "no request can run: 1 KV tokens"),
        ({}, 0.002, "weights leave no memory for the KV cache"),
        (PREFIXES | {"max-mamba-cache-size": 1}, 0.8, "no request can run: 1 state slots, 5 per request"),
    ],
)
def test_what_servers_refused_is_foreseen(args: dict[str, Any], fraction: float, why: str) -> None:
    """Three settings with which a real server ended at its start."""
    made = plan(gpu=GPUS["H200"], args=args, memory_fraction=fraction)
    assert made.verdict == "does not fit"
    assert why in (made.fit.failure or "")


def test_the_smallest_fraction_is_the_one_that_a_server_named() -> None:
    """A server with 125.65 GiB of weights and 12.25 GiB free asked for more than 0.9113."""
    alone = Assumed(context_bytes=0, loading_bytes=0)
    gpu = Gpu("H200", round((125.65 + 12.25) * GIB))
    heavy = replace(LLAMA, weight_bytes=round(125.65 * 8 * GIB))
    refused, starts = (
        plan(target=heavy, tp=8, gpu=gpu, assumed=alone, memory_fraction=share) for share in (0.911, 0.912)
    )
    assert (refused.fit.failure, starts.fit.failure) == ("weights leave no memory for the KV cache", None)


def test_a_dense_model_holds_the_tokens_that_a_server_reported() -> None:
    """Qwen3-235B in FP8 on four H100 held 367,404 tokens in 16.46 GiB."""
    target = config_facts(known.text(known.QWEN3_235B))
    made = plan(target=target, tp=4, gpu=GPUS["H100"], memory_fraction=0.93)
    assert 367_404 * size(made, "KV of one token") == pytest.approx(16.46, rel=0.001)
    # The rest between GPU and cache is assumed, and a twentieth of the cache here.
    assert made.fit.kv_tokens == pytest.approx(367_404, rel=0.06)


def test_a_running_server_is_set_beside_its_plan() -> None:
    """What both know is compared, with the relative error; what a server does not say is left out."""
    made = plan("dflash", BLOCK, max_running_requests=4, **SETTING)
    tokens, weights = made.fit.kv_tokens or 0, size(made, "target weights") + size(made, "draft weights")
    said = {
        "kv_tokens": tokens,
        "max_running_requests": 2,
        "weights_gib": weights * 1.02,
        "recurrent_slots": True,
    }
    pairs = {pair.label: pair for pair in reported(made, said)}
    assert sorted(pairs) == ["KV tokens", "requests at once", "weights"]
    assert [pairs[label].close for label in sorted(pairs)] == [True, False, True]
    assert "requests at once: 4 predicted, 2 reported, +100.0%" in list(reported_text(pairs.values()))


# --- dense, latent and windowed models --------------------------------------------------------------


def test_a_latent_is_held_whole_by_every_gpu() -> None:
    """MLA keeps one row of 576 numbers per layer, however many GPUs there are."""
    target = config_facts(known.text(known.DEEPSEEK_V3))
    made = plan(target=target, tp=8, gpu=GPUS["B200"], memory_fraction=0.85)
    assert size(made, "KV of one token") * GIB == 576 * 2 * 61


def test_a_draft_model_of_its_own_takes_its_share_of_each_token() -> None:
    """A standalone draft of as many layers as the target doubles a token."""
    service = cases.service("sglang", "standalone", {"num_steps": 3})
    alone = plan(target=LLAMA, gpu=GPUS["H100"])
    both = plan_memory(service, LLAMA, LLAMA, GPUS["H100"])
    assert size(both, "KV of one token") == 2 * size(alone, "KV of one token")


def test_sliding_layers_count_less_only_where_the_engine_gives_them_a_pool() -> None:
    """GPT-OSS keeps four fifths of the tokens in its sliding layers; another model keeps them all."""
    layers = {"layer_types": ["sliding_attention", "full_attention"] * 16, "sliding_window": 128}
    whole = 32 * 8 * 256 * 2
    for name, expected in (("GptOssForCausalLM", whole * 0.9), ("Qwen3ForCausalLM", whole)):
        target = config_facts(known.text(known.LLAMA_8B, architectures=[name], **layers))
        assert size(plan(target=target, gpu=GPUS["H100"]), "KV of one token") * GIB == pytest.approx(
            expected, abs=1
        )


def test_eight_bit_keys_halve_a_token() -> None:
    """The cache's type is the flag's, else the model's."""
    args = {"kv-cache-dtype": "fp8_e4m3"}
    halved = plan(target=LLAMA, gpu=GPUS["H100"], args=args)
    assert 2 * size(halved, "KV of one token") == size(
        plan(target=LLAMA, gpu=GPUS["H100"]), "KV of one token"
    )


def test_data_parallel_groups_share_the_requests() -> None:
    """Each of two groups runs half of the requests, with the states of that half."""
    args = {"dp-size": 2, "enable-dp-attention": True}
    made = plan(tp=2, gpu=GPUS["H200"], max_running_requests=16, args=args)
    assert (made.fit.running, made.fit.recurrent_slots) == (16, 8)
    few = {"tp": 2, "gpu": GPUS["H200"], "max_running_requests": 1, "args": args}
    assert plan(**few, version="0.5.17").verdict == "does not fit"
    assert plan(**few, version="0.5.23").verdict == "fits"
    assert "do not divide into 2" in (plan(tp=1, args=args).fit.failure or "")


# --- what is refused, and what is not known ---------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "tp", "why"),
    [
        (known.SMOLLM2, 2, "9 query heads do not divide by 2"),
        (known.LLAMA_8B | {"num_attention_heads": 48, "num_key_value_heads": 6}, 16, "6 KV heads neither"),
        (known.QWEN36, 16, "24 query heads do not divide by 16"),
    ],
)
def test_a_model_that_cannot_be_split_is_explained(shape: known.Shape, tp: int, why: str) -> None:
    """Heads that do not divide are named, and a number of GPUs that works is proposed."""
    made = plan(target=config_facts(known.text(shape)), tp=tp, gpu=GPUS["H200"])
    assert made.verdict == "does not fit"
    assert why in (made.fit.failure or "")
    assert any(proposal.change.startswith("tensor_parallel") for proposal in made.proposals)


def test_a_draft_of_another_model_is_refused() -> None:
    """A drafter for another vocabulary cannot serve, whatever memory there is."""
    made = plan("dflash", BLOCK, target=config_facts(known.text(known.QWEN3_8B)), gpu=GPUS["H200"])
    assert "the draft does not belong to the target: vocabulary" in (made.fit.failure or "")
    assert made.proposals == ()


def test_what_is_not_known_is_named_and_no_number_is_given() -> None:
    """Without the draft, the weights or the layers there is no verdict, and no line."""
    service = cases.service("sglang", "dflash", BLOCK)
    strange = config_facts(known.text(known.LLAMA_8B, lru_width=1))
    for made, what in (
        (plan_memory(service, QWEN36, None, GPUS["H200"]), "the draft model: dflash needs one"),
        (plan(target=replace(LLAMA, weight_bytes=None)), "target: bytes of its weights"),
        (plan(target=strange), "target: what its layers keep (config has 'lru_width')"),
        (plan("dspark"), "how many tokens a step verifies: set a parameter of methods.m"),
        (plan(args={"pp-size": 2}), "how the layers are spread with pp-size"),
    ):
        assert made.verdict == "unknown"
        assert what in made.unknown
        assert made.fit.lines == ()


def test_an_attached_server_has_no_plan() -> None:
    """A server that already runs has its memory; nothing is said of it."""
    made = plan_memory(cases.service("attach", "none"), LLAMA, None, GPUS["H100"])
    assert made.unknown == ("how the engine 'attach' uses memory",)


@pytest.mark.parametrize(
    ("text", "gib"),
    [
        ("h100", 79.1),
        ("NVIDIA RTX PRO 6000 Blackwell", 94.97),
        ("rtx_4090", 23.53),
        ("96GB", 89.41),
        ("24564MiB", 23.99),
    ],
)
def test_gpus_are_known_by_name_or_size(text: str, gib: float) -> None:
    """Names are read loosely, and a size says which unit it is in."""
    assert gpu_named(text).total_bytes / GIB == pytest.approx(gib, abs=0.01)


def test_an_unknown_gpu_gives_the_nearest() -> None:
    """A name that is not known is an error with the nearest one and a way out."""
    with pytest.raises(BadInput, match=re.escape("did you mean 'H200'?; or give its memory: 96GB")):
        gpu_named("H202")


def test_a_cell_that_does_not_fit_at_once_is_named() -> None:
    """Four contexts of 30k tokens wait for each other where the cache holds fewer tokens."""
    cell = Cell(id="ctx-30k-c4", workload="context", max_tokens=256, length=30_000, concurrency=4, requests=4)
    made = plan("dflash", BLOCK, max_running_requests=4, cells=(cell,), **SETTING)
    assert "ctx-30k-c4: 4 requests of 30,256 tokens do not fit at once; 1 do, the others wait" in "\n".join(
        memory_text(made)
    )


def test_a_request_longer_than_the_cache_does_not_fit() -> None:
    """A server that starts but refuses the longest request is no fit."""
    made = plan("dflash", BLOCK, max_running_requests=4, context_needed=60_000, **SETTING)
    assert "the longest request has 60,000 tokens" in (made.fit.failure or "")


# --- laws ------------------------------------------------------------------------------------------


@given(
    fraction=st.floats(0.3, 0.94),
    requests=st.integers(1, 64),
    width=st.integers(2, 32),
    kept=st.booleans(),
)
def test_more_memory_never_holds_less(fraction: float, requests: int, width: int, kept: bool) -> None:
    """With a larger share there are at least as many tokens, and a plan that fitted still does."""
    args = PREFIXES if kept else {}
    less, more = (
        plan_memory(
            cases.service(
                "sglang",
                "dflash",
                {"block_size": width},
                max_running_requests=requests,
                memory_fraction=share,
                args=args,
            ),
            QWEN36,
            DRAFTER,
            GPUS["H200"],
        ).fit
        for share in (fraction, min(1.0, fraction + 0.05))
    )
    assert less.failure or (more.failure is None and (more.running or 0) >= (less.running or 0))


@given(fraction=st.floats(0.5, 0.95), requests=st.integers(1, 32), kept=st.booleans())
def test_the_parts_sum_to_the_gpu(fraction: float, requests: int, kept: bool) -> None:
    """GPU memory less everything that is taken is the KV cache."""
    args = PREFIXES if kept else {}
    made = plan(
        "dflash", BLOCK, gpu=GPUS["B200"], memory_fraction=fraction, max_running_requests=requests, args=args
    )
    if made.fit.failure is None:
        taken = sum(line.bytes for line in made.fit.lines if line.kind == "takes")
        assert made.gpu.total_bytes - taken == pytest.approx(size(made, "KV cache") * GIB, abs=2)
