"""Memory as it was predicted before a start, beside what the server then reported."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

from draftmark.report.parts import Column, Entry, Row, Table, Tone
from draftmark.report.view import View

CLOSE = 0.1
"""Relative error up to which a prediction counts as right."""


def memory(view: View) -> Table:
    """Each quantity that a service's facts hold as ``predicted``; reported ones stand beside it."""
    rows = tuple(
        Row((Entry(view.name(start.service)), *entries), start.service.method.name)
        for start in view.starts.values()
        for entries in compared(start.facts)
    )
    return Table(
        id="memory-plan",
        title="Memory, as predicted before the start and as the server reported it",
        columns=(
            Column("Method"),
            Column("Quantity"),
            Column("Predicted", numeric=True),
            Column("Reported", numeric=True),
            Column("Reported / predicted", numeric=True),
        ),
        rows=rows,
        notes=("A dash: the server does not report it.",) if rows else (),
    )


def compared(facts: Mapping[str, Any]) -> Iterator[tuple[Entry, ...]]:
    """One line for each predicted number; reported under the same name, in ``reported`` or beside it."""
    predicted = facts.get("predicted")
    if not isinstance(predicted, Mapping):
        return
    apart = facts.get("reported")
    reported = apart if isinstance(apart, Mapping) else facts
    for name, value in predicted.items():
        if is_number(value):
            yield (Entry(words(name)), shown(name, value), *beside(name, value, reported.get(name)))


def beside(name: str, predicted: float, reported: object) -> tuple[Entry, Entry]:
    """What was reported, and its ratio to the prediction."""
    if not is_number(reported):
        return Entry("–", tone="muted"), Entry("–", tone="muted")
    if not predicted:
        return shown(name, reported), Entry("–", tone="muted")
    ratio = reported / predicted
    tone: Tone = "" if abs(ratio - 1) <= CLOSE else "slower"
    return shown(name, reported), Entry(f"{ratio:.2f}", sort=ratio, tone=tone)


def is_number(value: object) -> TypeGuard[float]:
    """It is a number and not a truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def words(name: str) -> str:
    """``draft_kv_bytes`` as ``draft kv``."""
    return name.removesuffix("_bytes").replace("_", " ")


def shown(name: str, value: float) -> Entry:
    """Bytes in GiB, anything else as it is."""
    text = f"{value / 2**30:.2f} GiB" if name.endswith("_bytes") else f"{value:,.6g}"
    return Entry(text, sort=float(value))
