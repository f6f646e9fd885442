"""The lists of the sorting prompts and the order in which each belongs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from draftmark.workload.draw import Draw
from draftmark.workload.words import fill

WEEK = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@dataclass(frozen=True)
class Rows:
    """How the lines of one prompt are made and ordered."""

    columns: Mapping[str, str]
    """Name to template; the column ``item`` is what gets sorted, and no two rows share it."""
    line: str
    key: Callable[[Mapping[str, str]], Any]
    """Sort key of a row; ties fall to ``item``."""
    count: int = 12
    between: str = "\n"

    def make(self, draw: Draw) -> tuple[str, tuple[str, ...]]:
        """The lines as the prompt shows them, and the items in the right order."""
        rows: dict[str, dict[str, str]] = {}
        while len(rows) < self.count:
            row = {name: fill(template, draw)[0] for name, template in self.columns.items()}
            rows.setdefault(row["item"], row)
        ordered = sorted(rows.values(), key=lambda row: (self.key(row), row["item"]))
        lines = self.between.join(self.line.format(**row) for row in rows.values())
        return lines, tuple(row["item"] for row in ordered)


def _numbers(template: str, key: Callable[[int], Any], count: int = 12) -> Rows:
    """A plain list of distinct numbers."""
    return Rows({"item": template}, "{item}", lambda row: key(int(row["item"])), count, ", ")


def _version(row: Mapping[str, str]) -> list[int]:
    return [int(field) for field in row["item"].split(".")]


def _date(row: Mapping[str, str]) -> list[int]:
    return [int(field) for field in reversed(row["item"].split("/"))]


def _brightness(row: Mapping[str, str]) -> int:
    return 3 * int(row["red"]) + 6 * int(row["green"]) + int(row["blue"])


def _metres(row: Mapping[str, str]) -> int:
    return int(row["far"]) * {"km": 1000, "miles": 1609}[row["unit"]]


ROWS: Mapping[str, Rows] = {
    "parcels": Rows(
        {"item": "{{100..999}}-{{10..99}}", "city": "{{city}}", "weight": "{{2..31}}"},
        "{item} to {city}, {weight} kg",
        lambda row: -int(row["weight"]),
    ),
    "readings": _numbers("{{100..9999}}", lambda n: n, 14),
    "guests": Rows({"item": "{{family}}", "given": "{{given}}"}, "{given} {item}", lambda _: 0, 14),
    "tickets": Rows(
        {"item": "{{2000..9999}}", "priority": "{{1..3}}", "age": "{{1..60}}"},
        "#{item}: priority {priority}, {age} days old",
        lambda row: (int(row["priority"]), -int(row["age"])),
    ),
    "ships": Rows(
        {"item": "{{Animal}} of {{city}}", "hour": "{{10..23}}", "minute": "{{10..59}}"},
        "{item}, {hour}:{minute}",
        lambda row: (row["hour"], row["minute"]),
        10,
    ),
    "bubble": _numbers("{{10..99}}", lambda n: n, 8),
    "harvest": Rows(
        {"item": "{{food}}", "kg": "{{200..900}}", "crates": "{{12..40}}"},
        "{item}: {kg} kg in {crates} crates",
        lambda row: -int(row["kg"]) / int(row["crates"]),
        10,
    ),
    "versions": Rows({"item": "{{1..3}}.{{0..14}}.{{0..12}}"}, "{item}", _version, 14, "  "),
    "dates": Rows({"item": "{{1..28}}/{{1..12}}/{{2019..2026}}"}, "{item}", _date, 12, "; "),
    "towns": Rows({"item": "{{city}}"}, "{item}", lambda row: len(row["item"]), 16, ", "),
    "quicksort": _numbers("{{11..499}}", lambda n: n, 11),
    "runners": Rows(
        {"item": "{{100..399}}", "minutes": "{{31..58}}", "seconds": "{{10..59}}"},
        "no. {item} in {minutes}:{seconds}",
        lambda row: (row["minutes"], row["seconds"]),
    ),
    "hex": Rows(
        {"item": "0x{{2..9}}{{hexdigit}}{{hexdigit b}}"}, "{item}", lambda row: -int(row["item"], 16)
    ),
    "loans": Rows(
        {"item": "{{capital}}{{capital b}} {{100..499}}", "days": "{{0..45}}"},
        "{item}: {days} days overdue",
        lambda row: -int(row["days"]),
    ),
    "instruments": Rows(
        {"item": "{{instrument}}", "price": "{{4..19}}"},
        "{item}, {price} euros a month",
        lambda row: int(row["price"]),
    ),
    "descending": _numbers("{{100..999}}", lambda n: -n, 9),
    "plots": Rows(
        {"item": "{{capital}}{{10..99}}", "length": "{{7..28}}", "width": "{{5..19}}"},
        "plot {item}: {length} m by {width} m",
        lambda row: -int(row["length"]) * int(row["width"]),
    ),
    "animals": Rows(
        {"item": "{{animal}}", "last": "{{20..260}}", "now": "{{20..260}}"},
        "{item}: {last} last year, {now} this year",
        lambda row: int(row["now"]) - int(row["last"]),
    ),
    "last-digit": _numbers("{{100..999}}", lambda n: (n % 10, n), 16),
    "stock": Rows(
        {"item": "{{thing}}", "pieces": "{{30..400}}", "rate": "{{2..19}}"},
        "{item}: {pieces} pieces, {rate} a day",
        lambda row: int(row["pieces"]) / int(row["rate"]),
    ),
    "heap": _numbers("{{10..999}}", lambda n: n, 9),
    "seats": Rows(
        {"item": "{{capital}}{{1..24}}"},
        "{item}",
        lambda row: (row["item"][0], int(row["item"][1:])),
        18,
        " ",
    ),
    "distance": Rows(
        {"item": "{{city}}", "far": "{{40..2400}}", "unit": "{{unit}}"},
        "{item}: {far} {unit}",
        _metres,
        11,
    ),
    "absolute": _numbers("{{sign}}{{10..60}}", lambda n: (abs(n), n), 14),
    "colours": Rows(
        {
            "item": "{{colour}}-{{10..99}}",
            "red": "{{0..255}}",
            "green": "{{0..255}}",
            "blue": "{{0..255}}",
        },
        "{item}: red {red}, green {green}, blue {blue}",
        _brightness,
        10,
    ),
    "shifts": Rows(
        {"item": "{{capital}}{{100..999}}", "day": "{{weekday}}", "hour": "{{5..22}}"},
        "{item}, {day}, from {hour} o'clock",
        lambda row: (WEEK.index(row["day"]), int(row["hour"])),
    ),
}
