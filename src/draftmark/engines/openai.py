"""The part of a request that every OpenAI-compatible server understands."""

from typing import Any

from draftmark.schema import Request


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
    messages = [{"role": message.role, "content": message.content} for message in request.messages]
    return "/v1/chat/completions", body | {"messages": messages}
