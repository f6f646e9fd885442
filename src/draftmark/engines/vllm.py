"""vLLM: what to run for each method, and how to read what it says.

Flags, pages and log lines are those of 0.32.0.
"""
# Every engine takes the arguments of the contract, needed or not.
# ruff: noqa: ARG001

import json
from collections.abc import Mapping
from typing import Any

from draftmark.engines.flags import Known, Setting, argv, known_flags, resolve
from draftmark.engines.openai import count_tokens, encode, streamed
from draftmark.engines.types import Command, Launch, MethodKind, Param, Readiness
from draftmark.engines.vllm_flags import NAMES, RENAMED
from draftmark.engines.vllm_reading import facts, request_speculation, speculation
from draftmark.errors import BadInput
from draftmark.schema import Method, Request, Scalar, Service

__all__ = [
    "METHODS",
    "command",
    "count_tokens",
    "encode",
    "facts",
    "pins",
    "readiness",
    "request_body",
    "request_speculation",
    "speculation",
]

_COUNT = {
    "num_speculative_tokens": Param(int, "Tokens drafted per step", minimum=1),
    "synthetic_length": Param(
        float, "Pretend that this many tokens are committed per step, bonus included", minimum=1
    ),
}
_MODEL = {
    **_COUNT,
    "draft_tensor_parallel_size": Param(int, "GPUs of the draft model: 1 or the target's", minimum=1),
    "draft_sample_method": Param(str, "How drafts are sampled: greedy or probabilistic", "greedy"),
}
_NGRAM = {
    **_COUNT,
    "prompt_lookup_max": Param(int, "Longest match looked up", 5, minimum=1),
    "prompt_lookup_min": Param(int, "Shortest match looked up", 5, minimum=1),
}
_SUFFIX = {
    **_COUNT,
    "suffix_decoding_max_tree_depth": Param(int, "Longest match and draft together", 24, minimum=1),
    "suffix_decoding_max_cached_requests": Param(int, "Earlier answers kept", 10_000, minimum=0),
    "suffix_decoding_max_spec_factor": Param(float, "Longest draft over the match's length", 1.0, minimum=0),
    "suffix_decoding_min_token_prob": Param(
        float, "Least estimated probability of a drafted token", 0.1, minimum=0, maximum=1
    ),
}
_DRAFT_MODEL = MethodKind(
    "A small model drafts",
    {**_MODEL, "use_heterogeneous_vocab": Param(bool, "Its tokenizer differs from the target's", False)},
    needs_draft=True,
)

METHODS: Mapping[str, MethodKind] = {
    "none": MethodKind("One token per step, no speculation", speculative=False),
    "ngram": MethodKind("Draft what followed the last tokens earlier in the request", _NGRAM),
    "suffix": MethodKind("Draft from suffix trees of this and earlier answers (arctic-inference)", _SUFFIX),
    "draft-model": _DRAFT_MODEL,
    "draft_model": _DRAFT_MODEL,
    "eagle": MethodKind("An EAGLE head over the target's hidden states drafts", _MODEL, needs_draft=True),
    "eagle3": MethodKind(
        "An EAGLE-3 head over hidden states of several layers drafts", _MODEL, needs_draft=True
    ),
    "mtp": MethodKind("The target's own next-token layers draft", _MODEL),
    "dflash": MethodKind("A block-diffusion drafter proposes a chain at once", _MODEL, needs_draft=True),
    "dspark": MethodKind("A DFlash block with a light autoregressive head", _MODEL),
    "medusa": MethodKind("Heads over the target's last hidden state draft", _COUNT, needs_draft=True),
}

_MODELLESS = ("ngram", "suffix")

BATCHED_TOKENS = 4096
"""Tokens of one step unless the plan says otherwise: what the engine's default is depends on the GPU."""
CONTEXT_STEP = 256
"""A context length that the plan leaves open is what its longest request needs, rounded up to this."""


def command(service: Service, launch: Launch) -> Command:
    """Command line and environment; raises BadInput on unknown or contradicting flags and parameters."""
    known = _known(service)
    flags = resolve(_settings(service, launch), service, known)
    flags.pop("model")
    start = () if service.engine.binary else ("-m", "vllm.entrypoints.cli.main")
    words = (*launch.program, *start, "serve", launch.model, *argv(flags, known))
    # The developer pages are what makes the prefix cache resettable; the server listens on loopback alone.
    env = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_NO_USAGE_STATS": "1"}
    return Command(words, env | service.engine.env | service.env | service.method.env)


