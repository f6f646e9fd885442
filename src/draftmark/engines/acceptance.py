"""Reading what servers say: JSON pages, counters that rise, and acceptance that records carry."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from math import isfinite, nan
from typing import Any

from draftmark.schema import RequestRecord, Speculation

_SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})?[ \t]+(\S+)", re.MULTILINE)
_POSITION = re.compile(r'\bposition="(\d+)"')


def fields(value: Any) -> Mapping[str, Any]:
    """A JSON object, or the first of a list of them; empty for anything else."""
    first = value[0] if isinstance(value, list) and value else value
    return first if isinstance(first, dict) else {}


def parsed(page: str) -> Mapping[str, Any]:
    """The JSON object that a page holds; empty where it holds none."""
    try:
        return fields(json.loads(page))
    except ValueError:
        return {}


def counters(page: str) -> dict[str, float]:
    """Values of a Prometheus text page by metric name, summed over labels."""
    sums: dict[str, float] = defaultdict(float)
    for name, _, value in _SAMPLE.findall(page):
        sums[name] += _number(value)
    return dict(sums)


def rises(before: str, after: str) -> dict[str, int]:
    """How much each counter rose between two pages; empty where a page is missing.

    A counter that is only on the later page started at 0: labelled counters appear with their first event.
    One that fell is left out, since the server was restarted in between.
    """
    if not before.strip() or not after.strip():
        return {}
    return _differences(counters(before), counters(after))


def rises_by_position(before: str, after: str, name: str) -> tuple[int, ...]:
    """How much the counter ``name`` rose at draft position 0, 1, …."""
    rose = _differences(_by_position(before, name), _by_position(after, name))
    return tuple(rose[position] for position in sorted(rose, key=int))


def pooled(records: Sequence[RequestRecord]) -> Speculation | None:
    """The sum over the measured requests that completed; None unless each that could decode says its own.

    A request of a single token has no decode step and says nothing.
    """
    decoded = [
        record
        for record in records
        if record.role == "measured"
        and record.ok
        and (record.output_tokens is None or record.output_tokens > 1)
    ]
    parts = [record.speculation for record in decoded if record.speculation]
    if not parts or len(parts) < len(decoded):
        return None
    return Speculation(
        source=f"{parts[0].source}, summed over requests",
        tokens=_total(part.tokens for part in parts),
        steps=_total(part.steps for part in parts),
        accepted=_total(part.accepted for part in parts),
        drafted=_total(part.drafted for part in parts),
        draft_steps=_total(part.draft_steps for part in parts),
        accepted_per_position=_columns([part.accepted_per_position for part in parts]),
    )


def at_least(histogram: Sequence[int]) -> tuple[int, ...]:
    """Accepted drafts at each position, from how many steps accepted 0, 1, … drafts."""
    return tuple(sum(histogram[accepted:]) for accepted in range(1, len(histogram)))


def _total(values: Iterable[int | None]) -> int | None:
    """The sum; None where one is missing."""
    known = list(values)
    return None if None in known else sum(value or 0 for value in known)


def _columns(rows: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Sums of columns; shorter rows end in zeros."""
    return tuple(sum(column) for column in zip_longest(*rows, fillvalue=0))


def _by_position(page: str, name: str) -> dict[str, float]:
    sums: dict[str, float] = defaultdict(float)
    for found, labels, value in _SAMPLE.findall(page):
        if found == name and (position := _POSITION.search(labels)):
            sums[position[1]] += _number(value)
    return dict(sums)


def _differences(start: Mapping[str, float], end: Mapping[str, float]) -> dict[str, int]:
    rose = {name: value - start.get(name, 0.0) for name, value in end.items()}
    return {name: round(rise) for name, rise in rose.items() if rise >= 0 and isfinite(rise)}


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return nan
