"""A plan's methods: the parameters of each kind, and one method for each value of a list."""

import re
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from draftmark.engines import ENGINES, MethodKind
from draftmark.engines.types import Param
from draftmark.errors import nearest
from draftmark.plan.document import Document, Path, shown
from draftmark.plan.shape import INSTEAD
from draftmark.schema import Method, MethodSpec, Plan, Scalar

OWN_KEYS = tuple(field for field in MethodSpec.__struct_fields__ if field != "params")
PLACEHOLDER = re.compile(r"\{(\w+)\}")
_TYPE_WORDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


def kind_of(plan: Plan, method: MethodSpec | Method) -> MethodKind:
    """The engine's entry for a method's kind."""
    return ENGINES[plan.engine.kind].METHODS[method.kind]


def expand_methods(plan: Plan) -> tuple[Method, ...]:
    """Every method with single values, in the plan's order; ``draft`` is set exactly where one is used."""
    return tuple(method for spec in plan.methods for method in _each(plan, spec))


def baseline_of(plan: Plan) -> str | None:
    """Name of the method to compare with: the plan's, else the only one of kind ``none``, else None."""
    plain = [method.name for method in expand_methods(plan) if method.kind == "none"]
    return plan.baseline or (plain[0] if len(plain) == 1 else None)


def filled(name: str, params: Mapping[str, Scalar]) -> str:
    """A name template with its ``{param}`` replaced."""
    return PLACEHOLDER.sub(lambda match: _said(params[match[1]]), name)


def check_method(
    document: Document, engine: str, spec: dict[str, Any], params: dict[str, Any], at: Path
) -> None:
    """Raise PlanError if the engine lacks the kind or the kind a parameter, or if a value is not one."""
    kinds = ENGINES[engine].METHODS
    if (kind := spec["kind"]) not in kinds:
        raise document.error((*at, "kind"), f"{engine} has no method kind '{kind}'", _who_has(engine, kind))
    table = kinds[kind].params
    for name, value in params.items():
        if name not in table:
            message = f"'{kind}' of {engine} has no parameter '{name}'"
            hint = INSTEAD.get(name) or nearest(name, [*table, *OWN_KEYS])
            raise document.error((*at, name), message, hint)
        _check_values(document, table[name], value, (*at, name))
    _check_template(document, spec["name"], params, (*at, "name"))


def _each(plan: Plan, spec: MethodSpec) -> Iterator[Method]:
    kind = kind_of(plan, spec)
    draft = spec.draft or (plan.model.draft if kind.needs_draft else None)
    values = [value if isinstance(value, tuple) else (value,) for value in spec.params.values()]
    for chosen in product(*values):
        params = {
            name: float(value) if kind.params[name].type is float else value
            for name, value in zip(spec.params, chosen, strict=True)
        }
        name = filled(spec.name, dict(zip(spec.params, chosen, strict=True)))
        yield Method(name=name, kind=spec.kind, draft=draft, params=params, args=spec.args, env=spec.env)


def _said(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _who_has(engine: str, kind: str) -> str:
    others = [name for name, module in ENGINES.items() if kind in module.METHODS]
    if others:
        return f"{', '.join(others)} has it; {engine} has: {', '.join(sorted(ENGINES[engine].METHODS))}"
    return nearest(kind, ENGINES[engine].METHODS)


def _check_values(document: Document, param: Param, value: Any, path: Path) -> None:
    if not isinstance(value, list):
        _check_value(document, param, value, path)
        return
    if not value:
        raise document.error(path, f"expected {_expected(param)}, or a list of several, got nothing in it")
    for index, item in enumerate(value):
        _check_value(document, param, item, (*path, index))
        if item in value[:index]:
            raise document.error((*path, index), f"{shown(path, item)} is given twice")


def _check_value(document: Document, param: Param, value: Any, path: Path) -> None:
    right = type(value) is param.type or (param.type is float and type(value) is int)
    low = right and param.minimum is not None and value < param.minimum
    high = right and param.maximum is not None and value > param.maximum
    if not right or low or high:
        hint = f'in quotes it is text: "{value}"' if param.type is str and type(value) in (int, float) else ""
        raise document.error(
            path, f"expected {_expected(param)}, got {shown(path, value)}", hint or param.doc
        )


def _expected(param: Param) -> str:
    limits = [("of at least", param.minimum), ("at most", param.maximum)]
    said = " and ".join(f"{word} {limit:g}" for word, limit in limits if limit is not None)
    return f"{_TYPE_WORDS[param.type]} {said}".strip()


def _check_template(document: Document, name: str, params: dict[str, Any], path: Path) -> None:
    used = PLACEHOLDER.findall(name)
    for placeholder in used:
        if placeholder not in params:
            hint = nearest(placeholder, params)
            raise document.error(path, f"the method has no parameter '{placeholder}' to fill in", hint)
    if "{" in (rest := PLACEHOLDER.sub("", name)) or "}" in rest:
        raise document.error(path, f"expected braces around one parameter's name, got '{name}'")
    for listed in (param for param, value in params.items() if isinstance(value, list)):
        if listed not in used:
            hint = f'add {{{listed}}} to the name, for example "{name}-{listed}{{{listed}}}"'
            raise document.error(path, f"one name for several values of '{listed}'", hint)
