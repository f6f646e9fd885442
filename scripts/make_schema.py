"""Write docs/plan.schema.json, from which editors check and complete plan files.

Usage: python scripts/make_schema.py [--check]   (--check writes nothing; exits 1 when the file is stale)
"""

import ast
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from draftmark.engines import ENGINES, MethodKind
from draftmark.engines.types import Param
from draftmark.plan.methods import OWN_KEYS
from draftmark.schema import Plan
from draftmark.schema import plan as types

TARGET = Path(__file__).parent.parent / "docs" / "plan.schema.json"
WIDTH = 118
TYPES = {int: "integer", float: "number", str: "string", bool: "boolean"}


def field_docs() -> dict[tuple[str, str], str]:
    """(type, field) → the sentence below the field in the source."""
    found = {}
    for node in ast.parse(Path(types.__file__).read_text()).body:
        if not isinstance(node, ast.ClassDef):
            continue
        for field, below in zip(node.body, node.body[1:], strict=False):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[node.name, name] = plain(text)
    return found


def plain(text: str) -> str:
    """A docstring as running text without markup."""
    return " ".join(re.sub(r"``", "", text).split())


def plan_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a plan as a person writes it: a method's parameters stand beside its kind."""
    (root,), parts = msgspec.json.schema_components((Plan,), ref_template="#/$defs/{name}")
    for (owner, field), text in field_docs().items():
        if field in parts.get(owner, {}).get("properties", {}):
            parts[owner]["properties"][field].setdefault("description", text)
    for part in parts.values():
        if "description" in part:
            part["description"] = plain(part["description"])
    del parts["MethodSpec"]["properties"]["params"]
    parts["MethodSpec"]["additionalProperties"] = True
    parts["Rule"]["oneOf"] = [{"required": ["keep"]}, {"required": ["drop"]}]
    parts["EngineSpec"]["properties"]["kind"]["enum"] = sorted(ENGINES)
    parts |= {f"{engine}-method": method_schema(engine, module.METHODS) for engine, module in ENGINES.items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "draftmark plan",
        **root,
        "allOf": [engine_rule(engine) for engine in ENGINES],
        "$defs": dict(sorted(parts.items())),
    }


def engine_rule(engine: str) -> dict[str, Any]:
    """With this engine, methods are of its kinds."""
    chosen = {"properties": {"engine": {"properties": {"kind": {"const": engine}}, "required": ["kind"]}}}
    methods = {"items": {"$ref": f"#/$defs/{engine}-method"}}
    return {"if": chosen | {"required": ["engine"]}, "then": {"properties": {"methods": methods}}}


def method_schema(engine: str, methods: Mapping[str, MethodKind]) -> dict[str, Any]:
    """A method of one engine: its kinds, and for each kind its parameters."""
    kinds = [{"const": name, "description": kind.doc} for name, kind in sorted(methods.items())]
    shared: dict[str, dict[str, Any]] = {}
    rules = [kind_rule(engine, name, kind, shared) for name, kind in sorted(methods.items())]
    return {"properties": {"kind": {"oneOf": kinds}}, "allOf": rules, "$defs": shared}


def kind_rule(engine: str, name: str, kind: MethodKind, shared: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """With this kind, a method has these parameters and no other keys; each described once, in ``shared``."""
    properties = {}
    for key, param in kind.params.items():
        own = param_schema(param)
        place = key if shared.setdefault(key, own) == own else f"{name}-{key}"
        shared[place] = own
        properties[key] = {"$ref": f"#/$defs/{engine}-method/$defs/{place}"}
    return {
        "if": {"properties": {"kind": {"const": name}}, "required": ["kind"]},
        "then": {"properties": properties, "propertyNames": {"enum": [*OWN_KEYS, *kind.params]}},
    }


def param_schema(param: Param) -> dict[str, Any]:
    """One value, or a list of several."""
    value: dict[str, Any] = {"type": TYPES[param.type]}
    if param.minimum is not None:
        value["minimum"] = param.minimum
    if param.maximum is not None:
        value["maximum"] = param.maximum
    several = {"type": "array", "items": value, "minItems": 1}
    default = {} if param.default is None else {"default": param.default}
    return {"description": plain(param.doc), "anyOf": [value, several], **default}


def pretty(value: Any, indent: str = "") -> str:
    """JSON with everything that fits on one line on one line."""
    flat = json.dumps(value, ensure_ascii=False)
    if len(indent + flat) <= WIDTH or not isinstance(value, dict | list):
        return flat
    deeper = indent + " "
    if isinstance(value, list):
        return "[\n" + ",\n".join(deeper + pretty(item, deeper) for item in value) + f"\n{indent}]"
    lines = (f"{deeper}{json.dumps(key)}: {pretty(item, deeper)}" for key, item in value.items())
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}"


def main() -> int:
    """Write or check the file."""
    text = pretty(plan_schema()) + "\n"
    if "--check" not in sys.argv[1:]:
        TARGET.write_text(text)
        return 0
    if TARGET.exists() and TARGET.read_text() == text:
        return 0
    print(f"{TARGET.name} is out of date; run: python scripts/make_schema.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
