"""Sessions: five turns that are true whatever the model replied, and scenario files of one's own."""

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from draftmark.errors import BadInput, PlanError
from draftmark.schema import SCENARIOS, Cell, Session
from draftmark.workload import check_files, work
from draftmark.workload.contexts import documents
from draftmark.workload.sessions import parse_scenario
from draftmark.workload.words import SHORT, lists

EACH = pytest.mark.parametrize("scenario", SCENARIOS)


def cell(scenario: str, **changes: object) -> Cell:
    spec: dict[str, object] = {
        "id": "agentic",
        "workload": "agentic",
        "max_tokens": 512,
        "repetitions": 3,
        "requests": 15,
        "scenario": scenario,
        "turns": 5,
    }
    return Cell(**(spec | changes))  # type: ignore[arg-type]


def sessions(scenario: str, **changes: object) -> tuple[Session, ...]:
    return work(cell(scenario, **changes), "measured").sessions


@EACH
def test_bundled_scenarios(scenario: str) -> None:
    """Each has five turns of the user, fills every place, and lets the model end its replies."""
    for made in sessions(scenario):
        assert len(made.turns) == 5
        assert [message.role for turn in made.turns for message in turn] == ["user"] * 5
        assert not any(re.search(r"\{\{\w", message.content) for turn in made.turns for message in turn)
        assert not made.ignore_eos


def test_no_two_sessions_begin_alike() -> None:
    """Sessions of all repetitions and scenarios differ in their first 16 characters, warm-up included."""
    works = [work(cell(scenario, repetitions=60, concurrency=60), "measured") for scenario in SCENARIOS]
    texts = [one.turns[0][0].content for made in works for one in made.sessions]
    texts += [one.messages[0].content for made in works for one in made.warmup]
    assert len({text[:16] for text in texts}) == len(texts) == 240


@EACH
def test_sessions_are_repeatable_and_differ_in_data(scenario: str) -> None:
    """The same cell gives the same sessions, the control too; repetitions have other names in later turns."""
    measured, control = work(cell(scenario), "measured"), work(cell(scenario), "control")
    assert measured == work(cell(scenario), "measured")
    assert [(one.prompt_id, one.turns, one.seed) for one in measured.sessions] == [
        (one.prompt_id, one.turns, one.seed) for one in control.sessions
    ]
    assert control.warmup == ()
    assert {one.id for one in measured.sessions}.isdisjoint(one.id for one in control.sessions)
    assert len({one.turns[2:] for one in measured.sessions}) == 3
    assert sessions(scenario, first_prompt=1)[0].turns == measured.sessions[1].turns


def test_fewer_and_more_turns() -> None:
    """A plan may ask for fewer turns; more than there are is an error that says how many there are."""
    assert len(sessions("data-pipeline", turns=2)[0].turns) == 2
    with pytest.raises(BadInput, match="has 5 turns, the plan asks for 6"):
        sessions("data-pipeline", turns=6)


# --- the data pipeline really runs, and runs wrong --------------------------------------------------


def said(made: Session) -> str:
    """Everything that the user writes in a session."""
    return "\n".join(message.content for turn in made.turns for message in turn)


class Pipeline:
    """The files of one session's first turn, in a folder, to be run."""

    def __init__(self, made: Session, folder: Path) -> None:
        first = made.turns[0][0].content
        blocks = re.findall(r"```\w*\n(.*?)```", first, re.DOTALL)
        names = ("etl.py", "monday.csv", "tuesday.csv", "customers.csv", "rates.json")
        self.files = dict(zip(names, blocks, strict=True))
        self.folder = folder
        self.server = re.findall(r"/srv/\w+", first)[0]
        for name, text in self.files.items():
            (folder / name).write_text(text)

    def run(self, *exports: str, fixed: Iterable[str] = ()) -> str:
        """What the script prints once the given defects are mended."""
        self.mend(fixed)
        return self.python("etl.py", "--customers", "customers.csv", "--rates", "rates.json", *exports)

    def run_twice(self, fixed: Iterable[str] = ()) -> str:
        """What Monday's load prints when it runs twice in one process."""
        self.mend(fixed)
        return self.python("-c", TWICE)

    def mend(self, fixed: Iterable[str]) -> None:
        script = self.files["etl.py"]
        for old, new in (FIXES[defect] for defect in fixed):
            assert script.count(old) == 1
            script = script.replace(old, new)
        (self.folder / "etl.py").write_text(script)

    def python(self, *command: str) -> str:
        """What a run prints, as a person on the server would see it."""
        done = subprocess.run(
            [sys.executable, "-B", *command], cwd=self.folder, capture_output=True, text=True, check=False
        )
        shown = re.sub(r'"[^"\n]*etl\.py"', f'"{self.server}/etl.py"', done.stdout + done.stderr)
        # Versions of Python mark the place of an error in their own ways.
        return re.sub(r"^[ ~^]*[~^]+[ ~^]*\n", "", shown, flags=re.MULTILINE).strip()


