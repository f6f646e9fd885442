"""The target's own tokenizer: the server's, or beside an attached server one from a file."""

from collections.abc import Mapping, Sequence
from functools import cache

from draftmark.campaign.servers import Ready
from draftmark.engines import ENGINES
from draftmark.engines.openai import chat
from draftmark.errors import ServiceError
from draftmark.schema import Message
from draftmark.workload import Tokenizer, read_tokenizer

PROBE = Message(role="user", content="Who asks this?")


def tokenizer_of(server: Ready, files: Mapping[str, str]) -> Tokenizer:
    """How to count and encode for a server; ``files`` holds the text of the tokenizer that the plan names."""
    path = server.service.model.tokenizer or ""
    if path in files:
        return from_file(server, files[path], path)
    engine, name = ENGINES[server.service.engine.kind], server.served_name
    return Tokenizer(
        count=lambda messages: engine.count_tokens(server.post, name, messages),
        encode=lambda text, special: engine.encode(server.post, name, text, special),
    )


def from_file(server: Ready, text: str, path: str) -> Tokenizer:
    """The tokenizer of a file, with what the server's chat template adds to a single message."""
    encode = read_tokenizer(text, path)

    @cache
    def template() -> int:
        return prompt_tokens(server, PROBE) - len(encode(PROBE.content, False))

    def count(messages: Sequence[Message]) -> int:
        (message,) = messages
        return template() + len(encode(message.content, False))

    return Tokenizer(count, encode)


def prompt_tokens(server: Ready, message: Message) -> int:
    """What the server's usage says of a tiny request; raises ServiceError where it says nothing."""
    body = {"model": server.served_name, "messages": chat([message]), "max_tokens": 1}
    answer = server.post("/v1/chat/completions", body)
    usage = answer.get("usage") if isinstance(answer, dict) else None
    count = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    if not isinstance(count, int):
        raise ServiceError("the server does not say how many tokens a prompt has", "its answer has no usage")
    return count
