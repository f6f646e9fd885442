"""SGLang: what to run for each method, and how to read what it says.

Flags, pages and log lines are those of 0.5.17 and 0.5.23; where they differ, the code says so.
"""

from collections.abc import Mapping
from typing import Any

from draftmark.engines.flags import Known, Setting, argv, known_flags, resolve
from draftmark.engines.openai import count_tokens, encode, streamed
from draftmark.engines.sglang_flags import NAMES, RENAMED
from draftmark.engines.sglang_reading import facts, request_speculation, speculation
from draftmark.engines.types import Command, Launch, MethodKind, Param, Readiness
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

_SYNTHETIC = {
    "synthetic_length": Param(
        float, "Pretend that this many tokens are committed per step, bonus included", minimum=1
    )
}
_CHAIN = {
    "num_steps": Param(int, "Draft steps; the engine chooses by model when not given", minimum=1),
    "topk": Param(int, "Branches kept at each draft step; 1 is a chain", 1, minimum=1),
    "num_draft_tokens": Param(int, "Tokens verified per step, the root included; num_steps + 1", minimum=2),
    **_SYNTHETIC,
}
_NGRAM = {
    "num_draft_tokens": Param(int, "Tokens verified per step, the root included", 12, minimum=2),
    "min_bfs_breadth": Param(int, "Fewest branches of a node", 1, minimum=1),
    "max_bfs_breadth": Param(int, "Most branches of a node", 10, minimum=1),
    "match_type": Param(str, "How branches are ranked: BFS or PROB", "BFS"),
    "max_trie_depth": Param(int, "Longest n-gram kept", 18, minimum=1),
    "capacity": Param(int, "N-grams kept", 10_000_000, minimum=1),
    **_SYNTHETIC,
}
_BLOCK = {
    "block_size": Param(
        int, "Tokens of a block, the root included; the draft model's when not given", minimum=2
    ),
    **_SYNTHETIC,
}
_DDTREE = {
    "budget": Param(int, "Nodes of the draft tree, the root excluded", minimum=1),
    **_BLOCK,
    "algorithm": Param(str, "Name of the algorithm in this build", "DDTREE"),
    "budget_flag": Param(str, "Flag of the budget in this build", "speculative-ddtree-budget"),
}
_DSPARK = {
    "block_size": Param(int, "Tokens drafted per step; the draft model's when not given", minimum=1),
    "verify_mode": Param(str, "How much of a block is verified: static, cap_accept or compact"),
    **_SYNTHETIC,
}
_STANDALONE = MethodKind("A small model of the same vocabulary drafts", _CHAIN, needs_draft=True)
_MTP = MethodKind("The target's own next-token layers draft", _CHAIN)

METHODS: Mapping[str, MethodKind] = {
    "none": MethodKind("One token per step, no speculation", speculative=False),
    "ngram": MethodKind("Draft a tree from n-grams of every request that the server has seen", _NGRAM),
    "draft-model": _STANDALONE,
    "standalone": _STANDALONE,
    "eagle": MethodKind("An EAGLE head over the target's hidden states drafts", _CHAIN, needs_draft=True),
    "eagle3": MethodKind(
        "An EAGLE-3 head over hidden states of several layers drafts", _CHAIN, needs_draft=True
    ),
    "mtp": _MTP,
    "nextn": _MTP,
    "dflash": MethodKind("A block-diffusion drafter proposes a chain at once", _BLOCK, needs_draft=True),
    "ddtree": MethodKind(
        "The best tree from a DFlash block, in builds that have it", _DDTREE, needs_draft=True
    ),
    "dspark": MethodKind("A DFlash block with a light autoregressive head", _DSPARK),
}

_ALGORITHMS = {
    "ngram": "NGRAM",
    "draft-model": "STANDALONE",
    "standalone": "STANDALONE",
    "eagle": "EAGLE",
    "eagle3": "EAGLE3",
    "mtp": "NEXTN",
    "nextn": "NEXTN",
    "dflash": "DFLASH",
    "dspark": "DSPARK",
}
_CHAIN_FLAGS = {
    "num_steps": "speculative-num-steps",
    "topk": "speculative-eagle-topk",
    "num_draft_tokens": "speculative-num-draft-tokens",
}
_FLAGS: Mapping[str, Mapping[str, str]] = {
    "ngram": {
        "num_draft_tokens": "speculative-num-draft-tokens",
        "min_bfs_breadth": "speculative-ngram-min-bfs-breadth",
        "max_bfs_breadth": "speculative-ngram-max-bfs-breadth",
        "match_type": "speculative-ngram-match-type",
        "max_trie_depth": "speculative-ngram-max-trie-depth",
        "capacity": "speculative-ngram-capacity",
    },
    "dflash": {"block_size": "speculative-dflash-block-size"},
    "ddtree": {"block_size": "speculative-dflash-block-size"},
    "dspark": {"block_size": "speculative-dspark-block-size"},
}
_BLOCK_KINDS = ("dflash", "ddtree", "dspark")

