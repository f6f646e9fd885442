"""The memory plan of vLLM and llama.cpp services."""

from dataclasses import replace
from typing import Any

import pytest

import engine_cases as cases
import known_models as known
from draftmark.memory import GPUS, Assumed, Gpu, MemoryPlan, memory_text, plan_memory, reported
from draftmark.memory.gpus import GIB
from draftmark.memory.vllm import blocks_of
from draftmark.models.config import config_facts
from draftmark.models.facts import ModelFacts

QWEN36 = config_facts(known.text(known.QWEN36), stored=(55_560_000_000, "index"))
LLAMA = config_facts(known.text(known.LLAMA_8B))
MIB = 1 << 20
NOTHING = Assumed(0, 0, 0, 0, 0)


def vllm(
    kind: str = "none",
    params: dict[str, Any] | None = None,
    *,
    target: ModelFacts = QWEN36,
    gpu: Gpu = GPUS["H200"],
    assumed: Assumed = NOTHING,
    **fields: Any,
) -> MemoryPlan:
    return plan_memory(cases.service("vllm", kind, params, **fields), target, None, gpu, assumed)


def llama(kind: str = "none", params: dict[str, Any] | None = None, **fields: Any) -> MemoryPlan:
    target = fields.pop("target", QWEN36)
    gpu = fields.pop("gpu", GPUS["H200"])
    return plan_memory(cases.service("llamacpp", kind, params, **fields), target, None, gpu)


def size(plan: MemoryPlan, label: str) -> float:
    return next(line.bytes for line in plan.fit.lines if line.label == label)


@pytest.mark.parametrize(
    ("tp", "drafts", "tokens", "block_mib", "state_mib"),
    [
        (1, 0, 784, 49.0, 147.0),
        (1, 3, 800, 53.1, 637.5),
        (1, 15, 864, 57.4, 2754.0),
        (4, 3, 800, 13.3, 159.0),
        (8, 3, 400, 6.64, 79.7),
    ],
)
def test_a_hybrids_blocks_are_cut_as_the_engine_does(
    tp: int, drafts: int, tokens: int, block_mib: float, state_mib: float
) -> None:
    """A block is as long as one layer's state is large, and a request's states fill whole blocks."""
    kind, params = ("mtp", {"num_speculative_tokens": drafts}) if drafts else ("none", {})
    blocks = blocks_of(cases.service("vllm", kind, params, tp=tp), QWEN36, None)
    assert blocks.tokens == tokens
    assert blocks.bytes / MIB == pytest.approx(block_mib, rel=0.005)
    assert blocks.state * blocks.bytes / MIB == pytest.approx(state_mib, rel=0.005)


def test_kept_prefixes_need_one_block_more_of_each_group() -> None:
    """With prefix caching a request holds two states, and one for each drafted token."""
    service = cases.service(
        "vllm", "mtp", {"num_speculative_tokens": 3}, args={"enable-prefix-caching": True}
    )
    assert blocks_of(service, QWEN36, None).state == 15


def test_a_real_hybrid_server_held_as_many_tokens() -> None:
    """On two GPUs with 4.99 GiB of cache each and 8-bit keys a server reported 302,921 tokens."""
    made = vllm(
        target=replace(QWEN36, weight_bytes=0, mtp_bytes=0),
        gpu=Gpu("what is left", round(4.99 * GIB)),
        tp=2,
        memory_fraction=1.0,
        context_length=131_072,
        args={"kv-cache-dtype": "fp8_e4m3", "enable-prefix-caching": True},
        max_running_requests=2,
    )
    assert made.fit.kv_tokens == 302_921
    assert made.full_length_requests == pytest.approx(2.31, abs=0.005)


def test_a_real_dense_server_held_as_many_tokens() -> None:
    """A server with 8.11 GiB of cache for Qwen3-235B on each of four GPUs reported 178,880 tokens."""
    made = vllm(
        target=replace(config_facts(known.text(known.QWEN3_235B)), weight_bytes=0),
        gpu=Gpu("what is left", round(8.11 * GIB)),
        tp=4,
        memory_fraction=1.0,
        context_length=40_960,
    )
    assert made.fit.kv_tokens == pytest.approx(178_880, rel=0.03)
    assert [pair.close for pair in reported(made, {"kv_tokens": 178_880, "kv_gib": 8.11})] == [True, True]


@pytest.mark.parametrize(
    ("context", "peak_gib", "full_length"), [(20_000, 17.06, 1.56), (29_000, 17.98, 0.82)]
)
def test_a_small_gpu_starts_only_with_the_shorter_context(
    context: int, peak_gib: float, full_length: float
) -> None:
    """A 24 GB GPU served Llama-3.1-8B with 20,000 tokens of context, and refused 29,000."""
    # The servers reported their weights, their peak and 0.35 GiB beside it.
    step = round((peak_gib - 14.99) * GIB)
    made = vllm(
        target=replace(LLAMA, weight_bytes=round(14.99 * GIB)),
        gpu=GPUS["RTX-3090"],
        assumed=Assumed(round(0.35 * GIB), 0, step, 0, 0),
        memory_fraction=0.9,
        context_length=context,
        max_running_requests=1,
    )
    assert made.full_length_requests == pytest.approx(full_length, rel=0.03)
    assert (made.fit.failure is None) == (full_length >= 1)


