"""What to run and how to read it, for each engine; nothing here runs anything.

An engine is a module that satisfies :class:`Engine`. They are listed in :data:`ENGINES`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from draftmark.engines import attach, llamacpp, sglang, vllm
from draftmark.engines.types import Command, Launch, MethodKind, Post, Readiness
from draftmark.schema import Message, Request, RequestRecord, Service, Speculation

__all__ = ["ENGINES", "Command", "Engine", "Launch", "MethodKind", "Post", "Readiness"]


class Engine(Protocol):
    """The contract of an engine module; all of it is pure."""

    METHODS: Mapping[str, MethodKind]
    """Method kinds that it has, by the name used in a plan."""

    def command(self, service: Service, launch: Launch) -> Command:
        """Command line and environment; raises BadInput on flags that contradict each other."""

    def readiness(self, service: Service) -> Readiness:
        """How to tell that the server is ready, and what its log says on the way."""

    def request_body(
        self, service: Service, request: Request, served_name: str
    ) -> tuple[str, dict[str, Any]]:
        """URL path and JSON body of a streamed request."""

    def request_speculation(self, tail: Mapping[str, Any], output_tokens: int | None) -> Speculation | None:
        """One request's acceptance from what its stream said beside the text.

        ``tail`` holds the top-level fields of all events, later ones over earlier ones, without ``choices``.
        """

    def facts(self, log: str, pages: Mapping[str, str]) -> dict[str, Any]:
        """What the server says of itself, from its log and the pages that ``Readiness.fact_paths`` names."""

    def speculation(self, before: str, after: str, records: Sequence[RequestRecord]) -> Speculation | None:
        """A cell's acceptance from the metrics pages around it and its records; None where there is none."""

    def count_tokens(self, post: Post, served_name: str, messages: Sequence[Message]) -> int:
        """Prompt tokens of a chat, its template included; BadInput where the server cannot tell."""

    def encode(self, post: Post, served_name: str, text: str, special: bool) -> tuple[int, ...]:
        """Token ids of a text, with what a raw prompt gets around it if ``special``; BadInput as above."""


ENGINES: Mapping[str, Engine] = {
    "sglang": sglang,
    "vllm": vllm,
    "llamacpp": llamacpp,
    "attach": attach,
}
