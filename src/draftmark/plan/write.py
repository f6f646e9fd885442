"""A Plan → text that reads as it, for plans that no person wrote."""

from collections.abc import Iterator
from typing import Any

import msgspec

from draftmark.plan.document import dump
from draftmark.schema import MethodSpec, Plan


def write_plan(plan: Plan) -> str:
    """YAML that :func:`draftmark.plan.read_plan` reads as this plan; what is as by default is left out."""
    return dump(_plain(plan))


def _plain(value: Any) -> Any:
    match value:
        case MethodSpec(params=params):
            return dict(_given(msgspec.structs.replace(value, params={}))) | _plain(params)
        case msgspec.Struct():
            return dict(_given(value))
        case dict():
            return {key: _plain(one) for key, one in value.items()}
        case tuple():
            return [_plain(one) for one in value]
    return value


def _given(struct: msgspec.Struct) -> Iterator[tuple[str, Any]]:
    """Keys of the file that differ from their defaults, a workload's kind first."""
    config = struct.__struct_config__
    if config.tag_field is not None:
        yield config.tag_field, config.tag
    for field in msgspec.structs.fields(struct):
        value = getattr(struct, field.name)
        if field.required or value != _default(field):
            yield field.encode_name, _plain(value)


def _default(field: msgspec.structs.FieldInfo) -> Any:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
