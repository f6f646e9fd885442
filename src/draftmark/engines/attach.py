"""A server that already runs, behind any OpenAI-compatible URL: nothing is started or stopped.

What the server does inside is the user's word; only the wire is known.
"""
# Every engine takes the arguments of the contract, needed or not.
# ruff: noqa: ARG001

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from draftmark.engines.openai import streamed
from draftmark.engines.types import Command, Launch, MethodKind, Param, Post, Readiness
from draftmark.errors import BadInput
from draftmark.schema import Message, Request, RequestRecord, Service, Speculation

_PARAMS = {
    "url": Param(str, "Base URL of this method's server; engine.url when not given"),
    "ignore_eos": Param(
        bool, "Ask for exactly max_tokens with ignore_eos; servers outside this field may refuse", False
    ),
}

METHODS: Mapping[str, MethodKind] = {
    "none": MethodKind("The server is known not to speculate", _PARAMS, speculative=False),
    "speculative": MethodKind("The server is known to speculate; the method's name says how", _PARAMS),
    "unknown": MethodKind("What the server does is not known", _PARAMS, speculative=False),
}


def base_url(service: Service) -> str:
    """The URL that request paths are appended to, without a last ``/`` or ``/v1``; BadInput if it is none."""
    try:
        parts = urlsplit(str(service.method.params.get("url") or service.engine.url or ""))
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # of a malformed port or address
        usable = False
    if not usable or parts.username or parts.query:
        raise BadInput(
            "engine.url: expected the base URL of a running server",
            "for example https://example.org/prefix/v1; a key belongs into engine.api_key_env",
        )
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/").removesuffix("/v1"), "", ""))


def headers(service: Service, environ: Mapping[str, str]) -> dict[str, str]:
    """HTTP headers of every request, with the key that ``engine.api_key_env`` names; BadInput without it."""
    name = service.engine.api_key_env
    if name is None:
        return {}
    if not environ.get(name):
        raise BadInput(
            f"engine.api_key_env: the environment variable {name} is not set", f"run: export {name}=…"
        )
    return {"Authorization": f"Bearer {environ[name]}"}


def command(service: Service, launch: Launch) -> Command:
    """Always raises BadInput: there is nothing to start."""
    raise BadInput(f"{service.id}: a server attached by engine.url is already running and is not started")


def readiness(service: Service) -> Readiness:
    """The server is ready when it lists its models."""
    return Readiness(path="/v1/models", timeout_s=service.ready_timeout_s, fact_paths=("/v1/models",))


def request_body(service: Service, request: Request, served_name: str) -> tuple[str, dict[str, Any]]:
    """URL path and JSON body of a streamed request, of OpenAI's own fields except for ``ignore_eos``."""
    path, body = streamed(request, served_name)
    if service.method.params.get("ignore_eos"):
        body["ignore_eos"] = request.ignore_eos
    return path, body


def count_tokens(post: Post, served_name: str, messages: Sequence[Message]) -> int:
    """Always raises BadInput: OpenAI's API has no tokenizer."""
    raise BadInput(
        "a server attached by engine.url is not known to count tokens",
        "leave 'context' out of the workloads, or let draftmark start the server",
    )


def encode(post: Post, served_name: str, text: str, special: bool) -> tuple[int, ...]:
    """Always raises BadInput, as :func:`count_tokens`."""
    raise BadInput(
        "a server attached by engine.url is not known to give token ids",
        "use text prompts, or let draftmark start the server",
    )


def request_speculation(tail: Mapping[str, Any], output_tokens: int | None) -> Speculation | None:
    """None: OpenAI's API says nothing of speculation."""
    return None


def facts(log: str, pages: Mapping[str, str]) -> dict[str, Any]:
    """The models that the server lists, as ``models``; empty where the page is not such a list."""
    try:
        page = json.loads(pages.get("/v1/models", ""))
    except ValueError:
        return {}
    listed = page.get("data") if isinstance(page, dict) else None
    models = listed if isinstance(listed, list) else []
    names = [model["id"] for model in models if isinstance(model, dict) and "id" in model]
    return {"models": names} if names else {}


def speculation(before: str, after: str, records: Sequence[RequestRecord]) -> Speculation | None:
    """None: there are no counters that every such server has."""
    return None
