"""Words and numbers that all other types are made of."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

SCHEMA_VERSION = 1

Scalar = bool | int | float | str
Positive = Annotated[int, Meta(ge=1)]
TokenCount = (
    Annotated[int, Meta(ge=1)]
    | Annotated[str, Meta(pattern=r"^[1-9][0-9]*(\.[0-9]{1,3})?k$", description="thousands such as 3k")]
)
Name = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        description="a name of letters, digits, '.', '_' and '-' that begins with a letter or digit",
    ),
]
PromptKind = Literal["code", "sorting", "arithmetic", "json", "creative"]
PROMPT_KINDS: tuple[PromptKind, ...] = ("code", "sorting", "arithmetic", "json", "creative")
SCENARIOS = ("cli-calculator", "data-pipeline")
"""The agentic sessions that come with draftmark."""
WorkloadKind = Literal["prompts", "concurrency", "context", "agentic", "trace"]
RawApi = Literal["completions", "tokens"]
"""Prompts that are sent without a chat template: as text, or as token ids."""
Api = Literal["chat", "completions", "tokens"]
TraceFormat = Literal["sharegpt", "mooncake"]
Precision = Annotated[float, Meta(gt=0, lt=1)]
EngineKind = Literal["sglang", "vllm", "llamacpp", "reference", "attach"]
Role = Literal["warmup", "measured", "control", "margins"]


class Frozen(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Common settings of every type here: unknown fields are refused.

    ``frozen`` and ``kw_only`` are repeated on each type because type checkers do not see them inherited.
    """
