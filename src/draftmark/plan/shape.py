"""Whether data has the shape of a type, told in a person's words.

msgspec would stop at the same places; it does not know lines, near names or what a valid value looks like.
"""

import re
from collections.abc import Iterator
from typing import Any

from msgspec import inspect

from draftmark.errors import PlanError, nearest
from draftmark.plan.document import Document, Path, shown

EXAMPLES = {
    ("Plan", "name"): "name: my-campaign",
    ("Plan", "engine"): "engine: {kind: llamacpp}",
    ("Plan", "model"): "model: {target: smollm2-135m}",
    ("Plan", "methods"): "methods: [{name: ar, kind: none}]",
    ("Plan", "workloads"): "workloads: [{kind: prompts}]",
    ("EngineSpec", "kind"): "kind: llamacpp",
    ("ModelSpec", "target"): "target: smollm2-135m",
    ("MethodSpec", "name"): "name: ar",
    ("MethodSpec", "kind"): "kind: none",
    ("ContextWorkload", "lengths"): "lengths: [3k, 30k]",
    ("TraceWorkload", "file"): "file: ./conversations.json",
    ("TraceWorkload", "format"): "format: sharegpt",
    ("TraceWorkload", "requests"): "requests: 64",
}
INSTEAD = {
    "api_key": "a key never enters a plan: put it in an environment variable and name that in 'api_key_env'",
    "tp": "did you mean 'tensor_parallel'?",
    "params": "write each parameter beside 'kind', e.g. {name: b8, kind: ddtree, budget: 8}",
}


def check(document: Document, kind: inspect.Type, value: Any, path: Path = ()) -> None:
    """Raise PlanError at the first place where ``value`` is not a ``kind``."""
    options = [option for option, _ in _options(kind)]
    if isinstance(value, dict):
        _check_mapping(document, kind, options, value, path)
    elif isinstance(value, list):
        _check_list(document, kind, options, value, path)
    elif not any(_fits(option, value) for option in options):
        raise _mismatch(document, kind, value, path)


def words(kind: inspect.Type) -> str:
    """What a type accepts, e.g. ``a whole number of at least 1 or thousands such as 3k``."""
    described = (_words(option, note) for option, note in _options(kind))
    return " or ".join(dict.fromkeys(filter(None, described)))


def _options(kind: inspect.Type, note: str = "") -> Iterator[tuple[inspect.Type, str]]:
    if isinstance(kind, inspect.Metadata):
        yield from _options(kind.type, (kind.extra_json_schema or {}).get("description", note))
    elif isinstance(kind, inspect.UnionType):
        for option in kind.types:
            yield from _options(option)
    else:
        yield kind, note


def _check_mapping(
    document: Document, kind: inspect.Type, options: list[inspect.Type], value: dict[str, Any], path: Path
) -> None:
    structs = [option for option in options if isinstance(option, inspect.StructType)]
    mappings = [option for option in options if isinstance(option, inspect.DictType)]
    if structs:
        _check_struct(document, _tagged(document, structs, value, path), value, path)
    elif mappings:
        for key, item in value.items():
            check(document, mappings[0].key_type, key, (*path, key))
            check(document, mappings[0].value_type, item, (*path, key))
    else:
        raise _mismatch(document, kind, value, path)


def _tagged(
    document: Document, structs: list[inspect.StructType], value: dict[str, Any], path: Path
) -> inspect.StructType:
    """The one of several mapping types that the value's ``kind`` names."""
    field = structs[0].tag_field
    if field is None:
        return structs[0]
    known = {str(struct.tag): struct for struct in structs}
    if field not in value:
        raise document.error(path, f"missing key '{field}'", f"{field}: one of {', '.join(known)}")
    tag = value[field]
    if not isinstance(tag, str) or tag not in known:
        message = f"expected one of {', '.join(known)}, got {shown(path, tag)}"
        raise document.error((*path, field), message, nearest(str(tag), known))
    return known[tag]


def _check_struct(document: Document, struct: inspect.StructType, value: dict[str, Any], path: Path) -> None:
    fields = {field.encode_name: field for field in struct.fields}
    for key in value:
        if key not in fields and key != struct.tag_field:
            hint = INSTEAD.get(key) or nearest(key, fields)
            raise document.error((*path, key), "unknown key", hint)
    for name, field in fields.items():
        if field.required and name not in value:
            example = EXAMPLES[struct.cls.__name__, name]
            raise document.error(path, f"missing key '{name}'", f"for example {example}")
        if name in value:
            check(document, field.type, value[name], (*path, name))


def _check_list(
    document: Document, kind: inspect.Type, options: list[inspect.Type], value: list[Any], path: Path
) -> None:
    lists = [option for option in options if isinstance(option, inspect.VarTupleType)]
    if not lists or len(value) < (lists[0].min_length or 0):
        raise _mismatch(document, kind, value, path)
    for index, item in enumerate(value):
        check(document, lists[0].item_type, item, (*path, index))


def _fits(option: inspect.Type, value: Any) -> bool:
    match option:
        case inspect.IntType():
            return type(value) is int and _within(option, value)
        case inspect.FloatType():
            return type(value) in (int, float) and _within(option, value)
        case inspect.StrType(pattern=pattern):
            return isinstance(value, str) and (pattern is None or re.fullmatch(pattern, value) is not None)
        case inspect.LiteralType(values=values):
            return value in values
        case inspect.BoolType():
            return isinstance(value, bool)
        case inspect.NoneType():
            return value is None
    return False


def _within(bounds: inspect.IntType | inspect.FloatType, value: float) -> bool:
    return (
        (bounds.ge is None or value >= bounds.ge)
        and (bounds.gt is None or value > bounds.gt)
        and (bounds.le is None or value <= bounds.le)
        and (bounds.lt is None or value < bounds.lt)
    )


def _words(option: inspect.Type, note: str) -> str:
    match option:
        case inspect.IntType() | inspect.FloatType():
            noun = "a whole number" if isinstance(option, inspect.IntType) else "a number"
            return noun + _range(option)
        case inspect.StrType():
            return note or "text"
        case inspect.LiteralType(values=values):
            return "one of " + ", ".join(map(str, values))
        case inspect.BoolType():
            return "true or false"
        case inspect.VarTupleType(item_type=item, min_length=least):
            return f"a list{' with at least one item' if least else ''}: {words(item)}"
        case inspect.DictType() | inspect.StructType():
            return "a mapping"
    return ""


def _range(bounds: inspect.IntType | inspect.FloatType) -> str:
    limits = [("of at least", bounds.ge), ("above", bounds.gt), ("at most", bounds.le), ("below", bounds.lt)]
    said = " and ".join(f"{word} {limit}" for word, limit in limits if limit is not None)
    return f" {said}" if said else ""


def _mismatch(document: Document, kind: inspect.Type, value: Any, path: Path) -> PlanError:
    message = f"expected {words(kind)}, got {shown(path, value)}"
    return document.error(path, message, _advice(kind, value, path))


def _advice(kind: inspect.Type, value: Any, path: Path) -> str:
    options = {type(option): option for option, _ in _options(kind)}
    if value is None:
        return "remove the key, or give it a value"
    if inspect.VarTupleType in options and not isinstance(value, dict | list):
        return f"in brackets it is a list: [{shown(path, value)}]"
    literal = options.get(inspect.LiteralType)
    if isinstance(literal, inspect.LiteralType) and isinstance(value, str):
        return nearest(value, map(str, literal.values))
    return "in quotes it is text" if inspect.StrType in options and type(value) in (bool, int, float) else ""
