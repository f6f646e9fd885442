"""A cell's load in rounds, until enough is known."""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from draftmark.schema import LoadHealth, LoadResult, Work


def in_rounds(
    parts: Sequence[Work], load: Callable[[Work, int], LoadResult], enough: Callable[[LoadResult], bool]
) -> tuple[LoadResult, int]:
    """Everything up to the first round after which it is ``enough``, and how many rounds that are.

    Args:
        parts: what each round sends, at least one.
        load: sends a part; gets the number of requests that earlier rounds ended.
    """
    found, used = load(parts[0], 0), 1
    while used < len(parts) and not enough(found):
        found = merged(found, load(parts[used], len(found.records)))
        used += 1
    return found, used


def merged(first: LoadResult, second: LoadResult) -> LoadResult:
    """Two loads as one: the second begins when the first has ended, and the worse health counts."""
    number = 1 + max((record.round for record in first.records), default=-1)
    later = (
        replace(record, round=number + record.round, start_s=first.duration_s + record.start_s)
        for record in second.records
    )
    lags = [load.health.loop_lag_p99_s for load in (first, second) if load.health.loop_lag_p99_s is not None]
    return LoadResult(
        records=(*first.records, *later),
        duration_s=first.duration_s + second.duration_s,
        health=LoadHealth(
            cpu_share=max(first.health.cpu_share, second.health.cpu_share),
            loop_lag_p99_s=max(lags, default=None),
            late_sends=first.health.late_sends + second.health.late_sends,
            kernel_times=first.health.kernel_times and second.health.kernel_times,
            workers=max(first.health.workers, second.health.workers),
        ),
    )
