"""The target's own tokenizer, lent by whoever can ask it, or read from a file."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from draftmark.errors import BadInput
from draftmark.schema import Message
from draftmark.workload.contexts import CountTokens

Encode = Callable[[str, bool], Sequence[int]]
"""Token ids of a text; if asked for, with the special tokens that a raw prompt gets."""


@dataclass(frozen=True)
class Tokenizer:
    """What workloads ask of a tokenizer; each call may raise BadInput where it cannot tell."""

    count: CountTokens
    encode: Encode

    def count_raw(self, messages: Sequence[Message]) -> int:
        """Prompt tokens of a single message that is sent as it is, without a template."""
        (message,) = messages
        return len(self.encode(message.content, True))


class _File(msgspec.Struct):
    """What tells a ``tokenizer.json`` from other JSON."""

    model: dict[str, msgspec.Raw]


def read_tokenizer(text: str, source: str) -> Encode:
    """The tokenizer in the text of a Hugging Face ``tokenizer.json``; BadInput where it is none."""
    try:
        import tokenizers
    except ImportError:
        hint = "pip install 'draftmark[tokenizers]'"
        raise BadInput(f"{source}: reading it needs the library 'tokenizers'", hint) from None
    try:
        msgspec.json.decode(text, type=_File)
    except msgspec.MsgspecError as error:
        raise BadInput(f"{source}: not a tokenizer: {error}", "expected a model's tokenizer.json") from None
    whole = tokenizers.Tokenizer.from_str(text)
    whole.no_truncation()
    whole.no_padding()

    def encode(text: str, special: bool) -> Sequence[int]:
        ids: list[int] = whole.encode(text, add_special_tokens=special).ids
        return ids

    return encode
