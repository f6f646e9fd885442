"""The part of a request that every OpenAI-compatible server understands."""

from collections.abc import Sequence
from typing import Any

from draftmark.engines.types import Post
from draftmark.errors import BadInput
from draftmark.schema import Message, Request


def streamed(request: Request, served_name: str) -> tuple[str, dict[str, Any]]:
    """URL path and JSON body of a streamed chat or, where the prompt is raw, completion."""
    body: dict[str, Any] = {
        "model": served_name,
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "seed": request.seed,
    }
    if request.prompt is not None:
        return "/v1/completions", body | {"prompt": request.prompt}
    if request.margins:
        body |= {"logprobs": True, "top_logprobs": 2}
    return "/v1/chat/completions", body | {"messages": chat(request.messages)}


def chat(messages: Sequence[Message]) -> list[dict[str, str]]:
    """Messages as the API has them."""
    return [{"role": message.role, "content": message.content} for message in messages]


def encode(post: Post, served_name: str, text: str, special: bool) -> tuple[int, ...]:
    """Token ids of a text by ``/tokenize``, as SGLang and vLLM have it; BadInput where it gives none."""
    answer = post("/tokenize", {"model": served_name, "prompt": text, "add_special_tokens": special})
    found = answer.get("tokens") if isinstance(answer, dict) else None
    if not isinstance(found, list) or not all(isinstance(token, int) for token in found):
        raise BadInput("the server does not tell a text's token ids", "/tokenize answered without any")
    return tuple(found)


def count_tokens(post: Post, served_name: str, messages: Sequence[Message]) -> int:
    """Prompt tokens of a chat by ``/tokenize``, as SGLang and vLLM have it; BadInput where it tells none."""
    answer = post("/tokenize", {"model": served_name, "messages": chat(messages)})
    count = answer.get("count") if isinstance(answer, dict) else None
    if not isinstance(count, int):
        raise BadInput(
            "the server does not tell how many tokens a chat has", "/tokenize answered without a count"
        )
    return count
