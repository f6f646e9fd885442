"""Every method against its baseline: how much faster, how surely, why, and whether it said the same.

Beside the speedups: where along an axis a method stops paying, what it accepts of which text, what more
GPUs bring, what a parameter's value that was not measured should bring, and whether the machine kept still.
"""

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from draftmark.compare.acceptance import acceptance, positions
from draftmark.compare.answer import Answer, CheckedCell, LosslessCheck, check_lossless
from draftmark.compare.crossover import crossovers
from draftmark.compare.drift import Reading, bearing, drift, drift_reach
from draftmark.compare.intervals import estimate, inverse, log_error, scaled, together
from draftmark.compare.lossless import lossless
from draftmark.compare.model import expected, models
from draftmark.compare.pairs import Side, doubts, sides
from draftmark.compare.scaling import scaling
from draftmark.compare.speed import rate_of, ratio, repetition, speedup
from draftmark.schema import CampaignResult, Cell, Comparison, Drift, Lossless, Service, Speedup

__all__ = [
    "Answer",
    "CheckedCell",
    "LosslessCheck",
    "Side",
    "check_lossless",
    "compare",
    "doubts",
    "drift_reach",
    "estimate",
    "expected",
    "inverse",
    "log_error",
    "rate_of",
    "ratio",
    "repetition",
    "scaled",
    "sides",
    "together",
]

Sides = Mapping[tuple[str, str], Side]


def compare(result: CampaignResult) -> Comparison:
    """Compare each service with the baseline of its host and degree, cell by cell.

    Cells without a result on either side are left out and named in the notes. Records make pairs, and
    pairs make intervals; where they are not in the result a ratio stands alone and tells nothing.
    """
    measured = sides(result)
    services = [service for service in result.matrix.services if service.repeats is None]
    baselines = result.matrix.baselines
    drifts = {base.id: _drifts(result, base, measured) for base in baselines.values()}
    speedups: list[Speedup] = []
    losses: list[Lossless] = []
    notes: list[str] = []
    for service in services:
        baseline = baselines.get(service.place)
        if service.baseline:
            continue
        if baseline is None:
            notes.append(f"{service.id}: no baseline runs on {service.host} with TP {service.tp}")
            continue
        for cell, base, other in _both(baseline, service, measured, notes):
            drifted = bearing(cell, other.result.started_at, drifts[baseline.id])
            found = _speedup(cell, base, other, drifted)
            if isinstance(found, Speedup):
                speedups.append(found)
            else:
                notes.append(f"{service.id}/{cell.id}: {found}")
            losses.append(lossless(cell, base, other))
    return replace(
        _around(services, measured, speedups),
        baseline=", ".join(sorted({base.method.name for base in baselines.values()})) or None,
        lossless=tuple(losses),
        drift=tuple(reading.drift for found in drifts.values() for reading in found),
        notes=tuple(notes),
    )


def _around(services: list[Service], measured: Sides, speedups: list[Speedup]) -> Comparison:
    """The speedups, and what they and the cells say beyond them."""
    by_cell = {(one.service, one.cell): one for one in speedups}
    own = {
        service.id: [
            measured[service.id, cell.id] for cell in service.cells if (service.id, cell.id) in measured
        ]
        for service in services
    }
    return Comparison(
        baseline=None,
        speedups=tuple(speedups),
        acceptance=tuple(one for service in services for one in acceptance(service, own[service.id])),
        positions=tuple(one for service in services for one in positions(service, own[service.id])),
        crossovers=tuple(
            one
            for service in services
            for one in crossovers(service, {cell: s for (of, cell), s in by_cell.items() if of == service.id})
        ),
        scaling=tuple(scaling(services, measured)),
        models=tuple(models(services, by_cell)),
    )


def _speedup(cell: Cell, base: Side, other: Side, drifts: list[Drift]) -> Speedup | str:
    """The speedup, in doubt where the baseline moved."""
    found = speedup(cell, base, other, drift_reach(drifts))
    if isinstance(found, Speedup) and any(drift.moved for drift in drifts):
        return replace(found, flags=tuple(dict.fromkeys((*found.flags, "drift"))))
    return found


def _drifts(result: CampaignResult, baseline: Service, measured: Sides) -> list[Reading]:
    """The baseline's cells that were measured again, with what that says."""
    return [
        Reading(cell, last.result.started_at, found)
        for again in result.matrix.services
        if again.repeats == baseline.id
        for cell in again.cells
        if (first := measured.get((baseline.id, cell.id)))
        and (last := measured.get((again.id, cell.id)))
        and (found := drift(cell, first, last))
    ]


def _both(
    baseline: Service, service: Service, measured: Sides, notes: list[str]
) -> Iterator[tuple[Cell, Side, Side]]:
    """The service's cells with a result on both sides; the others are noted."""
    for cell in service.cells:
        base, other = measured.get((baseline.id, cell.id)), measured.get((service.id, cell.id))
        if base and other:
            yield cell, base, other
        else:
            missing = baseline.id if base is None else service.id
            notes.append(f"{service.id}/{cell.id}: not compared, {missing} has no result for this cell")
