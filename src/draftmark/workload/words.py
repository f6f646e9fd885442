"""Word lists, and templates that are filled from them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files

import yaml

from draftmark.workload.draw import Draw

PLACE = re.compile(
    r"(?P<article>\b[Aa] )?\{\{(?:(?P<low>\d+)\.\.(?P<high>\d+)|(?P<name>\w+))(?: (?P<label>\w+))?\}\}"
)
SHORT = {
    "capital": tuple("ABCDEFGHJKLMNPRSTUVWXYZ"),
    "hexdigit": tuple("0123456789ABCDEF"),
    "sign": ("", "-"),
    "unit": ("km", "miles"),
}


@cache
def data_text(name: str) -> str:
    """Text of one of the package's own data files."""
    return files("draftmark.workload").joinpath("data", name).read_text(encoding="utf-8")


@cache
def lists() -> Mapping[str, tuple[str, ...]]:
    """Every word list by its name."""
    loaded: dict[str, str] = yaml.safe_load(data_text("words.yaml"))
    return {name: tuple(words.split()) for name, words in loaded.items()} | SHORT


def like(pattern: str, word: str) -> str:
    """``word`` in the case of ``pattern``: ``ENTITY`` gives capitals, ``Entity`` a capital first letter."""
    if pattern.isupper():
        return word.upper()
    return word[:1].upper() + word[1:] if pattern[:1].isupper() else word


class _Filler:
    """The values of one template so far."""

    def __init__(self, draw: Draw, lists: Mapping[str, Sequence[str]]) -> None:
        self.draw = draw
        self.lists = lists
        self.words: dict[str, str] = {}
        self.numbers: dict[str, int] = {}

    def __call__(self, match: re.Match[str]) -> str:
        article, name = match["article"] or "", match["name"]
        if name is None:
            return article + self._number(int(match["low"]), int(match["high"]), match["label"])
        if name in self.numbers:
            return f"{article}{self.numbers[name]}"
        word = like(name, self._word(name.lower(), match["label"]))
        return f"{article[0]}n {word}" if article and word[0] in "aeiouAEIOU" else article + word

    def _number(self, low: int, high: int, label: str | None) -> str:
        number = self.draw.between(low, high)
        if label is not None:
            number = self.numbers.setdefault(label, number)
        return str(number)

    def _word(self, name: str, label: str | None) -> str:
        key = f"{name} {label}" if label else name
        if key not in self.words:
            taken = set(self.words.values())
            self.words[key] = self.draw.pick(_free(self.lists[name], taken))
        return self.words[key]


def _free(words: Sequence[str], taken: set[str]) -> Sequence[str]:
    return [word for word in words if word not in taken] or words


def fill(template: str, draw: Draw) -> tuple[str, dict[str, int]]:
    """A template with every place filled, and its labelled numbers; see :func:`fill_all`."""
    (text,), numbers = fill_all((template,), draw)
    return text, numbers


def fill_all(
    templates: Iterable[str], draw: Draw, more: Mapping[str, Sequence[str]] | None = None
) -> tuple[list[str], dict[str, int]]:
    """Templates with every place filled, with the same words in all of them, and the labelled numbers.

    ``{{city}}`` is a word of the list ``city``, the same one wherever it stands; ``{{city b}}`` is another.
    ``{{Entity}}`` and ``{{ENTITY}}`` are the word of ``{{entity}}`` in capitals. ``{{12..40}}`` is a number,
    a new one at each place; ``{{12..40 boxes}}`` is one number, which ``{{boxes}}`` repeats. "A" before a
    word becomes "an" where it has to. ``more`` has further lists.
    """
    filler = _Filler(draw, {**lists(), **(more or {})})
    return [PLACE.sub(filler, template) for template in templates], filler.numbers
