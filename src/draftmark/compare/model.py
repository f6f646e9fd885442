"""The speedup to expect of a parameter's value that was not measured, from those that were.

A speedup is acceptance over cost: tau(b) / cost(b). Acceptance saturates: a chain whose tokens are each
accepted with probability p commits 1 + p / (1 − p) × (1 − p^b) tokens a step. The curve that is fitted,
1 + reach × (1 − exp(−b / scale)), has this form without one p for both, since a tree finds more. A step
costs a fixed part and a part for each drafted token. Two unknowns each: three values can be fitted and
tested.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp, fsum, isfinite
from typing import Any

from msgspec.structs import replace

from draftmark.schema import CostModel, Method, Service, Speedup

FEWEST = 3
SCALES = 400
"""Values of ``scale`` that are tried, from a tenth of the lowest parameter to ten times the highest."""
GRID = 1000
"""Steps from the lowest to the highest value in which the best is looked for; fewer between whole numbers."""

Point = tuple[float, float, float]
"""(parameter, tau, cost of a step in baseline steps)."""


@dataclass(frozen=True)
class Fit:
    """The curves through some points."""

    reach: float
    scale: float
    base: float
    slope: float

    def speedup(self, b: float) -> float:
        """Expected at a value of the parameter; NaN where the line of costs is not positive."""
        cost = self.base + self.slope * b
        return (1 + self.reach * (1 - exp(-b / self.scale))) / cost if cost > 0 else float("nan")


def expected(model: CostModel, value: float) -> float | None:
    """The speedup that a model expects; None outside the measured range, which it knows nothing of."""
    if not model.points[0][0] <= value <= model.points[-1][0]:
        return None
    return Fit(model.reach, model.scale, model.base, model.slope).speedup(value)


def models(services: Sequence[Service], speedups: Mapping[tuple[str, str], Speedup]) -> Iterator[CostModel]:
    """One for each cell and each family of methods that differ in one numeric parameter.

    Args:
        speedups: by service and cell; flagged ones are not used.
    """
    for parameter, family in _families(services):
        for cell in dict.fromkeys(cell.id for service in family for cell in service.cells):
            points = [
                (value, speedup.tau, 1 / speedup.step_ratio)
                for service in family
                if (speedup := speedups.get((service.id, cell)))
                and not speedup.flags
                and speedup.tau
                and speedup.step_ratio
                and (value := _number(service.method.params[parameter])) is not None
            ]
            if model := _model(family[0], parameter, cell, sorted(points)):
                yield model


def _families(services: Sequence[Service]) -> Iterator[tuple[str, list[Service]]]:
    """Services whose methods differ in one numeric parameter, and its name."""
    groups: dict[tuple[Any, ...], list[Service]] = defaultdict(list)
    for service in services:
        for name, value in service.method.params.items():
            if (_number(value) or 0) > 0:
                groups[name, service.host, service.tp, _rest(service.method, name)].append(service)
    return ((key[0], family) for key, family in groups.items() if len(family) >= FEWEST)


def _rest(method: Method, parameter: str) -> str:
    """What members of a family have in common, as text."""
    params = {name: value for name, value in method.params.items() if name != parameter}
    return repr(replace(method, name="family", params=params))


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _model(one: Service, parameter: str, cell: str, points: Sequence[Point]) -> CostModel | None:
    """None with fewer than three points, or where what is left cannot be fitted without one of them."""
    if len({value for value, _, _ in points}) < max(FEWEST, len(points)):
        return None
    error = max(_miss(points, left_out) for left_out in range(len(points)))
    fit = _fit(points)
    values = list(_between(points))
    best = max(values, key=fit.speedup)
    if not all(isfinite(number) for number in (error, *map(fit.speedup, values))):
        return None
    return CostModel(
        kind=one.method.kind,
        parameter=parameter,
        tp=one.tp,
        host=one.host,
        cell=cell,
        points=tuple(points),
        reach=fit.reach,
        scale=fit.scale,
        base=fit.base,
        slope=fit.slope,
        error=error,
        best=best,
        expected=fit.speedup(best),
    )


def _miss(points: Sequence[Point], left_out: int) -> float:
    """Relative error of the speedup at a point that the fit has not seen; not finite where it has none."""
    value, tau, cost = points[left_out]
    found = _fit([*points[:left_out], *points[left_out + 1 :]]).speedup(value)
    return abs(found * cost / tau - 1) if isfinite(found) else float("inf")


def _between(points: Sequence[Point]) -> Iterator[float]:
    """Values from the lowest to the highest measured one."""
    low, high = points[0][0], points[-1][0]
    if all(value.is_integer() for value, _, _ in points):
        yield from map(float, range(int(low), int(high) + 1, max(1, int(high - low) // GRID)))
    else:
        yield from (low + (high - low) * step / GRID for step in range(GRID + 1))


def _fit(points: Sequence[Point]) -> Fit:
    """Least squares: the line of costs, and for each scale the reach that suits it best."""
    base, slope = _line([(value, cost) for value, _, cost in points])
    low, high = points[0][0] / 10, points[-1][0] * 10
    scales = [low * (high / low) ** (step / (SCALES - 1)) for step in range(SCALES)]
    _, reach, scale = min(_saturation(points, scale) for scale in scales)
    return Fit(reach, scale, base, slope)


def _saturation(points: Sequence[Point], scale: float) -> tuple[float, float, float]:
    """(sum of squared misses, reach, scale) of acceptance over one."""
    shape = [1 - exp(-value / scale) for value, _, _ in points]
    gain = [tau - 1 for _, tau, _ in points]
    reach = max(0.0, fsum(s * g for s, g in zip(shape, gain, strict=True)) / fsum(s * s for s in shape))
    return fsum((reach * s - g) ** 2 for s, g in zip(shape, gain, strict=True)), reach, scale


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Height at 0 and slope of the line of least squares through points of different places."""
    x, y = (fsum(column) / len(points) for column in zip(*points, strict=True))
    slope = fsum((a - x) * (b - y) for a, b in points) / fsum((a - x) ** 2 for a, _ in points)
    return y - slope * x, slope
