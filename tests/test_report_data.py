"""The report's data files: a row for each cell, a row for each request."""

import csv
import io
import subprocess
import sys
from typing import Any

import pytest

import sample_results
from draftmark import report
from draftmark.compare import compare
from draftmark.metrics import METRICS
from draftmark.schema import CampaignResult, Comparison
from test_report import HOSTILE, with_text
from trees import Arm, ar, code, tree

SMALL, BIG = sample_results.quickstart(), sample_results.big()


def rows(result: CampaignResult, comparison: Comparison) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(report.cells_csv(result, comparison))))


def test_every_planned_cell_is_one_row() -> None:
    """Each planned cell is there once, also if it failed or never ran, and every metric is a column."""
    result, _ = BIG
    found = rows(*BIG)
    planned = {(service.id, cell.id) for service in result.matrix.services for cell in service.cells}
    assert sorted((row["service"], row["cell"]) for row in found) == sorted(planned)
    assert set(METRICS) <= set(found[0])
    assert {row["status"] for row in found} == {"ok", "failed", "not run"}


def test_a_baseline_measured_again_is_named_as_one() -> None:
    """Its rows come last and say what they repeat, so that nobody takes them for a method's."""
    result = tree([code()], [ar(), Arm("fast", 1.5), ar(repeats="ar-tp1")])
    found = [(row["method"], row["baseline"], row["repeats"]) for row in rows(result, compare(result))]
    assert found == [("ar", "True", ""), ("fast", "False", ""), ("ar", "False", "ar-tp1")]


def test_numbers_are_exact_and_missing_ones_empty() -> None:
    """A number is read back as it was stored; what failed or was not measured has none."""
    result, comparison = BIG
    stored = {(cell.service, cell.cell.id): cell for cell in result.cells}
    speedups = {(s.service, s.cell): s for s in comparison.speedups}
    for row in rows(*BIG):
        cell = stored.get((row["service"], row["cell"]))
        metrics = cell.metrics if cell and cell.status == "ok" else {}
        assert {key: float(row[key]) for key in METRICS if row[key]} == metrics
        speedup = speedups.get((row["service"], row["cell"]))
        assert row["speedup"] == (repr(speedup.ratio.value) if speedup else "")


def test_failure_is_named() -> None:
    """A failed cell's row has its diagnosis."""
    failed = [row for row in rows(*BIG) if row["status"] == "failed"]
    assert [row["diagnosis"] for row in failed] == ["server-died"]


@pytest.mark.parametrize("text", [*HOSTILE, "=cmd|' /C calc'!A0", "+1", "@x", "-2", 'a\r\n"b",c'])
def test_text_is_one_field_and_no_formula(text: str) -> None:
    """Whatever a log says stays one field, can be stored, and is nothing that a spreadsheet would run."""
    csv_text = report.cells_csv(*with_text(text))
    csv_text.encode("utf-8")
    found = list(csv.DictReader(io.StringIO(csv_text, newline="")))
    assert len(found) == len(rows(*with_text("plain")))
    assert not any(
        (value or "").startswith(("=", "+", "-", "@", "\t", "\r")) for r in found for value in r.values()
    )


def table(data: bytes) -> Any:
    parquet = pytest.importorskip("pyarrow.parquet")
    return parquet.read_table(io.BytesIO(data))


def test_requests_as_parquet() -> None:
    """Every request is one row, with its text, its numbers and the arrival of each chunk."""
    pytest.importorskip("pyarrow")
    result, _ = SMALL
    found = table(report.requests_parquet(result)).to_pylist()
    assert len(found) == sum(map(len, result.records.values()))
    key, records = next(iter(result.records.items()))
    row = next(row for row in found if f"{row['service']}/{row['cell']}" == key)
    assert row["text"] == records[0].text
    assert row["chunk_t_s"] == [chunk.t_s for chunk in records[0].chunks]
    assert row["ttft_s"] == records[0].chunks[0].t_s


def test_cells_as_parquet_are_those_of_the_csv() -> None:
    """The Parquet file has the columns and rows of the CSV."""
    pytest.importorskip("pyarrow")
    found = table(report.cells_parquet(*BIG))
    assert found.num_rows == len(rows(*BIG))
    assert found.column_names == list(rows(*BIG)[0])


@pytest.mark.parametrize("text", HOSTILE)
def test_any_text_can_be_stored_as_parquet(text: str) -> None:
    """Half characters and controls do not keep a file from being written."""
    pytest.importorskip("pyarrow")
    result, comparison = with_text(text)
    assert table(report.requests_parquet(result)).num_rows > 0
    assert table(report.cells_parquet(result, comparison)).num_rows > 0


def test_without_pyarrow_it_says_what_to_install() -> None:
    """Where pyarrow is missing the error names the extra."""
    program = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from draftmark import report; from draftmark.errors import BadInput\n"
        "from draftmark.report.data import parquet\n"
        "try: parquet([])\n"
        "except BadInput as error: print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "draftmark[parquet]" in said
