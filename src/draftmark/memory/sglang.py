"""SGLang's own sizing of its pools, step by step.

Source: ``mem_cache/kv_cache_configurator.py``, ``model_executor/pool_configurator.py`` and
``server_args.py`` of 0.5.17 and 0.5.23.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import floor

from draftmark.engines import sglang
from draftmark.engines.flags import known_flags, resolve
from draftmark.engines.sglang_flags import NAMES, RENAMED
from draftmark.memory.gpus import GIB, Gpu
from draftmark.memory.shard import (
    heads_held,
    kv_number_bytes,
    layer_token_bytes,
    request_bytes,
    token_bytes,
    weights,
)
from draftmark.memory.types import Assumed, Fit, Line, LineKind
from draftmark.memory.width import draft_layers, sglang_width
from draftmark.models.facts import ModelFacts
from draftmark.schema import Scalar, Service

STATE_SHARE = 0.9
"""``mamba-full-memory-ratio``: bytes of states per byte of KV cache, where the engine divides."""
SLIDING_SHARE = 0.8
"""``swa-full-tokens-ratio``: tokens kept in sliding layers per token in full ones."""
_SLOTS = {"no_buffer": 3, "extra_buffer": 5, "extra_buffer_lazy": 4}
_SLOTS_WITHOUT_OVERLAP = 4
"""Of either extra buffer, where the scheduler does not overlap with the GPU."""
_EXTRA_BUFFER = frozenset(
    {
        "BailingMoeV2_5ForCausalLM",
        "FalconH1ForCausalLM",
        "GraniteMoeHybridForCausalLM",
        "InternS2PreviewForConditionalGeneration",
        "KimiK3ForConditionalGeneration",
        "KimiLinearForCausalLM",
        "MiniCPMV4_6ForConditionalGeneration",
        "NemotronHForCausalLM",
        "NemotronHPuzzleForCausalLM",
        "Qwen3NextForCausalLM",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForConditionalGeneration",
    }
)
"""Architectures for which the strategy ``auto`` is ``extra_buffer``."""
_TWO_POOLS = frozenset({"GptOssForCausalLM", "Llama4ForConditionalGeneration"})
_TWO_POOLS_BEGIN = ("Gemma4", "MiMoV2", "Step3p")
"""Architectures whose sliding layers get a pool of their own; others keep every token in every layer."""
_ALWAYS_ONE = (0, 5, 23)
"""From here on, fewer requests than data-parallel groups are one for each."""
_MM_RESERVE_BYTES = 100 << 20
"""What 0.5.23 sets aside for images."""
_PREFILL_GRAPH_STEPS = ((32, 4), (256, 16), (512, 32), (1024, 64), (4096, 256), (1 << 20, 512))
"""Sizes of prefill graphs: up to the first number of tokens, every so many."""


def held_flags(service: Service) -> dict[str, Scalar | None]:
    """Flags that matter here by their present names: draftmark's, then the plan's."""
    return sglang.pins(service) | resolve({}, service, known_flags("SGLang", NAMES, service, RENAMED))


def fit(service: Service, target: ModelFacts, draft: ModelFacts | None, gpu: Gpu, assumed: Assumed) -> Fit:
    """What one GPU holds, and how many tokens and requests that leaves room for."""
    return _Sizing(service, target, draft, gpu, assumed).fit()


@dataclass(frozen=True)
class _States:
    """Recurrent states: how many, and what they take in all."""

    slots: int
    speculative_requests: int
    per_slot: float
    width: int

    @property
    def state_bytes(self) -> float:
        return (self.slots + 1) * self.per_slot

    @property
    def speculative_bytes(self) -> float:
        return self.speculative_requests * self.width * self.per_slot


class _Sizing:
    """One service's arithmetic; each method is one step of the engine's."""

    def __init__(
        self, service: Service, target: ModelFacts, draft: ModelFacts | None, gpu: Gpu, assumed: Assumed
    ) -> None:
        self.service, self.target, self.draft, self.gpu, self.assumed = service, target, draft, gpu, assumed
        self.flags = held_flags(service)
        self.width = sglang_width(service.method, target, draft, self.flags) or 0
        self.dp = int(self.flags.get("dp-size") or 1) if self.flags.get("enable-dp-attention") else 1
        self.tp = max(1, service.tp // self.dp)
        least = 1 if _at_least(service.engine.version, _ALWAYS_ONE) else 0
        self.asked = max(service.max_running_requests // self.dp, least)
        self.ratio = slots_per_request(self.flags, target)
        self.fraction = service.memory_fraction or default_fraction(self.flags, service.tp, target, gpu)
        self.lines: list[Line] = []

    def fit(self) -> Fit:
        if self.service.tp % self.dp:
            return self.failed(f"{self.service.tp} GPUs do not divide into {self.dp} data-parallel groups")
        left = self.after_weights()
        if left <= 0:
            return self.failed("weights leave no memory for the KV cache")
        states = self.states(left) if self.target.recurrent else None
        for_tokens = left - self.add_states(states) if states else left
        if states and states.slots <= 0:
            return self.failed("not even one recurrent state fits", states)
        if for_tokens <= 0:
            return self.failed(self.state_failure(states, left), states)
        return self.served(for_tokens, states)

    def after_weights(self) -> float:
        """Bytes for states and KV cache: what is free after loading, less the share that stays free."""
        free = self.gpu.total_bytes - self.assumed.context_bytes
        slack = free * (1 - self.fraction)
        mtp = self.service.method.kind in ("mtp", "nextn")
        loaded, how = weights(self.target, self.service.tp, with_mtp=mtp)
        said = "set by the plan" if self.service.memory_fraction else "the engine's default"
        self.add("GPU memory", self.gpu.total_bytes, f"{self.gpu.name}, as CUDA reports it", "has")
        self.add("CUDA and communication", self.assumed.context_bytes, "assumed", assumed=True)
        self.add("kept free for activations and graphs", slack, f"memory_fraction {self.fraction:g}, {said}")
        self.add("target weights", loaded, how)
        left = free - slack - loaded - self.assumed.loading_bytes
        if self.draft and self.service.method.kind not in ("mtp", "nextn"):
            drafted, how = weights(self.draft, self.service.tp, with_mtp=True)
            self.add("draft weights", drafted, how)
            left -= drafted
        self.add("taken beside the weights", self.assumed.loading_bytes, "assumed", assumed=True)
        left -= self.images()
        self.add("left for states and KV cache", left, "GPU memory less all of these", "leaves")
        return left

    def images(self) -> float:
        if not self.target.vision or not _at_least(self.service.engine.version, (0, 5, 23)):
            return 0.0
        self.add("set aside for images", _MM_RESERVE_BYTES, "from 0.5.23 on, for multimodal models")
        return _MM_RESERVE_BYTES

    def states(self, left: float) -> _States:
        """The engine's three ways to choose the number of states."""
        dtype = self.flags.get("mamba-ssm-dtype")
        per_slot = float(int(request_bytes(self.target, self.tp, str(dtype) if dtype else None)))
        asked, ratio, replay = self.asked, self.ratio, bool(self.flags.get("enable-linear-replayssm-spec"))
        width = 0 if replay else self.width
        if (given := self.flags.get("max-mamba-cache-size")) is not None:
            slots = int(given) // self.dp
        elif self.flags.get("disable-radix-cache"):
            slots = asked
        else:
            share = float(self.flags.get("mamba-full-memory-ratio") or STATE_SHARE)
            budget = left * share / (1 + share)
            slots = floor((budget - per_slot * (1 + width)) / (per_slot * (1 + width / ratio)))
        return _States(slots, min(asked, slots // ratio) + 1 if width else 0, per_slot, width)

    def add_states(self, states: _States) -> float:
        linear = ", ".join(f"{kind.layers} {kind.kind} layers" for kind in self.target.recurrent)
        each = f"{linear}, over {self.tp}"
        self.add("state of one request", states.per_slot, each, "each")
        slots = f"{states.slots} slots and one to spare; a request takes {self.ratio}"
        self.add("recurrent states", states.state_bytes, slots)
        if states.width:
            many = f"{states.speculative_requests} × {states.width} verified tokens, one request to spare"
            self.add("states during verification", states.speculative_bytes, many)
        return states.state_bytes + states.speculative_bytes

    def cell(self) -> float:
        """Bytes of one token, the draft's share included as the engine reckons it."""
        number = kv_number_bytes(self.flags.get("kv-cache-dtype"), self.target)
        full = token_bytes(self.target, self.tp, number)
        if self.two_pools():
            full = self.two_pool_cell(number)
        own, drafted = self.target.kv_layers, draft_layers(self.service.method, self.target, self.draft)
        if not own or not drafted:
            return float(int(full))
        if self.service.method.kind in ("dflash", "ddtree", "dspark"):
            return float(-(-int(full) * (own + drafted) // own))
        return float(int(full * (1 + drafted / own)))

    def two_pools(self) -> bool:
        name = self.target.architecture or ""
        apart = name in _TWO_POOLS or name.startswith(_TWO_POOLS_BEGIN)
        windows = any(kind.window for kind in self.target.attention)
        return apart and windows and not self.flags.get("disable-hybrid-swa-memory")

    def two_pool_cell(self, number: float) -> float:
        share = float(self.flags.get("swa-full-tokens-ratio") or SLIDING_SHARE)
        return sum(
            (share if kind.window else 1) * kind.layers * layer_token_bytes(kind, self.tp, number)
            for kind in self.target.attention
        )

    def served(self, for_tokens: float, states: _States | None) -> Fit:
        """The tokens that the rest holds, and the requests that tokens and states allow."""
        cell = self.cell()
        tokens = int(for_tokens // cell) if cell else self.target.context or self.service.context_needed
        if (limit := self.flags.get("max-total-tokens")) is not None:
            tokens = min(tokens, int(limit))
        page = int(self.flags.get("page-size") or 1)
        tokens = tokens // page * page
        self.add("KV of one token", cell, self.cell_how(), "each")
        self.add("KV cache", for_tokens, f"{tokens:,} tokens", "leaves")
        running, why = self.running(tokens, states)
        if running < 1:
            return self.failed(f"no request can run: {why}", states, tokens)
        failure = None
        if tokens < self.service.context_needed:
            failure = (
                f"the longest request has {self.service.context_needed:,} tokens, the KV cache {tokens:,}"
            )
        return Fit(
            tuple(self.lines),
            failure,
            running,
            why,
            tokens,
            states.slots if states else None,
            tuple(self.notes()),
        )

    def running(self, tokens: int, states: _States | None) -> tuple[int, str]:
        """Requests at once, and what limits them where it is not what was asked for."""
        total = self.service.max_running_requests
        limits = {
            f"{total} requests over {self.dp} data-parallel groups": self.asked,
            f"{tokens:,} KV tokens, at least two per request": tokens // 2,
        }
        if states:
            slots = f"{states.slots} state slots, {self.ratio} per request"
            limits[slots] = states.slots // self.ratio
        why, running = min(limits.items(), key=lambda item: item[1])
        return running * self.dp, "" if 0 < running * self.dp == total else why

    def state_failure(self, states: _States | None, left: float) -> str:
        taken = states.state_bytes + states.speculative_bytes if states else 0.0
        return (
            f"recurrent states of {self.service.max_running_requests} requests need {taken / GIB:.1f} GiB"
            f" and {left / GIB:.1f} GiB are left after the weights"
        )

    def failed(self, why: str, states: _States | None = None, tokens: int | None = None) -> Fit:
        slots = states.slots if states else None
        return Fit(tuple(self.lines), why, kv_tokens=tokens, recurrent_slots=slots, notes=tuple(self.notes()))

    def notes(self) -> list[str]:
        notes = []
        safe = safe_fraction(self.flags, self.service.tp, self.target, self.gpu)
        if self.fraction > safe:
            notes.append(
                f"memory_fraction {self.fraction:g} leaves activations and graphs less than the engine's own"
                f" choice, {safe:g}: it may run out of memory while it serves"
            )
        if self.dp > 1:
            notes.append(f"tokens and states are those of one of {self.dp} data-parallel groups")
        if self.flags.get("enable-linear-replayssm-spec"):
            notes.append("the ring that enable-linear-replayssm-spec keeps is not counted")
        return notes

    def cell_how(self) -> str:
        drafted = draft_layers(self.service.method, self.target, self.draft)
        held = heads_held(self.target.kv_heads or 1, self.tp)
        beside = f" and {drafted} draft layers, reckoned like the target's" if drafted else ""
        latent = self.target.attention and self.target.attention[0].latent
        what = "the latent on every GPU" if latent else f"{held} KV heads held"
        return f"{self.target.kv_layers} layers, {what}{beside}"

    def add(self, label: str, size: float, how: str, kind: LineKind = "takes", assumed: bool = False) -> None:
        self.lines.append(Line(label, size, how, kind, assumed))


def slots_per_request(flags: Mapping[str, Scalar | None], target: ModelFacts) -> int:
    """State slots that a running request takes: more than one where prefixes are kept."""
    if flags.get("disable-radix-cache"):
        return 1
    strategy = str(flags.get("mamba-radix-cache-strategy") or "auto")
    overlap = not flags.get("disable-overlap-schedule")
    if strategy == "auto":
        strategy = "extra_buffer" if target.architecture in _EXTRA_BUFFER and overlap else "no_buffer"
    return _SLOTS.get(strategy, 5) if overlap or strategy == "no_buffer" else _SLOTS_WITHOUT_OVERLAP


def default_fraction(flags: Mapping[str, Scalar | None], tp: int, target: ModelFacts, gpu: Gpu) -> float:
    """``mem-fraction-static`` that the engine chooses itself; less for a model that reads images."""
    fraction = safe_fraction(flags, tp, target, gpu)
    return fraction * _image_factor(target) if target.vision else fraction


def safe_fraction(flags: Mapping[str, Scalar | None], tp: int, target: ModelFacts, gpu: Gpu) -> float:
    """The largest share that leaves what the engine reckons activations and graphs of text to need."""
    total_mib = gpu.total_bytes / (1 << 20)
    chunk = int(flags.get("chunked-prefill-size") or sglang.PREFILL_CHUNK)
    reserve = 512 + 1.5 * max(chunk, 2048) + tp / 8 * 1024
    reserve += 2 * int(flags.get("cuda-graph-max-bs-decode") or sglang.LARGEST_GRAPH)
    if not flags.get("disable-prefill-cuda-graph"):
        latent = any(kind.latent for kind in target.attention)
        reserve += 1536 if latent else 8 * _prefill_graphs(chunk)
    if total_mib > 60 * 1024:
        reserve = max(reserve, 10 * 1024)
    return round((total_mib - reserve) / total_mib, 3)


def _prefill_graphs(chunk: int) -> int:
    """Prefill graphs that are captured."""
    count, begin = 0, 0
    for end, step in _PREFILL_GRAPH_STEPS:
        count += max(0, (min(end, chunk) - begin) // step)
        begin = end
    return count


def _image_factor(target: ModelFacts) -> float:
    layers, width = target.vision or (24, 1024)
    complexity = layers * width**2 / (24 * 1024**2)
    return 0.95 * max(0.8, min(1.05, 1.0 - 0.1 * (complexity - 1.0)))


def _at_least(version: str | None, least: tuple[int, ...]) -> bool:
    """Whether a version is that or later; so it is where none is given."""
    if version is None:
        return True
    parts = tuple(int(part) for part in version.split(".")[:3] if part.isdigit())
    return parts >= least
