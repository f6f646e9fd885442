"""llama.cpp's ``llama-server``, as a program or through the bundled launcher: what to run and how to read it.

Flag names, defaults and pages are those of build 11549.
"""
# Every engine takes the arguments of the contract, needed or not.
# ruff: noqa: ARG001

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from draftmark.engines.acceptance import pooled, rises, rises_by_position
from draftmark.engines.flags import Setting, argv, known_flags, resolve
from draftmark.engines.llamacpp_flags import NAMES, RENAMED, spelled
from draftmark.engines.openai import chat, streamed
from draftmark.engines.types import Command, Launch, MethodKind, Param, Post, Readiness
from draftmark.errors import BadInput
from draftmark.schema import Message, Method, Request, RequestRecord, Scalar, Service, Speculation

_SYNTHETIC = {
    "synthetic_length": Param(
        float,
        "Pretend that this many tokens are committed per step with a draft; at most n_max + 1",
        minimum=1,
    ),
    "synthetic_rates": Param(
        str,
        "Pretend these chances that the first 1, 2, … drafts are accepted: n_max numbers and commas, falling",
    ),
}
_DRAFT = {
    "n_max": Param(int, "Most draft tokens of a step", 3, minimum=1),
    "n_min": Param(int, "Fewest draft tokens worth verifying", 0, minimum=0),
    "p_min": Param(float, "Probability below which the draft stops", 0.0, minimum=0, maximum=1),
    **_SYNTHETIC,
}
_BLOCK = {
    "block_size": Param(int, "Tokens of a block, the last accepted one included: n_max + 1", minimum=2),
    **_DRAFT,
}
_LOOKUP = {
    "size_n": Param(int, "Tokens that must match", 12, minimum=1),
    "size_m": Param(int, "Most draft tokens of a step", 48, minimum=1),
    "min_hits": Param(int, "Times a match must have been seen", 1, minimum=1),
    **_SYNTHETIC,
}
_MOD = {
    "n_match": Param(int, "Tokens that must match", 24, minimum=1),
    "n_min": Param(int, "Fewest draft tokens worth verifying", 48, minimum=0),
    "n_max": Param(int, "Most draft tokens of a step", 64, minimum=1),
    **_SYNTHETIC,
}
_CACHE = {
    "lookup_static": Param(str, "File of n-grams that is only read"),
    "lookup_dynamic": Param(str, "File of n-grams that is read and extended"),
    **_SYNTHETIC,
}

METHODS: Mapping[str, MethodKind] = {
    "none": MethodKind("One token per step, no speculation", speculative=False),
    "ngram-simple": MethodKind("Draft what followed the last occurrence of the same tokens", _LOOKUP),
    "ngram-map-k": MethodKind("Draft from a map of n-grams of the prompt and the answer", _LOOKUP),
    "ngram-map-k4v": MethodKind("The same, with up to four continuations of an n-gram", _LOOKUP),
    "ngram-mod": MethodKind("Draft from a hash pool that all slots share and that outlives requests", _MOD),
    "ngram-cache": MethodKind("Draft from n-gram statistics, optionally from files", _CACHE),
    "draft-model": MethodKind("A small model of the same vocabulary drafts", _DRAFT, needs_draft=True),
    "dflash": MethodKind("A block-diffusion drafter proposes a block at once", _BLOCK, needs_draft=True),
    "dspark": MethodKind("A DFlash block with a light autoregressive head", _BLOCK, needs_draft=True),
    "eagle3": MethodKind("A one-layer drafter over the target's hidden states", _DRAFT, needs_draft=True),
    "mtp": MethodKind("The target's own next-token heads draft", _DRAFT),
}


Page = TypeVar("Page", dict[str, Any], list[Any])

SYNTHETIC = frozenset(_SYNTHETIC)
"""Parameters that make acceptance up, and with it the method synthetic."""

