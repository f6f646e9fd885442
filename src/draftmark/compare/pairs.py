"""Which request of one service belongs to which of another."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from draftmark.metrics import completed
from draftmark.schema import CampaignResult, CellResult, FlagKind, RequestRecord, Role, Service

Key = tuple[str, int, int]
"""Prompt, turn (0 outside sessions), and repetition of that prompt."""


@dataclass(frozen=True)
class Side:
    """One cell as one service measured it."""

    service: Service
    result: CellResult
    records: Sequence[RequestRecord]

    def of(self, role: Role) -> list[RequestRecord]:
        """Its completed requests of a role."""
        return completed(self.records, role)


@dataclass(frozen=True)
class Pair:
    """The same request on both sides."""

    key: Key
    base: RequestRecord
    other: RequestRecord


def sides(result: CampaignResult) -> dict[tuple[str, str], Side]:
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


def doubts(*sides: Side) -> tuple[FlagKind, ...]:
    """Kinds of the flags of any of the sides, each once."""
    return tuple(dict.fromkeys(flag.kind for side in sides for flag in side.result.flags))


def keyed(records: Sequence[RequestRecord]) -> dict[Key, RequestRecord]:
    """Records by what they repeat, in the order in which they were sent."""
    seen: Counter[tuple[str, int]] = Counter()
    found = {}
    for record in sorted(records, key=lambda record: (record.start_s, record.request)):
        asked = record.prompt_id, record.turn or 0
        found[(*asked, seen[asked])] = record
        seen[asked] += 1
    return found


def paired(base: Sequence[RequestRecord], other: Sequence[RequestRecord]) -> list[Pair]:
    """Requests that both sides completed, in the order in which the baseline sent them."""
    others = keyed(other)
    return [Pair(key, record, others[key]) for key, record in keyed(base).items() if key in others]
