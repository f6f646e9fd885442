"""``select``: which cells of the grid are measured; for each cell the first rule that matches decides."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Literal

from draftmark.plan.grid import tokens
from draftmark.schema import Cell, Match, Rule, Scalar

FIELDS = Match.__struct_fields__
_TOKENS = ("max_tokens", "length")

Facets = Mapping[str, Scalar]
"""What rules can ask of a cell; a field that it does not have is absent."""


def facets(host: str, tp: int, method: str, cell: Cell) -> Facets:
    """A cell on a service, as rules see it."""
    closed = cell.workload in ("concurrency", "trace") and not cell.open_loop
    known: dict[str, Scalar | None] = {
        "workload": cell.workload,
        "method": method,
        "tp": tp,
        "host": host,
        "prompt": cell.prompts[0] if len(cell.prompts) == 1 else None,
        "max_tokens": cell.max_tokens,
        "length": cell.length,
        "level": cell.concurrency if closed else None,
        "rate": cell.rate,
        "scenario": cell.scenario,
    }
    return {field: value for field, value in known.items() if value is not None}


def dropped_because(rules: Sequence[Rule], cell: Facets) -> str | None:
    """Why a cell is not measured; None if it is. A cell that no rule matches is kept."""
    for index, rule in enumerate(rules):
        if matches(chosen(rule)[1], cell):
            return None if rule.keep is not None else rule.why or f"select[{index}] drops it"
    return None


def chosen(rule: Rule) -> tuple[Literal["keep", "drop"], Match]:
    """What a rule does, and to which cells."""
    return ("keep", rule.keep) if rule.keep is not None else ("drop", rule.drop or Match())


def matches(match: Match, cell: Facets) -> bool:
    """Whether every field that is given holds; an empty match holds for all cells."""
    return all(
        any(same(field, value, cell.get(field)) for value in wanted(match, field))
        for field in FIELDS
        if getattr(match, field) is not None
    )


def wanted(match: Match, field: str) -> tuple[Scalar, ...]:
    """The values that a field may have; none where it is not given."""
    value = getattr(match, field)
    if value is None:
        return ()
    return value if isinstance(value, tuple) else (value,)


def same(field: str, want: Scalar, have: Scalar | None) -> bool:
    """Whether a value in a rule means the one that a cell has: a glob for names, 3k for 3000."""
    if isinstance(have, str):
        return isinstance(want, str) and fnmatchcase(have, want)
    if isinstance(want, str) and field in _TOKENS:
        want = _count(want)
    return have is not None and not isinstance(want, bool | str) and want == have


def _count(text: str) -> Scalar:
    try:
        return tokens(text)
    except ValueError:
        return text