TWICE = """
import etl
for night in ("first", "second"):
    table, rejected = etl.run(["monday.csv"], "customers.csv", "rates.json")
    print(night, "run:", len(table.rows), "rows,", table.writes, "writes,", len(rejected), "rejected")
"""
BOTH = ("monday.csv", "tuesday.csv")
FIXES = {
    "day and month swapped": (
        'month, day, year = (int(part) for part in text.split("/"))',
        'day, month, year = (int(part) for part in text.split("/"))',
    ),
    "cents cut off": ("int(float(plain) * 100)", "round(float(plain) * 100)"),
    "memory between runs": (
        'seen=set()):\n    """The first record of each id; exports of two nights overlap."""\n',
        "):\n    seen = set()\n",
    ),
    "unknown customers lost": (
        "if region is not None:\n            record.region = region\n            joined.append(record)",
        'record.region = region or "unknown"\n        joined.append(record)',
    ),
    "missing rate guessed": (
        "    for record in records:\n        rate = rates.get(record.currency, 1.0)",
        "    records = [record for record in records if record.currency in rates]\n"
        "    for record in records:\n        rate = rates[record.currency]",
    ),
    "last batch lost": ("len(records) - size + 1", "len(records)"),
    "mean of nothing": ("total / len(valid)", "total / len(valid) if valid else 0"),
}
COLLEAGUE = ("day and month swapped", "last batch lost")
RIGHT = """
region    month      count       total      mean
east      2026-03        0        0.00      0.00
north     2026-02        5     1482.97    296.59
south     2026-02        1       64.35     64.35
unknown   2026-02        1       75.00     75.00
west      2026-02        1       14.62     14.62
west      2026-03        1       67.90     67.90
11 """.strip()
WRONG = {
    "day and month swapped": "tuesday.csv:6: bad day '28/02/2026'",
    "cents cut off": "north     2026-02        5     1482.95    296.59",
    "unknown customers lost": "\n10 ",
    "missing rate guessed": "south     2026-02        2      364.35    182.18",
    "last batch lost": "s in 2 writes, 2 lines rejected",
    "mean of nothing": "ZeroDivisionError: division by zero",
}


def pipeline(folder: Path, number: int = 0) -> Pipeline:
    return Pipeline(sessions("data-pipeline")[number], folder)


def test_script_is_about_two_hundred_lines(tmp_path: Path) -> None:
    """The script of the session is the size that it is said to be."""
    assert 190 <= pipeline(tmp_path).files["etl.py"].count("\n") <= 210


def test_mended_script_is_right(tmp_path: Path) -> None:
    """With all defects mended the script prints what was calculated by hand, the second time too."""
    made = pipeline(tmp_path)
    assert made.run(*BOTH, fixed=FIXES).startswith(RIGHT)
    first, second = made.run_twice(fixed=FIXES).splitlines()
    assert first.removeprefix("first") == second.removeprefix("second")


@pytest.mark.parametrize("defect", WRONG)
def test_each_defect_alone(tmp_path: Path, defect: str) -> None:
    """With only one defect left the output is wrong, and in the way in which that defect makes it wrong."""
    found = pipeline(tmp_path).run(*BOTH, fixed=FIXES.keys() - {defect})
    assert WRONG[defect] in found
    assert not found.startswith(RIGHT)


def test_memory_between_runs_alone(tmp_path: Path) -> None:
    """The one defect that a single run does not show makes the second load in a process lose everything."""
    made, fixed = pipeline(tmp_path), FIXES.keys() - {"memory between runs"}
    assert made.run(*BOTH, fixed=fixed).startswith(RIGHT)
    assert made.run_twice(fixed=fixed).splitlines()[1].startswith("second run: 0 rows")