_SPEC_TYPES = {
    "draft-model": "draft-simple",
    "dflash": "draft-dflash",
    "dspark": "draft-dspark",
    "eagle3": "draft-eagle3",
    "mtp": "draft-mtp",
}
"""``--spec-type`` where it is not the method's own name."""
_FLAGS = {
    "synthetic_length": "spec-synth-len",
    "synthetic_rates": "spec-synth-rates",
    "lookup_static": "lookup-cache-static",
    "lookup_dynamic": "lookup-cache-dynamic",
}
"""Flags of the parameters whose flags do not follow from their names."""
_UNIT = 256
"""A slot's context is rounded up to whole multiples of this many tokens, by the server too."""


def slot_context(service: Service) -> int:
    """Tokens of context of one slot: as the plan says, else enough for its longest request."""
    return service.context_length or -(-service.context_needed // _UNIT) * _UNIT


def command(service: Service, launch: Launch) -> Command:
    """Command line and environment; BadInput on settings that contradict each other or make no sense."""
    _check(service, launch)
    known = known_flags("llama.cpp", {"b11549": NAMES}, service, RENAMED)
    flags = resolve(_server_settings(service, launch) | _method_settings(service, launch), service, known)
    env = service.engine.env | service.env | service.method.env
    return Command((*launch.program, *argv(spelled(flags), known)), env)


def _check(service: Service, launch: Launch) -> None:
    for model in filter(None, (launch.model, launch.draft)):
        if not model.startswith("/") and not model.endswith(".gguf"):
            raise BadInput(
                f"model '{model}': llama.cpp serves GGUF files",
                "give the path of one, or a bundled model's name",
            )
    if service.tp > 1:
        raise BadInput(
            f"tensor_parallel: llama.cpp has no tensor parallelism, got {service.tp}",
            "write tensor_parallel: [1]; args split-mode and tensor-split spread a model over GPUs",
        )
    if service.memory_fraction is not None:
        raise BadInput(
            "server.memory_fraction: llama.cpp has no such setting",
            "leave it out; context_length and max_running_requests decide what it allocates",
        )


def _server_settings(service: Service, launch: Launch) -> dict[str, Setting]:
    """Flags of every start: nothing is left to depend on the memory that happens to be free."""
    own = "what draftmark sets itself"
    slots = service.max_running_requests
    return {
        "model": Setting(launch.model, "model.target"),
        "host": Setting("127.0.0.1", own),
        "port": Setting(launch.port, own),
        "alias": Setting(launch.served_name, own),
        "ctx-size": Setting(slot_context(service) * slots, _if(service.context_length, "context_length")),
        "parallel": Setting(slots, "server.max_running_requests"),
        "threads": Setting(_threads(service, launch), _if(service.threads, "threads")),
        "metrics": Setting(True),
        "slots": Setting(True),
        "webui": Setting(False),
        "cache-ram": Setting(0),
        "fit": Setting("off"),
    }


def _if(given: int | None, key: str) -> str:
    """The plan's key of a setting that it gives; a default has none."""
    return f"server.{key}" if given else ""


def _threads(service: Service, launch: Launch) -> int:
    """A core is left free: with one thread on each, any other work makes all of them wait."""
    return service.threads or max(1, launch.cores - 1)


def _method_settings(service: Service, launch: Launch) -> dict[str, Setting]:
    method, key = service.method, f"methods.{service.method.name}"
    settings = {"spec-type": Setting(_SPEC_TYPES.get(method.kind, method.kind), f"{key}.kind")}
    if METHODS[method.kind].needs_draft:
        if not launch.draft:
            raise BadInput(f"{key}: {method.kind} needs a draft model", "set model.draft, or draft here")
        settings["spec-draft-model"] = Setting(launch.draft, "model.draft")
    if method.kind in _SPEC_TYPES:
        settings["spec-draft-threads"] = Setting(_threads(service, launch))
    given = {_flag(method.kind, name): Setting(value, key) for name, value in _values(method).items()}
    return settings | given


def _flag(kind: str, param: str) -> str:
    family = kind if kind.startswith("ngram-") else "draft"
    return _FLAGS.get(param) or f"spec-{family}-{param.replace('_', '-')}"


def _values(method: Method) -> dict[str, Scalar]:
    """Every parameter's value, the engine's defaults spelled out; BadInput where they cannot go together."""
    given = dict(method.params)
    block = given.pop("block_size", None)
    if block is not None and given.setdefault("n_max", int(block) - 1) != int(block) - 1:
        raise _contradiction(
            method,
            f"block_size {block} and n_max {given['n_max']}",
            "the last accepted token begins a block, so n_max is block_size - 1",
        )
    params = METHODS[method.kind].params
    values = {name: param.default for name, param in params.items() if param.default is not None} | given
    if (low := values.get("n_min")) is not None and float(low) > float(values["n_max"]):
        hint = f"n_min, {params['n_min'].default} when not given, is at most n_max"
        raise _contradiction(method, f"n_min {low} and n_max {values['n_max']}", hint)
    _check_synthetic(method, values)
    return values


def _check_synthetic(method: Method, values: Mapping[str, Scalar]) -> None:
    length, rates = values.get("synthetic_length"), values.get("synthetic_rates")
    most = values.get("n_max", values.get("size_m"))
    if length is not None and rates is not None:
        raise _contradiction(method, "synthetic_length and synthetic_rates", "give one of them")
    if length is not None and most is not None and float(length) > float(most) + 1:
        raise _contradiction(
            method,
            f"synthetic_length {length} and {most} drafts",
            f"a step commits at most {int(most) + 1} tokens",
        )
    if rates is not None and not _are_rates(str(rates), most):
        raise BadInput(
            f"methods.{method.name}.synthetic_rates: expected {most or 'as many as there are drafts'}"
            f" comma-separated chances from 1 to 0, none above the one before, got '{rates}'"
        )


def _are_rates(text: str, count: Scalar | None) -> bool:
    try:
        rates = [float(part) for part in text.split(",")]
    except ValueError:
        return False
    falling = rates == sorted(rates, reverse=True) and rates[0] <= 1 and rates[-1] >= 0
    return falling and count in (None, len(rates))


def _contradiction(method: Method, what: str, hint: str) -> BadInput:
    return BadInput(f"methods.{method.name}: {what} contradict each other", hint)


def readiness(service: Service) -> Readiness:
    """How to tell that the server is ready: it answers while it loads, but not with 200."""
    return Readiness(
        path="/health",
        timeout_s=service.ready_timeout_s,
        markers=(
            ("loading model", "reading the model"),
            ("initializing, n_slots", "making room for the context"),
            ("model loaded", "model loaded"),
            ("listening on http", "ready"),
        ),
        fact_paths=("/props", "/slots", "/v1/models"),
        metrics_path="/metrics",
    )


def request_body(service: Service, request: Request, served_name: str) -> tuple[str, dict[str, Any]]:
    """URL path and JSON body of a streamed request, without reuse of an earlier prompt."""
    path, body = streamed(request, served_name)
    return path, body | {"ignore_eos": request.ignore_eos, "cache_prompt": False}


def count_tokens(post: Post, served_name: str, messages: Sequence[Message]) -> int:
    """Prompt tokens of a chat by the server's own template and tokenizer."""
    prompt = post("/apply-template", {"messages": chat(messages)})["prompt"]
    return len(encode(post, served_name, prompt, True))


def encode(post: Post, served_name: str, text: str, special: bool) -> tuple[int, ...]:
    """Token ids of a text by the server's own tokenizer."""
    asked = {"content": text, "add_special": special, "parse_special": True}
    return tuple(post("/tokenize", asked)["tokens"])


def request_speculation(tail: Mapping[str, Any], output_tokens: int | None) -> Speculation | None:
    """One request's acceptance from ``timings``, which has no draft fields where nothing was drafted.

    The prompt's own pass gives the first token; each later step commits one token and the drafts it accepted.
    """
    timings = tail.get("timings")
    predicted = timings.get("predicted_n") if isinstance(timings, Mapping) else None
    if not isinstance(timings, Mapping) or not isinstance(predicted, int) or predicted < 1:
        return None
    accepted, drafted = timings.get("draft_n_accepted", 0), timings.get("draft_n", 0)
    return Speculation(
        source="timings",
        tokens=predicted - 1,
        steps=_steps(predicted - 1, accepted),
        accepted=accepted,
        drafted=drafted,
    )


def _steps(tokens: int, accepted: int) -> int | None:
    """Decode steps; None where the server counts accepted drafts beyond the end of an answer."""
    return tokens - accepted if accepted <= tokens else None


def speculation(before: str, after: str, records: Sequence[RequestRecord]) -> Speculation | None:
    """A cell's acceptance from the metrics pages around it, if they count its measured requests and no other.

    Else from what each request says; else from the pages without ``tokens`` and ``steps``, since they do not
    tell how many requests, and so first tokens, they count. None where there is neither.
    """
    counted = _counted(rises(before, after), rises_by_position(before, after, _ACCEPTED_AT), records)
    if counted and counted.steps is not None:
        return counted
    return pooled(records) or counted


def _counted(
    rose: Mapping[str, int], positions: tuple[int, ...], records: Sequence[RequestRecord]
) -> Speculation | None:
    if any(name not in rose for name in (_PREDICTED, _ACCEPTED, _DRAFTED, _DRAFTS)):
        return None
    known = [record.output_tokens for record in records if record.output_tokens and record.role != "warmup"]
    same = len(known) == len(records) and sum(known) == rose[_PREDICTED]
    tokens = rose[_PREDICTED] - len(records)
    return Speculation(
        source="/metrics difference",
        tokens=tokens if same else None,
        steps=_steps(tokens, rose[_ACCEPTED]) if same else None,
        accepted=rose[_ACCEPTED],
        drafted=rose[_DRAFTED],
        draft_steps=rose[_DRAFTS],
        accepted_per_position=positions,
    )


_PREDICTED = "llamacpp:tokens_predicted_total"
_ACCEPTED = "llamacpp:spec_decode_num_accepted_tokens_total"
_ACCEPTED_AT = "llamacpp:spec_decode_num_accepted_tokens_per_pos_total"
_DRAFTED = "llamacpp:spec_decode_num_draft_tokens_total"
_DRAFTS = "llamacpp:spec_decode_num_drafts_total"

_FAULT = re.compile(
    r"(failed to initialize speculative decoding context|speculative decoding not supported by this).*"
)
_PROGRAM = re.compile(r"^xllamacpp (\S+)$", re.MULTILINE)


def facts(log: str, pages: Mapping[str, str]) -> dict[str, Any]:
    """What the server says of itself; a fact that it does not state is absent.

    version, max_running_requests, context_length (tokens of a slot), speculation (whether every slot has it;
    llama.cpp serves without when it cannot), speculation_fault, synthetic, chat_template (if there is one),
    quantization, model_parameters, model_bytes, model_context_length (that it was trained for).
    """
    props, listed = _page(pages, "/props", dict), _page(pages, "/v1/models", dict).get("data")
    slots = [slot for slot in _page(pages, "/slots", list) if isinstance(slot, dict)]
    model = listed[0] if isinstance(listed, list) and listed else None
    meta = (model.get("meta") if isinstance(model, dict) else None) or {}
    program, fault = _PROGRAM.search(log), _FAULT.search(log)
    found = {
        "version": program[1] if program else props.get("build_info"),
        "max_running_requests": props.get("total_slots"),
        "context_length": min(
            (size for slot in slots if isinstance(size := slot.get("n_ctx"), int)), default=None
        ),
        "speculation": all(slot.get("speculative") for slot in slots) if slots else None,
        "speculation_fault": fault[0] if fault else None,
        "synthetic": True if "synthetic speculative acceptance is enabled" in log else None,
        "chat_template": bool(props["chat_template"]) if "chat_template" in props else None,
        "quantization": props.get("model_ftype"),
        "model_parameters": meta.get("n_params"),
        "model_bytes": meta.get("size"),
        "model_context_length": meta.get("n_ctx_train"),
    }
    return {name: value for name, value in found.items() if value is not None}


def _page(pages: Mapping[str, str], path: str, kind: type[Page]) -> Page:
    """A JSON page, or an empty value of ``kind`` where there is none or it is something else."""
    try:
        page = json.loads(pages.get(path, ""))
    except ValueError:
        return kind()
    return page if isinstance(page, kind) else kind()
