"""What a running SGLang says of itself: acceptance, caps, memory and backends.

Pages and log lines are those of 0.5.17 and 0.5.23.
"""
# Every engine takes the arguments of the contract, needed or not.
# ruff: noqa: ARG001

import re
from collections.abc import Mapping, Sequence
from typing import Any

from draftmark.engines.acceptance import at_least, fields, parsed, pooled, rises
from draftmark.schema import RequestRecord, Speculation


def request_speculation(tail: Mapping[str, Any], output_tokens: int | None) -> Speculation | None:
    """Acceptance from ``sglext.spec_tokens_details`` (0.5.23) or ``meta_info`` (the native API).

    Steps are verify passes, and each has a draft. The engine's own ``spec_accept_length`` is not used: it
    counts the token of the prefill and not what the length limit cut.
    """
    told = fields(fields(tail.get("sglext")).get("spec_tokens_details"))
    details = told or fields(tail.get("meta_info"))
    steps = details.get("spec_verify_ct")
    accepted = details.get("spec_num_correct_drafts")
    if not steps or accepted is None:
        return None
    return Speculation(
        source="spec_tokens_details" if told else "meta_info",
        tokens=steps + accepted,
        steps=steps,
        accepted=accepted,
        drafted=details.get("spec_num_proposed_drafts"),
        draft_steps=steps,
        accepted_per_position=at_least(details.get("spec_correct_drafts_histogram") or ()),
    )


def speculation(before: str, after: str, records: Sequence[RequestRecord]) -> Speculation | None:
    """A cell's acceptance: its records' own where they have it, else from the counters of finished requests.

    ``spec_verify_calls_total`` counts verify passes; generated tokens less one per request are what they
    committed, after the cut at the length limit. The page's gauges cover one log interval and are not used.
    """
    own = pooled(records)
    if own:
        return own
    rose = rises(before, after)
    steps = rose.get("sglang:spec_verify_calls_total")
    if not steps:
        return None
    tokens = rose.get("sglang:generation_tokens_total", 0) - rose.get("sglang:num_requests_total", 0)
    return Speculation(
        source="/metrics difference",
        tokens=tokens,
        steps=steps,
        accepted=max(0, tokens - steps),
        draft_steps=steps,
    )


_SCHEDULER_LINE = re.compile(
    r"max_total_num_tokens=(?P<kv_tokens>\d+),.*\bmax_running_requests=(?P<max_running_requests>\d+),"
    r" context_len=(?P<context_length>\d+), available_[cg]pu_mem=(?P<free_gib>[\d.]+) GB"
)
_WEIGHTS_LINE = re.compile(r"Load weight end\..*\bmem usage=(?P<gib>[\d.]+) GB")
_MAMBA_LINE = re.compile(r"Mamba Cache is allocated\. max_mamba_cache_size: (?P<slots>\d+)")
_CAPPED_LINE = re.compile(r"max_running_requests (?:is capped|was reduced) .*")
_PAGE_FACTS = {
    "version": "version",
    "max_total_num_tokens": "kv_tokens",
    "attention_backend": "attention_backend",
    "prefill_attention_backend": "prefill_attention_backend",
    "decode_attention_backend": "decode_attention_backend",
    "speculative_algorithm": "algorithm",
    "speculative_num_draft_tokens": "num_draft_tokens",
    "chunked_prefill_size": "prefill_chunk",
    "mem_fraction_static": "memory_fraction",
    "disable_radix_cache": "prefix_cache_off",
    "disable_overlap_schedule": "overlap_off",
}


def facts(log: str, pages: Mapping[str, str]) -> dict[str, Any]:
    """Caps, memory in GiB of one GPU, backends, whether it speculates; what neither source says is absent.

    ``speculation`` is whether the running server has an algorithm, whatever was asked for. ``weights_gib`` is
    the target and the draft together, on the first GPU.
    """
    return _log_facts(log) | _page_facts(pages.get("/server_info", ""))


def _log_facts(log: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for line in _SCHEDULER_LINE.finditer(log):
        found |= {name: float(text) if "." in text else int(text) for name, text in line.groupdict().items()}
    if weights := [float(line["gib"]) for line in _WEIGHTS_LINE.finditer(_first_rank(log))]:
        found["weights_gib"] = round(sum(weights), 2)
    if slots := _MAMBA_LINE.findall(log):
        found["recurrent_slots"] = int(slots[-1])
    if capped := _CAPPED_LINE.findall(log):
        found["capped"] = capped[-1]
    return found


def _first_rank(log: str) -> str:
    """The log without the lines of tensor-parallel ranks above the first."""
    return "\n".join(line for line in log.splitlines() if not re.search(r" TP[1-9]\d*[ \]]", line))


def _page_facts(page: str) -> dict[str, Any]:
    info = parsed(page)
    found = {fact: info[name] for name, fact in _PAGE_FACTS.items() if info.get(name) is not None}
    if "speculative_algorithm" in info:
        found["speculation"] = info["speculative_algorithm"] is not None
    running = fields(info.get("internal_states")).get("effective_max_running_requests_per_dp")
    return found | ({"max_running_requests": running} if running is not None else {})