PREFILL_CHUNK = 4096
"""Tokens of a prefill chunk unless the plan says otherwise; the engine's own default depends on the GPU."""
LARGEST_GRAPH = 256
"""Largest decode batch that is captured as a CUDA graph, however many requests may run."""


def command(service: Service, launch: Launch) -> Command:
    """Command line and environment; raises BadInput on unknown or contradicting flags and parameters."""
    known = _known(service)
    flags = resolve(_settings(service, launch), service, known)
    start = ("serve",) if service.engine.binary else ("-m", "sglang.launch_server")
    return Command((*launch.program, *start, *argv(flags, known)), _environment(service))


def pins(service: Service) -> dict[str, Scalar | None]:
    """Flags that draftmark sets so that all methods run under equal conditions, with the values that hold."""
    held = resolve(
        {name: Setting(value) for name, value in _pinned(service).items()}, service, _known(service)
    )
    return {name: held[name] for name in _pinned(service)}


def _known(service: Service) -> Known:
    return known_flags("SGLang", NAMES, service, RENAMED)


def _settings(service: Service, launch: Launch) -> dict[str, Setting]:
    """Every flag that draftmark sets, in the order in which it is shown."""
    own = "what draftmark sets itself"
    settings = {
        "model-path": Setting(launch.model, "model.target"),
        "served-model-name": Setting(launch.served_name, own),
        "tokenizer-path": Setting(service.model.tokenizer, "model.tokenizer"),
        "host": Setting("127.0.0.1"),
        "port": Setting(launch.port, own),
        "tp-size": Setting(service.tp, "tensor_parallel"),
        "context-length": Setting(service.context_length, "server.context_length"),
        "mem-fraction-static": Setting(service.memory_fraction, "server.memory_fraction"),
        "max-running-requests": Setting(service.max_running_requests, "server.max_running_requests"),
    }
    pinned = {name: Setting(value) for name, value in _pinned(service).items()}
    # A key that the plan leaves out contradicts nothing.
    given = {name: setting for name, setting in settings.items() if setting.value is not None}
    return given | pinned | _method_settings(service.method, launch)


def _pinned(service: Service) -> dict[str, Scalar]:
    pinned: dict[str, Scalar] = {
        "random-seed": 0,
        "sampling-defaults": "openai",
        "disable-radix-cache": True,
        "chunked-prefill-size": PREFILL_CHUNK,
        "cuda-graph-max-bs-decode": min(service.max_running_requests, LARGEST_GRAPH),
        "stream-interval": 1,
        "enable-metrics": True,
        "enable-cache-report": True,
    }
    if service.method.kind in _BLOCK_KINDS:
        # Else these algorithms alone hold back prefills until several slots are free, and their TTFT rises.
        pinned["min-free-slots-delay"] = 1
    return pinned


def _method_settings(method: Method, launch: Launch) -> dict[str, Setting]:
    if method.kind == "none":
        return {}
    algorithm = (
        method.params.get("algorithm", "DDTREE") if method.kind == "ddtree" else _ALGORITHMS[method.kind]
    )
    settings = {"speculative-algorithm": Setting(algorithm, f"{_key(method)}.kind")}
    # Without a path an MTP layer of the target is loaded but not counted when the KV cache is sized.
    draft = launch.draft or (launch.model if method.kind in ("mtp", "nextn") else None)
    if draft and method.kind != "ngram":
        settings["speculative-draft-model-path"] = Setting(draft, f"{_key(method)}.draft")
    return settings | _parameters(method)