def test_more_requests_than_blocks_do_not_start() -> None:
    """Each request of a hybrid needs a block of state; the engine refuses more requests than blocks."""
    made = vllm(gpu=GPUS["H100"], max_running_requests=1024, context_length=8192)
    assert "1024 requests need as many state blocks" in (made.fit.failure or "")
    for proposal in made.proposals:
        again = plan_memory(proposal.service, QWEN36, None, made.gpu, NOTHING)
        assert (again.verdict, again.fit) == ("fits", proposal.fit), proposal.change
    assert any(each.change.startswith("server.max_running_requests") for each in made.proposals)


def test_states_cap_what_runs_at_once() -> None:
    """A request with a state for each of many drafts takes many blocks, and fewer requests run."""
    made = vllm(
        "mtp", {"num_speculative_tokens": 15}, gpu=GPUS["H100"], max_running_requests=24, context_length=4096
    )
    assert made.verdict == "fits with less concurrency"
    assert (made.fit.running or 0) < 24
    changes = [proposal.change for proposal in made.proposals]
    assert any("num_speculative_tokens" in change for change in changes)


def test_a_context_too_long_proposes_the_longest_that_fits() -> None:
    """The plan names the longest context, and one step more does not fit."""
    made = vllm(target=LLAMA, gpu=GPUS["RTX-4090"], context_length=131_072, max_running_requests=1)
    change = next(each for each in made.proposals if "context_length" in each.change)
    length = change.service.context_length or 0
    longer = vllm(target=LLAMA, gpu=GPUS["RTX-4090"], context_length=length + 256, max_running_requests=1)
    assert longer.verdict == "does not fit"


def test_weights_alone_may_be_too_much() -> None:
    """A model that is larger than the GPU leaves nothing, and more GPUs are proposed."""
    made = vllm(gpu=GPUS["L40S"])
    assert "leave no memory" in (made.fit.failure or "")
    assert [proposal.change for proposal in made.proposals] == ["tensor_parallel: [2]"]


def test_windowed_layers_need_blocks_for_their_window_only() -> None:
    """Half of the layers with a short window take less than all of them in full."""
    layers = {"layer_types": ["sliding_attention", "full_attention"] * 16, "sliding_window": 128}
    windowed = vllm(target=config_facts(known.text(known.LLAMA_8B, **layers)), context_length=131_072)
    full = vllm(target=LLAMA, context_length=131_072)
    assert (windowed.full_length_requests or 0) > 1.8 * (full.full_length_requests or 0)


# --- llama.cpp --------------------------------------------------------------------------------------


def test_llamacpp_keeps_a_state_for_each_drafted_token() -> None:
    """One sequence of the hybrid keeps 149.6 MiB, and four times that with three drafts."""
    plain = llama(max_running_requests=1)
    drafted = llama("mtp", {"n_max": 3}, max_running_requests=1)
    assert size(plain, "recurrent states") / MIB == pytest.approx(149.6, abs=0.05)
    assert size(drafted, "recurrent states") / MIB == pytest.approx(598.5, abs=0.05)
    assert size(plain, "KV of one token") == 65_536


def test_llamacpp_makes_no_snapshots_for_lookups_or_other_hybrids() -> None:
    """N-gram drafts, and hybrids that are decoded again, keep one state."""
    other = replace(QWEN36, architecture="qwen3next")
    for made in (llama("ngram-simple"), llama("mtp", {"n_max": 3}, target=other)):
        assert "8 slots × 1 states" in "\n".join(memory_text(made))


def test_llamacpp_allocates_every_slot_up_front() -> None:
    """The cache is slots times context, and what does not fit is answered with fewer or shorter slots."""
    made = llama(target=LLAMA, gpu=GPUS["RTX-4090"], max_running_requests=8, context_length=32_768)
    assert size(made, "KV cache") == 8 * 32_768 * 131_072
    assert made.verdict == "does not fit"
    changes = [proposal.change.partition(":")[0] for proposal in made.proposals]
    assert changes == ["server.max_running_requests", "server.context_length"]
    assert llama(target=LLAMA, gpu=GPUS["H100"], context_length=32_768).verdict == "fits"


def test_a_quantised_cache_of_llamacpp_is_smaller() -> None:
    """Blocks of 32 numbers in 34 bytes take 17/32 of 16-bit ones."""
    args = {"cache-type-k": "q8_0", "cache-type-v": "q8_0"}
    assert size(llama(target=LLAMA, args=args), "KV of one token") == 131_072 * 17 / 32


def test_a_slot_shorter_than_the_longest_request_does_not_fit() -> None:
    """A context that the plan's own requests exceed is named."""
    made = llama(target=LLAMA, context_length=1024)
    assert "the longest request has 2,300 tokens, a slot 1,024" in (made.fit.failure or "")
