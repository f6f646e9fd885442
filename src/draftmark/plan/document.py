"""YAML text → plain data that remembers the line of every key, and plain data → YAML text.

Plain words mean what YAML 1.2 and editors take them for: ``on``, ``off``, ``yes`` and ``no`` are text, so an
engine's ``flash-attn: on`` reaches it as written. Anchors and merge keys work; duplicate keys are errors.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from draftmark.errors import PlanError

Path = tuple[str | int, ...]

MOST_NODES = 100_000
"""More values than this means aliases that multiply, not a plan."""

SECRET = re.compile(r"(^|[-_])(api-?_?key|key|token|secret|password|authorization)$", re.IGNORECASE)
_TAG = "tag:yaml.org,2002:"


class _Loader(yaml.SafeLoader):
    """PyYAML with the plain scalars of YAML 1.2's core schema, in decimal."""

    yaml_implicit_resolvers = {}  # noqa: RUF012 - as PyYAML declares it


for _kind, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", [*"~nN", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", [*"tTfF"]),
    ("int", r"[-+]?(0|[1-9][0-9]*)", [*"-+0123456789"]),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?", [*"-+.0123456789"]),
    ("merge", r"<<", ["<"]),
):
    _Loader.add_implicit_resolver(_TAG + _kind, re.compile(rf"(?:{_pattern})\Z"), _first)


class _Dumper(yaml.SafeDumper):
    """PyYAML that quotes text which the loader would take for something else."""

    yaml_implicit_resolvers = _Loader.yaml_implicit_resolvers


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _whole(text: str) -> int:
    number = int(text)
    if abs(number) >= 2**63:
        raise ValueError(text)
    return number


_SCALARS: Mapping[str, Callable[[str], Any]] = {
    _TAG + "null": lambda _: None,
    _TAG + "bool": lambda text: {"true": True, "false": False}[text.lower()],
    _TAG + "int": _whole,
    _TAG + "float": _finite,
    _TAG + "str": str,
}


@dataclass(frozen=True)
class Document:
    """A file's data and the line on which each of its keys and items stands."""

    source: str
    data: Any
    lines: Mapping[Path, int]

    def error(self, path: Path, message: str, hint: str = "") -> PlanError:
        """``file:line: key: message``, at the nearest enclosing key that the file has."""
        line = next(self.lines[path[:n]] for n in range(len(path), -1, -1) if path[:n] in self.lines)
        key = f"{dotted(path)}: " if path else ""
        return PlanError(f"{self.source}:{line}: {key}{message}", hint)


def dotted(path: Path) -> str:
    """A path as a person writes it, e.g. ``workloads[0].max_tokens[1]``."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")


def shown(path: Path, value: Any) -> str:
    """A value in an error message: short, and never what may be a secret."""
    if isinstance(value, dict | list):
        return ("a mapping" if isinstance(value, dict) else "a list") if value else "nothing in it"
    if value is None:
        return "nothing"
    if "env" in path or any(SECRET.search(str(part)) for part in path):
        return "a value that is not shown here"
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def is_path(word: str) -> bool:
    """Whether a word is a place in a file system rather than a name or a hub id."""
    return word.startswith(("/", "./", "../", "~")) or word.endswith((".gguf", ".yaml", ".yml"))


def parse(text: str, source: str) -> Document:
    """Read one YAML document whose top level is a mapping; raises PlanError with file and line."""
    try:
        root = yaml.compose(text, Loader=_Loader)
        if root is None:
            raise PlanError(f"{source}:1: the file is empty", "`draftmark init` writes a plan to start from")
        return _Reading(source).document(root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise PlanError(f"{source}:{line}: not valid YAML: {error.problem or error.context}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise PlanError(f"{source}:{line}: not valid YAML: a character that may not stand here") from None
    except RecursionError:
        raise PlanError(f"{source}:1: nested too deeply, or an alias that contains itself") from None


def dump(data: Mapping[str, Any]) -> str:
    """YAML that :func:`parse` reads as ``data``."""
    lines: str = yaml.dump(data, Dumper=_Dumper, default_flow_style=None, sort_keys=False, width=110)
    return lines


class _Reading:
    """One walk over the nodes of a file."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.lines: dict[Path, int] = {}
        self.nodes = 0

    def document(self, root: Node) -> Document:
        self.lines[()] = root.start_mark.line + 1
        data = self.value(root, ())
        document = Document(self.source, data, self.lines)
        if not isinstance(data, dict):
            raise document.error((), f"expected a mapping of keys such as 'name:', got {shown((), data)}")
        return document

    def error(self, node: Node, path: Path, message: str, hint: str = "") -> PlanError:
        at = {(): node.start_mark.line + 1, path: node.start_mark.line + 1}
        return Document(self.source, None, at).error(path, message, hint)

    def value(self, node: Node, path: Path) -> Any:
        self.nodes += 1
        if self.nodes > MOST_NODES:
            raise self.error(node, path, f"more than {MOST_NODES} values; aliases multiply here")
        if isinstance(node, MappingNode):
            return {
                name: self.item(*entry, (*path, name)) for name, entry in self.entries(node, path).items()
            }
        if isinstance(node, SequenceNode):
            return [self.item(item, item, (*path, index)) for index, item in enumerate(node.value)]
        return self.scalar(node, path)

    def item(self, key: Node, value: Node, path: Path) -> Any:
        self.lines[path] = key.start_mark.line + 1
        return self.value(value, path)

    def entries(self, node: MappingNode, path: Path) -> dict[str, tuple[Node, Node]]:
        """Keys of a mapping by name; what ``<<`` brings in stands behind the mapping's own."""
        own: dict[str, tuple[Node, Node]] = {}
        merged: dict[str, tuple[Node, Node]] = {}
        for key, value in node.value:
            if key.tag == _TAG + "merge":
                merged = dict(self.merged(value, path)) | merged
                continue
            name = self.name(key, path)
            if name in own:
                first = own[name][0].start_mark.line + 1
                raise self.error(key, (*path, name), f"the key is already given on line {first}")
            own[name] = key, value
        return merged | own

    def merged(self, node: Node, path: Path) -> Iterator[tuple[str, tuple[Node, Node]]]:
        """Entries that ``<<`` names, the strongest last: the first of several mappings wins."""
        self.nodes += 1
        for source in reversed(node.value) if isinstance(node, SequenceNode) else [node]:
            if not isinstance(source, MappingNode):
                raise self.error(node, path, "'<<' takes a mapping, or a list of mappings")
            yield from self.entries(source, path).items()

    def name(self, key: Node, path: Path) -> str:
        if not isinstance(key, ScalarNode):
            raise self.error(key, path, "expected a plain word as a key")
        self.known(key, path)
        return str(key.value)

    def known(self, node: Node, path: Path) -> None:
        if node.tag not in _SCALARS:
            tag = node.tag.replace(_TAG, "!!")
            raise self.error(node, path, f"a plan has no use for the tag {tag}", "in quotes it is text")

    def scalar(self, node: Node, path: Path) -> Any:
        self.known(node, path)
        try:
            return _SCALARS[node.tag](node.value)
        except (ValueError, KeyError):
            raise self.error(node, path, "expected a finite number of ordinary size") from None