@pytest.mark.parametrize("number", [0, 1])
def test_shown_output_is_real(tmp_path: Path, number: int) -> None:
    """What the session says that the script printed is what it prints, whatever names were filled in."""
    shown, made = said(sessions("data-pipeline")[number]), pipeline(tmp_path, number)
    for printed in (
        made.run(*BOTH),
        made.run("tuesday.csv"),
        made.run("monday.csv", fixed=COLLEAGUE),
        made.run(*BOTH, fixed=COLLEAGUE),
        made.run_twice(),
    ):
        assert printed in shown


# --- scenario files of one's own --------------------------------------------------------------------

OWN = """
about: plan a trip
words: {port: [Brest, Bari, Gdynia]}
turns:
  - user: Plan {{3..9 days}} days in {{port}}.
  - tool: "{{port}}: rain on {{2..3}} of {{days}} days"
    user: Now with the weather.
  - tool: "no trains from {{Port b}}\\0"
"""


def test_documented_scenario() -> None:
    """The example in the documentation is a valid scenario, and every word list is named there."""
    text = (Path(__file__).parents[1] / "docs/workloads.md").read_text()
    (example,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert len(parse_scenario(example, "example.yaml").turns) == 3
    assert [name for name in lists().keys() - SHORT.keys() if f"`{name}`" not in text] == []
    assert f"{len(documents())} files" in " ".join(text.split())


def test_own_scenario() -> None:
    """A scenario of one's own may bring words and tool results; values stay the same over its turns."""
    made = work(cell("trip.yaml", turns=3), "measured", files={"trip.yaml": OWN}).sessions[0]
    assert [[message.role for message in turn] for turn in made.turns] == [
        ["user"],
        ["tool", "user"],
        ["tool"],
    ]
    days, port = re.findall(r"Plan (\d) days in (\w+)\.", made.turns[0][0].content)[0]
    assert re.fullmatch(rf"{port}: rain on [23] of {days} days", made.turns[1][0].content)
    assert made.turns[2][0].content.removeprefix("no trains from ").rstrip("\0") in {
        "Brest",
        "Bari",
        "Gdynia",
    } - {port}


@pytest.mark.parametrize(
    ("text", "said_where", "hint"),
    [
        ("turns:\n  - {usr: hello}", "own.yaml:2: turns[0].usr: unknown key", "user"),
        ("about: x", "own.yaml:1: missing key 'turns'", "for example"),
        ("turns: []", "own.yaml:1: missing key 'turns'", "for example"),
        ("turns:\n  - user: hello\n  - {}", "own.yaml:3: turns[1]: expected 'user' or 'tool'", ""),
        ("turns:\n  - user: hello {{citty}}", "own.yaml:2: turns[0].user: {{citty}}", "did you mean 'city'?"),
        ("turns:\n  - user: '{{n}}'\n  - user: '{{1..2 n}}'", "own.yaml:2: turns[0].user: {{n}}", "known"),
        ("turns:\n  - user: '{{9..3}}'", "own.yaml:2: turns[0].user: {{9..3}}: expected the smaller", ""),
        ("turns:\n  - user: 5", "own.yaml:2: turns[0].user: expected text, got 5", "in quotes it is text"),
        ("words: {port: []}\nturns: [{user: '{{port}}'}]", "own.yaml:1: words.port: expected a list", ""),
        (
            "turns:\n  - user: '{{1..2 n}} {{N}}'",
            "own.yaml:2: turns[0].user: {{N}}: there is no word list",
            "n",
        ),
        ("words: {Port: [a]}\nturns: [{user: x}]", "own.yaml:1: words.Port: expected a word in small", ""),
        ("turns: [", "own.yaml:1: not valid YAML", ""),
    ],
)
def test_errors_in_scenario_files(text: str, said_where: str, hint: str) -> None:
    """An error names the file, the line and the key, and the nearest valid name where there is one."""
    with pytest.raises(PlanError) as caught:
        parse_scenario(text, "own.yaml")
    assert caught.value.message.startswith(said_where)
    assert hint in caught.value.hint


def test_unknown_scenario() -> None:
    """A cell whose scenario nobody handed over is an error that lists the known ones."""
    with pytest.raises(BadInput, match=r"there is no scenario 'other\.yaml'") as caught:
        check_files(cell("other.yaml"), {"trip.yaml": OWN})
    assert "cli-calculator, data-pipeline, trip.yaml" in caught.value.hint
