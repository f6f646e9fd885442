"""The result tree: whole or not there, and never believed when it was cut or edited."""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import trees
from draftmark.errors import ResultError, StoreError
from draftmark.schema import (
    Cell,
    CellResult,
    Chunk,
    Chunks,
    EngineSpec,
    Method,
    ModelSpec,
    RequestRecord,
    Service,
)
from draftmark.store import ResultTree, Unusable

CELL = Cell(id="code-128", workload="prompts", prompts=("code",), max_tokens=128, requests=1, hash="c1")
SERVICE = Service(
    id="llamacpp-tp1-none",
    phase="tp1",
    host="local",
    tp=1,
    engine=EngineSpec(kind="llamacpp"),
    model=ModelSpec(target="smollm2-135m"),
    method=Method(name="none", kind="none"),
    context_needed=1152,
    max_running_requests=1,
    ready_timeout_s=60,
    hash="s1",
    cells=(CELL,),
)


def result(**changes: object) -> CellResult:
    given = {"metrics": {"decode_tok_s": 91.25, "mean_ttft_ms": 300.0}, **changes}
    return CellResult(
        service=SERVICE.id,
        cell=CELL,
        status="ok",
        started_at="2026-01-01T00:00:00+00:00",
        duration_s=1.5,
        **given,
    )


def record(text: str = "héllo\n") -> RequestRecord:
    return RequestRecord(
        request="code-0", prompt_id="code-0", kind="code", role="measured", start_s=0.0, max_tokens=128,
        chunks=Chunks([Chunk(t_s=0.1, text=text, tokens=1)]), output_tokens=1,
    )  # fmt: skip


@pytest.fixture
def tree(tmp_path: Path) -> ResultTree:
    return ResultTree(tmp_path / "results")


def cell_file(tree: ResultTree) -> Path:
    return tree.root / SERVICE.id / "code-128.json"


def test_what_was_written_is_read_back(tree: ResultTree) -> None:
    """A stored cell and its requests come back equal."""
    tree.write_cell(result(), [record(), record("two")])
    found = tree.cell(SERVICE, CELL)
    assert isinstance(found, CellResult)
    assert found.metrics == {"decode_tok_s": 91.25, "mean_ttft_ms": 300.0}
    assert tree.records(SERVICE.id, CELL.id) == (record(), record("two"))


def test_requests_are_read_when_they_are_looked_at(tree: ResultTree) -> None:
    """A loaded campaign gives a cell's requests as often as asked, and fails there once they are gone."""
    made = trees.tree([trees.code()], [trees.ar()])
    wanted = made.records["ar-tp1/code-256"]
    tree.create(made.info)
    tree.write_cell(made.cells[0], wanted)
    (found,) = tree.load(made.matrix, records=True).records.values()
    assert (len(found), tuple(found), found[-1], found[1:]) == (len(wanted), wanted, wanted[-1], wanted[1:])
    (late,) = tree.load(made.matrix, records=True).records.values()
    (tree.root / "ar-tp1" / "code-256.requests.jsonl.zst").unlink()
    with pytest.raises(ResultError, match="damaged request records"):
        list(late)


def test_a_cell_that_was_never_written_is_none(tree: ResultTree) -> None:
    """Absence is told apart from damage."""
    assert tree.cell(SERVICE, CELL) is None


@given(cut=st.floats(0, 0.999))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_truncated_cell_is_not_believed(tree: ResultTree, cut: float) -> None:
    """Whatever part of a cell's file is left, it does not count."""
    tree.write_cell(result(), [record()])
    whole = cell_file(tree).read_bytes().rstrip()
    cell_file(tree).write_bytes(whole[: int(cut * len(whole))])
    assert isinstance(tree.cell(SERVICE, CELL), Unusable)


@pytest.mark.parametrize(
    "edit",
    [
        lambda cell: cell["metrics"].update(decode_tok_s=191.25),
        lambda cell: cell["metrics"].pop("mean_ttft_ms"),
        lambda cell: cell.pop("checksum"),
        lambda cell: cell.update(schema_version=99),
        lambda cell: cell.update(extra=1),
    ],
)
def test_an_edited_cell_is_not_believed(tree: ResultTree, edit: object) -> None:
    """A number changed by hand, a missing key or another format version is noticed."""
    tree.write_cell(result(), [record()])
    content = json.loads(cell_file(tree).read_text())
    edit(content)  # type: ignore[operator]
    cell_file(tree).write_text(json.dumps(content))
    assert isinstance(tree.cell(SERVICE, CELL), Unusable)


def test_reformatting_a_cell_does_not_change_what_it_says(tree: ResultTree) -> None:
    """The checksum is of the content, not of its layout."""
    tree.write_cell(result(), [record()])
    cell_file(tree).write_text(json.dumps(json.loads(cell_file(tree).read_text()), sort_keys=True))
    assert isinstance(tree.cell(SERVICE, CELL), CellResult)


def test_damaged_requests_make_a_cell_unusable(tree: ResultTree) -> None:
    """A cell counts only with the requests that it was computed from."""
    tree.write_cell(result(), [record()])
    (tree.root / SERVICE.id / "code-128.requests.jsonl.zst").write_bytes(b"cut")
    assert tree.cell(SERVICE, CELL) == Unusable("its request records are missing or damaged")


def test_other_settings_do_not_count(tree: ResultTree) -> None:
    """A cell measured under another hash is measured again."""
    tree.write_cell(result(), [record()])
    other = msgspec.structs.replace(CELL, hash="c2")
    assert tree.cell(SERVICE, other) == Unusable("measured under other settings")


@contextmanager
def small_files(limit: int) -> Iterator[None]:
    """No file of this process may grow past ``limit`` bytes, as on a disk that is nearly full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_leaves_the_old_cell_whole(tree: ResultTree) -> None:
    """A write that fails is one clear error; what was there stays, and no temporary file is left."""
    tree.write_cell(result(), [record()])
    before = {path.name: path.read_bytes() for path in cell_file(tree).parent.iterdir()}
    with small_files(64), pytest.raises(StoreError, match="cannot write"):
        tree.write_cell(result(metrics={"decode_tok_s": 1.0}), [record(os.urandom(4000).hex())])
    assert {path.name: path.read_bytes() for path in cell_file(tree).parent.iterdir()} == before


def test_two_campaigns_cannot_share_a_folder(tree: ResultTree) -> None:
    """The second one is told that the folder is in use."""
    with tree.locked():
        code = (
            "import sys\nfrom pathlib import Path\nfrom draftmark.store import ResultTree\n"
            "with ResultTree(Path(sys.argv[1])).locked(): pass\n"
        )
        other = subprocess.run(
            [sys.executable, "-c", code, tree.root], capture_output=True, text=True, check=False
        )
    assert other.returncode != 0
    assert "another draftmark is running" in other.stderr


def test_a_folder_without_results_is_bad_input(tree: ResultTree) -> None:
    """Reading a folder that holds no campaign says so."""
    with pytest.raises(ResultError, match=r"no campaign\.json"):
        tree.info()


def test_an_earlier_log_is_kept(tree: ResultTree) -> None:
    """A second start of a service does not overwrite the log of the first."""
    tree.new_log("a").write_text("first")
    (tree.root / "a" / "telemetry.csv").write_text("samples")
    tree.new_log("a").write_text("second")
    assert (tree.root / "a" / "server-1.log").read_text() == "first"
    assert (tree.root / "a" / "server.log").read_text() == "second"
    assert (tree.root / "a" / "telemetry-1.csv").read_text() == "samples"
