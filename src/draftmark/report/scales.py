"""Axes and shades that every form of a chart shares."""

from math import log2

from draftmark.report.parts import Chart, Look

NEAR = (0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.4, 1.5)
WIDE = (0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8, 12, 16)
ROUND = (1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 12, 16)
FASTER, SLOWER = "#0072B2", "#D55E00"
FULL_SHADE = 4.0
"""The ratio, up or down, from which a heat map's shade is at its strongest."""
DODGE = 0.78
"""Share of a group's width that its methods take."""
STRONGEST = 0.65
"""Opacity at which the page's text is still read on both shades, in light and in dark."""


def ratio_ticks(chart: Chart) -> list[float]:
    """Round ratios within what is drawn, few enough to read, 1 among them."""
    low, high = chart.span or (0.5, 2.0)
    choice = NEAR if high / low < 1.9 else WIDE
    return [tick for tick in choice if low * 0.97 <= tick <= high * 1.03]


def length_ticks(chart: Chart) -> list[float]:
    """Round acceptance lengths within what is drawn."""
    low, high = chart.across or (1.0, 2.0)
    return [tick for tick in ROUND if low * 0.97 <= tick <= high * 1.03]


def shade(ratio: float) -> tuple[str, float]:
    """Colour of a speedup and its opacity from 0 (no change) on; twice and half are equally strong."""
    strength = min(1.0, abs(log2(ratio)) / log2(FULL_SHADE)) if ratio > 0 else 1.0
    return (FASTER if ratio >= 1 else SLOWER), round(STRONGEST * strength, 3)


def dodge(chart: Chart, looks: dict[str, Look]) -> dict[str, float]:
    """Offset of each method from the middle of its group, in groups, so that nothing is hidden."""
    shown = [name for name in looks if name in chart.methods]
    width = DODGE / max(1, len(shown))
    return {name: (index - (len(shown) - 1) / 2) * width for index, name in enumerate(shown)}
