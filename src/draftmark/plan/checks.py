"""What must hold between the parts of a plan, once each part has its shape."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args
from urllib.parse import SplitResult, urlsplit

import msgspec

from draftmark.engines import ENGINES, Launch
from draftmark.errors import BadInput, nearest
from draftmark.plan.document import Document, Path, is_path, shown
from draftmark.plan.expand import AGAIN, expand, grid_facets
from draftmark.plan.grid import cell_tokens, tokens, undealt
from draftmark.plan.methods import baseline_of, expand_methods, kind_of
from draftmark.plan.select import FIELDS, chosen, same, wanted
from draftmark.schema import (
    SCENARIOS,
    AgenticWorkload,
    ConcurrencyWorkload,
    Name,
    Plan,
    Rule,
    TraceWorkload,
)

_NAME = re.compile(get_args(Name)[1].pattern)
_LISTS = ("prompts", "max_tokens", "levels", "rates", "lengths", "scenarios")


def _engine(document: Document, plan: Plan) -> None:
    at, url = ("engine", "url"), plan.engine.url
    if url is not None and plan.engine.kind != "attach":
        hint = "to measure a server that already runs, use 'kind: attach'"
        raise document.error(at, f"'{plan.engine.kind}' is started by draftmark and takes no url", hint)
    if url is not None:
        _url(document, at, url)


def _url(document: Document, at: Path, url: str) -> None:
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = SplitResult("", "", "", "", "")
    if parts.username or parts.password or parts.query:
        hint = "put the key in an environment variable and name that in engine.api_key_env"
        raise document.error(at, "a user name, password or query is not part of an address", hint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise document.error(at, "expected the base URL of a server", "for example http://127.0.0.1:8000")


def _attached(document: Document, plan: Plan) -> None:
    """One address is one server: two methods there would be two names for the same thing."""
    if plan.engine.kind != "attach":
        return
    seen: dict[str, str] = {}
    for index, spec in enumerate(plan.methods):
        given = spec.params.get("url", plan.engine.url)
        for url in given if isinstance(given, tuple) else (given,):
            at: Path = ("methods", index, "url") if "url" in spec.params else ("engine", "url")
            if url is None:
                hint = "give engine.url, or a url beside the method's kind: http://127.0.0.1:8000"
                raise document.error(("methods", index), f"no server is named for '{spec.name}'", hint)
            _url(document, at, str(url))
            if str(url) in seen:
                message = f"'{seen[str(url)]}' and '{spec.name}' are the same server"
                raise document.error(("methods", index), message, "give each method a url of its own")
            seen[str(url)] = spec.name
    if plan.tensor_parallel[1:]:
        raise document.error(("tensor_parallel", 1), "a server that already runs has one degree")


def _methods(document: Document, plan: Plan) -> None:
    for index, spec in enumerate(plan.methods):
        kind = kind_of(plan, spec)
        if kind.needs_draft and not (spec.draft or plan.model.draft):
            hint = f"give model.draft, or 'draft:' to '{spec.name}' alone"
            raise document.error(("methods", index), f"'{spec.kind}' needs a draft model", hint)
        if spec.draft and not kind.speculative:
            raise document.error(("methods", index, "draft"), f"'{spec.kind}' uses no draft model")


def _names(document: Document, plan: Plan) -> None:
    seen: dict[str, int] = {}
    for index, method in zip(_origins(plan), expand_methods(plan), strict=True):
        at = ("methods", index, "name")
        if not _NAME.fullmatch(method.name):
            hint = "letters, digits, '.', '_' and '-'; it becomes part of file names"
            raise document.error(at, f"'{method.name}' cannot be a name", hint)
        if method.name in seen:
            line = document.lines["methods", seen[method.name]]
            raise document.error(at, f"the name '{method.name}' is already taken on line {line}")
        seen[method.name] = index


def _origins(plan: Plan) -> list[int]:
    """For each expanded method, the index of the entry that it comes from."""
    counts = (
        math.prod(len(value) for value in spec.params.values() if isinstance(value, tuple))
        for spec in plan.methods
    )
    return [index for index, count in enumerate(counts) for _ in range(count)]


def _baseline(document: Document, plan: Plan) -> None:
    names = [method.name for method in expand_methods(plan)]
    if plan.baseline is not None and plan.baseline not in names:
        raise document.error(
            ("baseline",), f"there is no method '{plan.baseline}'", nearest(plan.baseline, names)
        )


def _drift(document: Document, plan: Plan) -> None:
    if not plan.drift:
        return
    if (baseline := baseline_of(plan)) is None:
        raise document.error(("drift",), "there is no baseline to measure again", "name one with 'baseline:'")
    for index, method in zip(_origins(plan), expand_methods(plan), strict=True):
        if method.name == f"{baseline}{AGAIN}":
            message = f"with 'drift' the name '{method.name}' is that of '{baseline}' measured again"
            raise document.error(("methods", index, "name"), message, "give the method another name")


def _repeated(document: Document, plan: Plan) -> None:
    places: list[tuple[Path, Any]] = [(("tensor_parallel",), plan.tensor_parallel)]
    for index, workload in enumerate(plan.workloads):
        places += [(("workloads", index, key), getattr(workload, key, None)) for key in _LISTS]
    for path, values in places:
        counted = [tokens(v) if path[-1] in ("max_tokens", "lengths") else v for v in _several(values)]
        for place, value in enumerate(counted):
            if value in counted[:place]:
                raise document.error((*path, place), f"{shown(path, value)} is given twice")


def _several(values: Any) -> Sequence[Any]:
    return values if isinstance(values, tuple) else ()


def _memory_fraction(document: Document, plan: Plan) -> None:
    given, at = plan.server.memory_fraction, ("server", "memory_fraction")
    if not isinstance(given, dict):
        return
    degrees = [f"tp{degree}" for degree in plan.tensor_parallel]
    for key in given:
        if key not in (*degrees, "default"):
            raise document.error((*at, key), "unknown key", nearest(key, [*degrees, "default"]))
    for degree in degrees:
        if degree not in given and "default" not in given:
            raise document.error(at, f"nothing is given for {degree}", f"add '{degree}:' or 'default:'")


def _context(document: Document, plan: Plan) -> None:
    if plan.server.context_length is not None and plan.server.context_needed is not None:
        message = "'context_length' already says how long a request may be"
        raise document.error(("server", "context_needed"), message, "remove one of them")


def _workloads(document: Document, plan: Plan) -> None:
    for index, workload in enumerate(plan.workloads):
        at: Path = ("workloads", index)
        if isinstance(workload, ConcurrencyWorkload):
            if not workload.levels and not workload.rates:
                hint = "for example levels: [1, 2, 4, 8] or rates: [0.5, 1, 2]"
                raise document.error(at, "missing key 'levels' (or 'rates')", hint)
            _arrivals(document, workload, at)
        if isinstance(workload, TraceWorkload):
            _trace(document, workload, at)
            _arrivals(document, workload, at)
        if isinstance(workload, AgenticWorkload):
            _scenarios(document, workload, at)


def _scenarios(document: Document, workload: AgenticWorkload, at: Path) -> None:
    for place, scenario in enumerate(workload.scenarios):
        if scenario not in SCENARIOS and not is_path(scenario):
            hint = f"{nearest(scenario, SCENARIOS)} (or the path of a scenario file)"
            raise document.error((*at, "scenarios", place), f"there is no scenario '{scenario}'", hint)


def _trace(document: Document, workload: TraceWorkload, at: Path) -> None:
    if not workload.levels and not workload.rates and workload.speedup is None:
        hint = (
            "levels: [4] keeps 4 requests running, rates: [2] sends 2 a second, speedup: 1 sends as recorded"
        )
        raise document.error(at, "missing key 'levels' (or 'rates', or 'speedup')", hint)
    if workload.speedup is not None and workload.format == "sharegpt":
        hint = "give 'levels' or 'rates' instead"
        raise document.error((*at, "speedup"), "a 'sharegpt' file has no times", hint)


def _arrivals(document: Document, workload: ConcurrencyWorkload | TraceWorkload, at: Path) -> None:
    for key in ("arrival", "burstiness"):
        if (*at, key) in document.lines and not workload.rates:
            raise document.error((*at, key), "only 'rates' have arrivals; 'levels' wait for answers")
    if (*at, "burstiness") in document.lines and workload.arrival != "gamma":
        raise document.error((*at, "burstiness"), "only 'arrival: gamma' has a burstiness")


def _cell_ids(document: Document, plan: Plan) -> None:
    seen: dict[str, int] = {}
    for index, cell in undealt(plan):
        if cell.id in seen:
            message = f"gives the cell '{cell.id}' that workloads[{seen[cell.id]}] already gives"
            raise document.error(
                ("workloads", index), message, "results are stored by that name; drop one of the two"
            )
        seen[cell.id] = index


def _precision(document: Document, plan: Plan) -> None:
    for index, workload in enumerate(plan.workloads):
        key = "max_requests" if isinstance(workload, ConcurrencyWorkload) else "max_repetitions"
        precision, most = getattr(workload, "precision", None), getattr(workload, key, None)
        at: Path = ("workloads", index)
        if precision is not None and most is None:
            raise document.error(at, f"missing key '{key}'", f"precision needs an end, e.g. {key}: 60")
        if most is not None and precision is None:
            hint = "say from when on no more are needed, e.g. precision: 0.05"
            raise document.error((*at, key), "only with 'precision' is there more than one round", hint)
        for owner, cell in undealt(plan):
            if owner == index and cell.most_requests < cell.requests:
                message = f"{cell.most_requests} requests are fewer than the {cell.requests} of a first round"
                raise document.error((*at, key), f"{message} of '{cell.id}'")


def _slo(document: Document, plan: Plan) -> None:
    if plan.slo is not None and not any(msgspec.structs.astuple(plan.slo)):
        raise document.error(("slo",), "expected at least one target", "for example slo: {tpot_ms: 25}")


def _rules(document: Document, plan: Plan) -> None:
    grid = grid_facets(plan)
    known = {field: {cell[field] for cell in grid if field in cell} for field in FIELDS}
    for index, rule in enumerate(plan.select):
        _one_rule(document, rule, known, ("select", index))


def _one_rule(document: Document, rule: Rule, known: Mapping[str, set[Any]], at: Path) -> None:
    if (rule.keep is None) == (rule.drop is None):
        said = "both 'keep' and 'drop'" if rule.keep else "neither 'keep' nor 'drop'"
        hint = "for example {drop: {workload: context, length: 100k, tp: 1}, why: takes too long}"
        raise document.error(at, f"expected one of 'keep' and 'drop', got {said}", hint)
    action, match = chosen(rule)
    for field in FIELDS:
        for place, value in enumerate(wanted(match, field)):
            if not any(same(field, value, have) for have in known[field]):
                listed = isinstance(getattr(match, field), tuple)
                path = (*at, action, field, place) if listed else (*at, action, field)
                message = f"no cell of this plan has the {field.replace('_', ' ')} {shown(path, value)}"
                raise document.error(path, message, nearest(str(value), map(str, known[field])))


def _something_is_left(document: Document, plan: Plan) -> None:
    matrix = expand(plan)
    if not matrix.services:
        at: Path = ("select",) if plan.select else ("tensor_parallel",)
        raise document.error(at, "nothing is left to measure", matrix.dropped[0].why)
    if (limit := plan.server.context_length) is None:
        return
    for service in matrix.services:
        cell = max(service.cells, key=cell_tokens)
        if cell_tokens(cell) > tokens(limit):
            message = f"{tokens(limit)} tokens are too few for '{cell.id}' on {service.id}"
            hint = f"its longest request takes {cell_tokens(cell)}; raise it, or drop that cell in 'select'"
            raise document.error(("server", "context_length"), message, hint)


def _commands(document: Document, plan: Plan) -> None:
    """What an engine would refuse when a server is to start is refused now."""
    if plan.engine.kind == "attach":
        return
    origins = dict(zip((method.name for method in expand_methods(plan)), _origins(plan), strict=True))
    for service in expand(plan).services:
        launch = Launch(
            port=1,
            served_name=plan.model.served_name or plan.name,
            model=_as_file(plan.model.target),
            draft=_as_file(service.method.draft) if service.method.draft else None,
            program=(plan.engine.kind,),
            cores=service.threads or 1,
        )
        try:
            ENGINES[plan.engine.kind].command(service, launch)
        except BadInput as error:
            at, message = _placed(error.message, service.method.name, origins[service.method.name])
            raise document.error(at, message, error.hint) from None


def _as_file(model: str) -> str:
    """A model's word as an engine sees it: a bundled model's name will be a file."""
    return model if "/" in model or model.endswith(".gguf") else f"{model}.gguf"


def _placed(message: str, method: str, index: int) -> tuple[Path, str]:
    """An engine's message, apart from the key that it begins with as in ``methods.NAME.budget: …``."""
    key, _, rest = message.partition(": ")
    own = f"methods.{method}"
    if key == own or key.startswith(f"{own}."):
        return ("methods", index, *key.removeprefix(own).split(".")[1:]), rest
    if key.split(".")[0] in Plan.__struct_fields__:
        return tuple(key.split(".")), rest
    return ("methods", index), message


CHECKS: tuple[Callable[[Document, Plan], None], ...] = (
    _engine,
    _attached,
    _methods,
    _names,
    _baseline,
    _drift,
    _repeated,
    _memory_fraction,
    _context,
    _workloads,
    _cell_ids,
    _precision,
    _slo,
    _rules,
    _something_is_left,
    _commands,
)
"""In this order: each relies on those before it."""
