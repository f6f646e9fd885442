"""Typed access to the keys of a model's config.json."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from draftmark.errors import BadInput

_NESTED = ("text_config", "llm_config", "language_config")
"""Where multimodal configs keep the language model's keys."""


@dataclass(frozen=True)
class Config:
    """The keys of one config, the language model's own before the outer ones."""

    name: str
    inner: Mapping[str, Any]
    outer: Mapping[str, Any]

    def found(self, *keys: str) -> tuple[str, Any]:
        """The first of the keys that is set, with its value; the last one and None where none is."""
        for key in keys:
            for level in (self.inner, self.outer):
                if level.get(key) is not None:
                    return key, level[key]
        return keys[-1], None

    def value(self, *keys: str) -> Any:
        """The value of the first of the keys that is set."""
        return self.found(*keys)[1]

    def whole(self, *keys: str) -> int | None:
        """A whole number; None where no key is set, BadInput where it is something else."""
        key, value = self.found(*keys)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise BadInput(f"{self.name}: {key}: expected a whole number, got {value!r}")
        return value

    def text(self, *keys: str) -> str | None:
        """A text; None where no key is set or it is something else."""
        value = self.value(*keys)
        return value if isinstance(value, str) else None

    def group(self, key: str) -> Mapping[str, Any]:
        """A nested group of keys; empty where there is none."""
        value = self.value(key)
        return value if isinstance(value, dict) else {}

    def nested(self, key: str) -> "Config | None":
        """A group of keys as a config of its own; None where there is none."""
        group = self.group(key)
        return Config(f"{self.name}: {key}", group, {}) if group else None


def read_config(text: str, name: str) -> Config:
    """The parsed config; BadInput with file and line where it is no JSON object."""
    try:
        outer = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadInput(f"{name}:{error.lineno}: not JSON: {error.msg}") from error
    if not isinstance(outer, dict):
        raise BadInput(f"{name}: expected a JSON object, got {type(outer).__name__}")
    nested = next((outer[key] for key in _NESTED if isinstance(outer.get(key), dict)), outer)
    return Config(name, nested, outer)
