"""Every method against its baseline: how much faster, how surely, why, and whether it said the same."""

from collections.abc import Iterator

from draftmark.compare.lossless import lossless
from draftmark.compare.pairs import Side
from draftmark.compare.speed import speedup
from draftmark.schema import CampaignResult, Cell, Comparison, Service, Speedup

__all__ = ["compare"]


def compare(result: CampaignResult) -> Comparison:
    """Compare each service with the baseline of its host and degree, cell by cell.

    Cells without a result on either side are left out and named in the notes. Records make pairs, and
    pairs make intervals; where they are not in the result a ratio stands alone and tells nothing.
    """
    baselines = {(s.host, s.tp): s for s in reversed(result.matrix.services) if s.baseline}
    names = {service.method.name for service in baselines.values()}
    sides = _sides(result)
    speedups, losses, notes = [], [], []
    for service in result.matrix.services:
        baseline = baselines.get((service.host, service.tp))
        if service.baseline:
            continue
        if baseline is None:
            notes.append(f"{service.id}: no baseline runs on {service.host} with TP {service.tp}")
            continue
        for cell, base, other in _both(baseline, service, sides, notes):
            found = speedup(cell, base, other)
            if isinstance(found, Speedup):
                speedups.append(found)
            else:
                notes.append(f"{service.id}/{cell.id}: {found}")
            losses.append(lossless(cell, base, other))
    return Comparison(
        baseline=", ".join(sorted(names)) or None,
        speedups=tuple(speedups),
        lossless=tuple(losses),
        notes=tuple(notes),
    )


def _sides(result: CampaignResult) -> dict[tuple[str, str], Side]:
    """Each cell that has a result, by service and cell."""
    services = {service.id: service for service in result.matrix.services}
    return {
        (found.service, found.cell.id): Side(
            service=services[found.service],
            result=found,
            records=result.records.get(f"{found.service}/{found.cell.id}", ()),
        )
        for found in result.cells
        if found.status == "ok" and found.service in services
    }


def _both(
    baseline: Service, service: Service, sides: dict[tuple[str, str], Side], notes: list[str]
) -> Iterator[tuple[Cell, Side, Side]]:
    """The service's cells with a result on both sides; the others are noted."""
    for cell in service.cells:
        base, other = sides.get((baseline.id, cell.id)), sides.get((service.id, cell.id))
        if base and other:
            yield cell, base, other
        else:
            missing = baseline.id if base is None else service.id
            notes.append(f"{service.id}/{cell.id}: not compared, {missing} has no result for this cell")
