"""What a running vLLM says of itself: acceptance, memory and backends.

Pages and log lines are those of 0.32.0.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from draftmark.engines.acceptance import at_least, fields, parsed, pooled, rises, rises_by_position
from draftmark.schema import RequestRecord, Speculation


def request_speculation(tail: Mapping[str, Any], output_tokens: int | None) -> Speculation | None:
    """Acceptance from ``metrics.speculative_decoding``, on the last chunk.

    Its ``num_spec_steps`` leaves out the steps without a draft. A step commits one token and its accepted
    ones, so there were such steps where more tokens came after the first. How many is then unknown, since
    accepted tokens that the length limit cut are counted too.
    """
    own = fields(fields(tail.get("metrics")).get("speculative_decoding"))
    drafts, accepted = own.get("num_spec_steps"), own.get("num_accepted_draft_tokens")
    if drafts is None or accepted is None or output_tokens is None:
        return None
    all_drafted = drafts + accepted >= output_tokens - 1
    return Speculation(
        source="metrics.speculative_decoding",
        tokens=drafts + accepted if all_drafted else None,
        steps=drafts if all_drafted else None,
        accepted=accepted,
        drafted=own.get("num_draft_tokens"),
        draft_steps=drafts,
        accepted_per_position=at_least(own.get("acceptance_histogram") or ()),
    )


def speculation(before: str, after: str, records: Sequence[RequestRecord]) -> Speculation | None:
    """A cell's acceptance: its records' own where they tell the steps, else from the counters.

    ``spec_decode_num_drafts_total`` counts the steps with a draft alone. All steps are the samples of
    ``inter_token_latency_seconds``: one for each time that a request got tokens after its first.
    """
    own = pooled(records)
    rose = rises(before, after)
    drafts = rose.get("vllm:spec_decode_num_drafts_total")
    if (own and own.steps is not None) or drafts is None:
        return own
    steps = rose.get("vllm:inter_token_latency_seconds_count")
    accepted = rose.get("vllm:spec_decode_num_accepted_tokens_total")
    return Speculation(
        source="/metrics difference",
        tokens=None if steps is None or accepted is None else steps + accepted,
        steps=steps,
        accepted=accepted,
        drafted=rose.get("vllm:spec_decode_num_draft_tokens_total"),
        draft_steps=drafts,
        accepted_per_position=rises_by_position(
            before, after, "vllm:spec_decode_num_accepted_tokens_per_pos_total"
        ),
    )


def _whole(text: str) -> int:
    return int(text.replace(",", ""))


_LOG_FACTS: tuple[tuple[re.Pattern[str], str, Callable[[str], Any]], ...] = (
    (re.compile(r"Initializing a V1 LLM engine \(v([^\s)]+)\)"), "version", str),
    (re.compile(r"Model loading took ([\d.]+) GiB"), "weights_gib", float),
    (re.compile(r"Available KV cache memory: ([\d.]+) GiB"), "kv_gib", float),
    (re.compile(r"KV cache size: ([\d,]+) tokens"), "kv_tokens", _whole),
    (re.compile(r"Maximum concurrency for ([\d,]+) tokens"), "context_length", _whole),
    (re.compile(r"Maximum concurrency for .* per request: ([\d.]+)x"), "full_length_requests", float),
    (re.compile(r"Using (\S+)(?: attention)? backend(?: out of|\.)"), "attention_backend", str),
    (re.compile(r"Graph capturing finished in .* took ([\d.]+) GiB"), "graphs_gib", float),
    (
        re.compile(r"\bspeculative_config=(None\b|SpeculativeConfig\()"),
        "speculation",
        lambda text: text != "None",
    ),
)
"""(line, fact, type); where the log says a thing once per GPU, the last holds."""
_CACHE_PAGE = re.compile(r"^vllm:cache_config_info\{(?P<labels>.*)\}", re.MULTILINE)


def facts(log: str, pages: Mapping[str, str]) -> dict[str, Any]:
    """Memory in GiB of one GPU, KV blocks and tokens, backend, whether it speculates; the unsaid is absent.

    ``kv_tokens`` is how many tokens of full-length requests fit. ``weights_gib`` holds the draft model's too.
    """
    found: dict[str, Any] = {}
    for line, fact, read in _LOG_FACTS:
        if texts := line.findall(log):
            found[fact] = read(texts[-1])
    return found | _page_facts(pages)


def _page_facts(pages: Mapping[str, str]) -> dict[str, Any]:
    metrics = pages.get("/metrics", "")
    found: dict[str, Any] = {}
    if version := parsed(pages.get("/version", "")).get("version"):
        found["version"] = version
    if cache := _CACHE_PAGE.search(metrics):
        labels = dict(re.findall(r'(\w+)="(\d+)"', cache["labels"]))
        names = {"num_gpu_blocks": "kv_blocks", "block_size": "kv_block_size"}
        found |= {fact: int(labels[name]) for name, fact in names.items() if name in labels}
    if "vllm:generation_tokens_total" in metrics:
        # The counters of speculation exist exactly when the engine speculates.
        found["speculation"] = "vllm:spec_decode_num_drafts_total" in metrics
    model = fields(parsed(pages.get("/v1/models", "")).get("data"))
    if length := model.get("max_model_len"):
        found["context_length"] = length
    return found
