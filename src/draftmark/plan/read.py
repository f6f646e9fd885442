"""A plan file's text → Plan, or one error that says where and what to write instead."""

from collections.abc import Callable
from typing import Any

import msgspec

from draftmark.engines import ENGINES
from draftmark.errors import BadInput, nearest
from draftmark.plan import shape
from draftmark.plan.checks import CHECKS
from draftmark.plan.document import SECRET, Document, Path, is_path, parse
from draftmark.plan.methods import OWN_KEYS, baseline_of, check_method
from draftmark.schema import Host, Plan, TraceWorkload

_SHAPE = msgspec.inspect.type_info(Plan)


def read_plan(text: str, source: str) -> Plan:
    """The plan in ``text``, its ``baseline`` settled; ``source`` names the file in errors.

    Raises:
        PlanError: ``source:line: key: what was expected, what was got``, with the nearest valid name.
    """
    document = parse(text, source)
    params = _set_params_apart(document.data)
    shape.check(document, _SHAPE, document.data)
    _check_secrets(document)
    _check_engine(document)
    methods = document.data["methods"]
    for index, spec in enumerate(methods):
        check_method(document, document.data["engine"]["kind"], spec, params[index], ("methods", index))
    gathered = [spec | {"params": params[index]} for index, spec in enumerate(methods)]
    plan = msgspec.convert(document.data | {"methods": gathered}, Plan)
    for check in CHECKS:
        check(document, plan)
    return msgspec.structs.replace(plan, baseline=baseline_of(plan))


def check_paths(
    text: str, source: str, exists: Callable[[str], bool], find_model: Callable[[str], object] = str
) -> None:
    """Raise PlanError for the first file or model that a valid plan names and that is not there.

    What lies on another machine is not asked for. ``exists`` gets each path as the plan has it, and
    ``find_model`` each model that draftmark serves; it raises BadInput for one that is not there.
    """
    document, plan = parse(text, source), read_plan(text, source)
    named: list[tuple[Path, str | None]] = []
    if all(host.address is None for host in (plan.hosts or {"": Host()}).values()):
        named += [(("engine", key), getattr(plan.engine, key)) for key in ("python", "binary")]
        named += [(("model", key), getattr(plan.model, key)) for key in ("target", "draft", "tokenizer")]
        named += [(("methods", index, "draft"), spec.draft) for index, spec in enumerate(plan.methods)]
    for index, workload in enumerate(plan.workloads):
        for place, scenario in enumerate(getattr(workload, "scenarios", ())):
            named.append((("workloads", index, "scenarios", place), scenario))
        if isinstance(workload, TraceWorkload):
            named.append((("workloads", index, "file"), workload.file))
    for path, value in named:
        if value and (is_path(value) or path[-1] == "file") and not exists(value):
            raise document.error(path, f"no such file: {value}")
        if value and path[-1] in ("target", "draft") and plan.engine.kind != "attach":
            _check_model(document, path, value, find_model)


def _check_model(document: Document, path: Path, name: str, find_model: Callable[[str], object]) -> None:
    try:
        find_model(name)
    except BadInput as error:
        raise document.error(path, error.message, error.hint) from None


def _set_params_apart(data: dict[str, Any]) -> list[dict[str, Any]]:
    """Take out of each method the keys that are parameters of its kind; what is no method stays as it is."""
    methods = data.get("methods")
    apart: list[dict[str, Any]] = []
    for spec in methods if isinstance(methods, list) else ():
        extra = set(spec) - set(OWN_KEYS) if isinstance(spec, dict) and "kind" in spec else set()
        apart.append({key: spec.pop(key) for key in tuple(spec) if key in extra})
    return apart


def _check_engine(document: Document) -> None:
    if (kind := document.data["engine"]["kind"]) not in ENGINES:
        message = f"the engine '{kind}' is not available in this version"
        raise document.error(("engine", "kind"), message, nearest(kind, ENGINES))


def _check_secrets(document: Document) -> None:
    """Results carry the plan's text, so a key in it would be published with them."""
    data = document.data
    holders: list[tuple[Path, Any]] = [(("engine",), data["engine"]), (("server",), data.get("server", {}))]
    holders += [(("methods", index), spec) for index, spec in enumerate(data["methods"])]
    keys = [
        (*path, section, key)
        for path, holder in holders
        for section in ("env", "args")
        for key in holder.get(section, {})
    ]
    for path in keys:
        if SECRET.search(str(path[-1])):
            raise document.error(path, "a secret does not belong into a plan", _SECRET_HINT)


_SECRET_HINT = (
    "servers inherit draftmark's environment: set it there; "
    "for a key that requests must carry, name its variable in engine.api_key_env"
)