def pins(service: Service) -> dict[str, Scalar | None]:
    """Flags that draftmark sets so that all methods run under equal conditions, with the values that hold."""
    pinned = {name: Setting(value) for name, value in _PINNED.items()}
    held = resolve(pinned, service, _known(service))
    return {name: held[name] for name in pinned}


_PINNED: Mapping[str, Scalar] = {
    "seed": 0,
    "generation-config": "vllm",
    "enable-prefix-caching": False,
    "max-num-batched-tokens": BATCHED_TOKENS,
    "stream-interval": 1,
    "enable-prompt-tokens-details": True,
}


def _known(service: Service) -> Known:
    return known_flags("vLLM", NAMES, service, RENAMED)


def _settings(service: Service, launch: Launch) -> dict[str, Setting]:
    """Every flag that draftmark sets, in the order in which it is shown."""
    own = "what draftmark sets itself"
    settings = {
        "model": Setting(launch.model, "model.target"),
        "served-model-name": Setting(launch.served_name, own),
        "tokenizer": Setting(service.model.tokenizer, "model.tokenizer"),
        "host": Setting("127.0.0.1"),
        "port": Setting(launch.port, own),
        "tensor-parallel-size": Setting(service.tp, "tensor_parallel"),
        "max-model-len": _context(service),
        "gpu-memory-utilization": Setting(service.memory_fraction, "server.memory_fraction"),
        "max-num-seqs": Setting(service.max_running_requests, "server.max_running_requests"),
    }
    pinned = {name: Setting(value) for name, value in _PINNED.items()}
    # A key that the plan leaves out contradicts nothing.
    given = {name: setting for name, setting in settings.items() if setting.value is not None}
    return given | pinned | _method_settings(service.method, launch)


def _context(service: Service) -> Setting:
    """The plan's, else enough for its longest request: the model's own often exceeds the memory there is."""
    if service.context_length:
        return Setting(service.context_length, "server.context_length")
    return Setting(-(-service.context_needed // CONTEXT_STEP) * CONTEXT_STEP)


def _method_settings(method: Method, launch: Launch) -> dict[str, Setting]:
    if method.kind == "none":
        return {}
    config = json.dumps(_speculative_config(method, launch), separators=(",", ":"))
    return {
        "speculative-config": Setting(config, f"methods.{method.name}.kind"),
        "per-request-spec-decode-metrics": Setting("summary"),
    }


def _speculative_config(method: Method, launch: Launch) -> dict[str, Any]:
    """The value of ``--speculative-config``; raises BadInput where the engine could not honour it."""
    params = dict(method.params)
    length = params.pop("synthetic_length", None)
    if method.kind != "suffix" and "num_speculative_tokens" not in params:
        raise BadInput(
            f"methods.{method.name}.num_speculative_tokens: needed by {method.kind}", "for example 4"
        )
    config: dict[str, Any] = {"method": method.kind.replace("-", "_")}
    if launch.draft and method.kind not in _MODELLESS:
        config["model"] = launch.draft
    config |= params
    if length is not None:
        _check_synthetic(method, float(length))
        config |= {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": length}
    return config


def _check_synthetic(method: Method, length: float) -> None:
    drafted = method.params.get("num_speculative_tokens")
    if drafted is not None and length > int(drafted) + 1:
        raise BadInput(
            f"methods.{method.name}.synthetic_length: a step commits at most {int(drafted) + 1} tokens,"
            f" got {length:g}",
            "lower it, or raise num_speculative_tokens",
        )


MARKERS = (
    ("Initializing a V1 LLM engine", "engine starting"),
    ("Starting to load model", "loading weights"),
    ("Model loading took", "weights loaded"),
    ("Available KV cache memory", "memory profiled"),
    ("KV cache size", "KV cache allocated"),
    ("Graph capturing finished", "CUDA graphs captured"),
    ("init engine (profile, create kv cache, warmup model) took", "engine warm"),
    ("Starting vLLM server on", "listening"),
    ("Application startup complete", "ready"),
)


def readiness(service: Service) -> Readiness:
    """Ready when ``/health`` answers 200; the port does not answer before that."""
    return Readiness(
        path="/health",
        timeout_s=service.ready_timeout_s,
        markers=MARKERS,
        fact_paths=("/version", "/v1/models", "/metrics"),
        metrics_path="/metrics",
        flush_path="/reset_prefix_cache",
    )


def request_body(service: Service, request: Request, served_name: str) -> tuple[str, dict[str, Any]]:
    """URL path and JSON body of a streamed request, with token ids and counts in each chunk."""
    path, body = streamed(request, served_name)
    body["ignore_eos"] = request.ignore_eos
    body["stream_options"]["continuous_usage_stats"] = True
    body["return_token_ids"] = True
    return path, body
