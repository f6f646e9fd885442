"""The right answers of the arithmetic prompts, from the numbers that were filled into each."""

from collections.abc import Callable, Mapping
from math import prod

Numbers = Mapping[str, int]


def _tank(v: Numbers) -> int:
    return v["full"] - v["days"] * v["use"] + v["days"] // 3 * v["rain"]


def _wages(v: Numbers) -> int:
    hours = v["hours"] * (v["a"] * v["pa"] + v["b"] * v["pb"] + v["c"] * v["pc"])
    return hours + v["b"] * v["extra"] * 2 * v["pb"]


def _crates(v: Numbers) -> int:
    pieces = (v["crates"] - v["lost"]) * v["boxes"] * v["pieces"] - v["broken"]
    return pieces % v["shops"]


def _fence(v: Numbers) -> int:
    posts = 2 * (v["a"] + v["b"])
    return posts * v["post"] + posts * v["gap"] * 3 * v["wire"]


def _mixture(v: Numbers) -> int:
    parts = v["x"] * v["p"] + v["y"] * v["q"] + v["r"]
    return parts * v["grams"] * v["batch"]


def _votes(v: Numbers) -> int:
    given = 3 * (v["members"] - v["absent"] - v["invalid"]) - v["two"]
    return given - v["first"] - v["second"]


def _ladder(v: Numbers) -> int:
    """Days before the last each gain ``up - down``; the last day gains ``up``."""
    before = -(-(v["wall"] - v["up"]) // (v["up"] - v["down"]))
    return before + 1


def _discount(v: Numbers) -> int:
    paid = v["n"] - v["n"] // 10
    return paid * (v["price"] - v["off"])


def _rectangles(v: Numbers) -> int:
    rows, columns = v["rows"], v["columns"]
    return rows * (rows + 1) // 2 * (columns * (columns + 1) // 2)


def _queue(v: Numbers) -> int:
    crossings = -(-v["cars"] // v["load"])
    return crossings * v["minutes"] + (crossings - 1) * v["back"]


def _stairs(v: Numbers) -> int:
    """Each way has ``floors × steps`` steps; downhill one in ``steps`` does not count."""
    up = v["floors"] * v["steps"]
    return v["tours"] * v["days"] * (up + up - v["floors"])


ANSWERS: Mapping[str, Callable[[Numbers], int]] = {
    "bakery": lambda v: ((5 * v["trays"] + v["saturday"]) * v["rolls"] - 6 * v["spoiled"]) * v["cents"],
    "long-sum": lambda v: sum(v.values()),
    "long-product": lambda v: v["a"] * v["b"],
    "tank": _tank,
    "trains": lambda v: (60 * v["gap"] - (v["v"] + v["w"]) * v["minutes"]) * 1000 // 60,
    "wages": _wages,
    "tiles": lambda v: (v["length"] - 4) * (v["width"] - 4),
    "remainder": lambda v: v["a"] % v["b"],
    "crates": _crates,
    "savings": lambda v: v["months"] * v["start"] + v["more"] * v["months"] * (v["months"] - 1) // 2,
    "fence": _fence,
    "mixture": _mixture,
    "clock": lambda v: v["start"] + v["rounds"] * v["round"] + (v["rounds"] - 1) * v["pause"],
    "squares": lambda v: v["a"] ** 2 + v["b"] ** 2 - v["c"] ** 2 + v["d"] ** 3,
    "votes": _votes,
    "ladder": _ladder,
    "pages": lambda v: 9 + 180 + 2700 + 4 * (v["pages"] - 999),
    "discount": _discount,
    "binary": lambda v: v["a"].bit_count() * v["b"],
    "rectangle-count": _rectangles,
    "fuel": lambda v: v["trip"] * v["days"] * v["months"] * v["use"] * v["price"] // 100,
    "primes": lambda v: prod(v.values()),
    "queue": _queue,
    "digits": lambda v: sum(n for n in range(v["low"], v["high"] + 1) if n % v["by"] == 0),
    "stairs": _stairs,
    "exchange": lambda v: v["euros"] * v["rate"] // 10 - v["fee"] - v["nights"] * v["hotel"],
}