def _parameters(method: Method) -> dict[str, Setting]:
    """Flags of the method's parameters; raises BadInput where the engine could not honour them."""
    params = dict(method.params)
    flags = dict(_FLAGS.get(method.kind, _CHAIN_FLAGS))
    if method.kind not in _FLAGS:
        params |= _chain(method)
    if method.kind == "ddtree":
        flags["budget"] = str(params.get("budget_flag", "speculative-ddtree-budget"))
    _check_synthetic(method, params)
    return {
        flag: Setting(params[param], f"{_key(method)}.{param}")
        for param, flag in flags.items()
        if param in params
    }


def _chain(method: Method) -> dict[str, Scalar]:
    """The three numbers of a chain or tree drafter: all or none of them, since the engine completes none."""
    steps, topk, tokens = (method.params.get(name) for name in ("num_steps", "topk", "num_draft_tokens"))
    if steps is None:
        if topk is not None or tokens is not None:
            raise BadInput(
                f"{_key(method)}.num_steps: needed beside topk and num_draft_tokens", "for example 3"
            )
        return {}
    chain = int(steps) + 1
    if topk in (None, 1):
        if tokens not in (None, chain):
            raise BadInput(
                f"{_key(method)}.num_draft_tokens: {steps} steps verify {chain} tokens, got {tokens}",
                "leave it out, or give topk above 1 for a tree",
            )
        return {"num_steps": steps, "topk": 1, "num_draft_tokens": chain}
    if tokens is None:
        raise BadInput(f"{_key(method)}.num_draft_tokens: needed with topk {topk}", "for example 8")
    return {}


def _check_synthetic(method: Method, params: Mapping[str, Scalar]) -> None:
    """Raise BadInput where a step cannot commit that many tokens; the engine would cut them in silence."""
    length = params.get("synthetic_length")
    most = _most_committed(method.kind, params)
    if length is not None and most is not None and float(length) > float(most):
        raise BadInput(
            f"{_key(method)}.synthetic_length: a step commits at most {most} tokens, got {length}",
            "lower it, or draft more",
        )


def _most_committed(kind: str, params: Mapping[str, Scalar]) -> Scalar | None:
    """Tokens that a step can commit, the bonus included; None where the draft model decides."""
    size = params.get("block_size")
    if kind == "dspark":
        return None if size is None else int(size) + 1
    return params.get("num_draft_tokens", 12 if kind == "ngram" else size)


def _environment(service: Service) -> dict[str, str]:
    """Environment set beyond the inherited one; what the plan sets wins."""
    # A health check that generates a token would disturb what runs beside it.
    env = {"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "false"}
    params = service.method.params
    if "synthetic_length" in params:
        env |= {
            "SGLANG_SIMULATE_ACC_LEN": str(params["synthetic_length"]),
            "SGLANG_SIMULATE_ACC_METHOD": "match-expected",
            "SGLANG_SIMULATE_ACC_TOKEN_MODE": "fixed",
        }
    if "verify_mode" in params:
        env["SGLANG_RAGGED_VERIFY_MODE"] = str(params["verify_mode"])
    return env | service.engine.env | service.env | service.method.env


def _key(method: Method) -> str:
    return f"methods.{method.name}"


MARKERS = (
    ("Init torch distributed begin", "joining the GPUs"),
    ("Load weight begin", "loading weights"),
    ("Load weight end", "weights loaded"),
    ("Mamba Cache is allocated", "recurrent state allocated"),
    ("Memory pool end", "KV cache allocated"),
    ("begin. This can take up to several minutes", "capturing CUDA graphs"),
    ("max_total_num_tokens=", "scheduler ready"),
    ("Uvicorn running on", "listening"),
    ("The server is fired up and ready to roll!", "ready"),
)


def readiness(service: Service) -> Readiness:
    """Ready when ``/health`` answers 200: 503 while it warms up; the environment keeps it from generating."""
    return Readiness(
        path="/health",
        timeout_s=service.ready_timeout_s,
        markers=MARKERS,
        fact_paths=("/server_info",),
        metrics_path="/metrics",
        flush_path="/flush_cache",
    )


def request_body(service: Service, request: Request, served_name: str) -> tuple[str, dict[str, Any]]:
    """URL path and JSON body of a streamed request, with a token count in each chunk."""
    path, body = streamed(request, served_name)
    body["ignore_eos"] = request.ignore_eos
    body["stream_options"]["continuous_usage_stats"] = True
    if METHODS[service.method.kind].speculative:
        # Not in 0.5.17, which passes over fields that it does not know.
        body["return_spec_tokens_details"] = True
    if request.prompt is not None:
        body["return_token_ids"] = True  # refused for streamed chats
    return path, body
