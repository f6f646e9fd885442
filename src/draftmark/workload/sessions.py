"""Sessions of several turns from scenario files, each of whose repetitions has names and data of its own."""

from collections.abc import Mapping
from functools import cache
from typing import Annotated
from zlib import crc32

import msgspec

from draftmark.errors import BadInput, nearest
from draftmark.plan.document import Document, Path, parse
from draftmark.plan.shape import check
from draftmark.schema import SCENARIOS, Cell, Frozen, Message, Session
from draftmark.workload.draw import Draw
from draftmark.workload.prompts import opening, sampling_seed
from draftmark.workload.words import PLACE, data_text, fill_all, lists

ListName = Annotated[str, msgspec.Meta(pattern="^[a-z][a-z0-9_]*$", description="a word in small letters")]


class Turn(Frozen, frozen=True, kw_only=True):
    """What one turn adds."""

    user: str = ""
    tool: str = ""
    """Result of a tool that the model is taken to have called; sent before the user's text."""


class Scenario(Frozen, frozen=True, kw_only=True):
    """A scenario file."""

    about: str = ""
    words: dict[ListName, Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]] = msgspec.field(
        default_factory=dict
    )
    """Word lists of its own, beside those of the package."""
    turns: tuple[Turn, ...] = ()


_SHAPE = msgspec.inspect.type_info(Scenario)


def parse_scenario(text: str, source: str) -> Scenario:
    """The scenario in a YAML text; ``source`` names the file in errors.

    Raises:
        PlanError: ``source:line: key: what was expected``, with the nearest valid name.
    """
    document = parse(text, source)
    check(document, _SHAPE, document.data)
    scenario = msgspec.convert(document.data, Scenario)
    _check_turns(document, scenario)
    return scenario


def _check_turns(document: Document, scenario: Scenario) -> None:
    if not scenario.turns:
        raise document.error((), "missing key 'turns'", "for example turns: [{user: Write a calculator.}]")
    words, numbers = {*lists(), *scenario.words}, set[str]()
    for index, turn in enumerate(scenario.turns):
        if not turn.user and not turn.tool:
            raise document.error(("turns", index), "expected 'user' or 'tool' with some text")
        for key in ("tool", "user"):
            _check_places(document, ("turns", index, key), getattr(turn, key), words, numbers)


def _check_places(document: Document, at: Path, text: str, words: set[str], numbers: set[str]) -> None:
    """Every place names a list or a number that stands before it; adds the numbers of this text."""
    for place in PLACE.finditer(text):
        name, shown = place["name"], place[0][place[0].index("{") :]
        if name is None:
            if int(place["low"]) > int(place["high"]):
                raise document.error(at, f"{shown}: expected the smaller number first")
            numbers.add(place["label"] or "")
        elif name not in numbers and name.lower() not in words:
            hint = nearest(name, filter(None, words | numbers))
            raise document.error(at, f"{shown}: there is no word list '{name}'", hint)


@cache
def bundled(name: str) -> Scenario:
    """A scenario that ships with draftmark."""
    return parse_scenario(data_text(f"scenarios/{name}.yaml"), f"{name}.yaml")


def scenario_of(cell: Cell, files: Mapping[str, str]) -> Scenario:
    """The scenario that a cell names: from the text of a file, or a bundled one.

    Raises BadInput where there is none, or where it has fewer turns than the cell asks for.
    """
    name = cell.scenario or ""
    if name not in files and name not in SCENARIOS:
        raise BadInput(f"there is no scenario '{name}'", f"known: {', '.join((*SCENARIOS, *files))}")
    scenario = parse_scenario(files[name], name) if name in files else bundled(name)
    if len(scenario.turns) < (cell.turns or 1):
        raise BadInput(
            f"scenario '{name}' has {len(scenario.turns)} turns, the plan asks for {cell.turns}",
            f"set turns: {len(scenario.turns)}, or add turns to the scenario",
        )
    return scenario


def session(cell: Cell, scenario: Scenario, number: int) -> Session:
    """One session of a cell; no two of a campaign begin alike."""
    place = cell.first_prompt + number
    identity = f"{cell.scenario}-{place}-s{cell.seed}"
    return Session(
        id=f"measured-{number}",
        prompt_id=identity,
        scenario=cell.scenario or "",
        turns=turns(scenario, cell.scenario or "", place, cell.seed)[: cell.turns],
        max_tokens=cell.max_tokens,
        temperature=cell.temperature,
        seed=sampling_seed(identity),
    )


def turns(scenario: Scenario, name: str, place: int, seed: int) -> tuple[tuple[Message, ...], ...]:
    """Every turn's messages, filled with the words and numbers of one session."""
    texts = (text for turn in scenario.turns for text in (turn.tool, turn.user))
    filled, _ = fill_all(texts, Draw(name, place, seed), scenario.words)
    made = [_messages(*pair) for pair in zip(filled[::2], filled[1::2], strict=True)]
    start, *rest = made[0]
    first = f"{opening('agentic', first_opening(name) + place, seed)}\n{start.content}"
    return ((Message(role=start.role, content=first), *rest), *made[1:])


def _messages(tool: str, user: str) -> tuple[Message, ...]:
    result = (Message(role="tool", content=tool.strip()),) if tool else ()
    return (*result, Message(role="user", content=user.strip())) if user else result


def first_opening(name: str) -> int:
    """Where a scenario's openings begin, so that two scenarios do not open alike."""
    return 100 * (crc32(name.encode()) % 100)
