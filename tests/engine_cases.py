"""Services and command lines for the tests of engines that are started with flags."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from draftmark.engines import Command, Launch
from draftmark.schema import EngineSpec, Method, ModelSpec, RequestRecord, Service, Speculation

GOLDEN = Path(__file__).parent / "golden"
LAUNCH = Launch(
    port=30001,
    served_name="served-1",
    model="/models/target",
    draft=None,
    program=("/opt/venv/bin/python",),
    cores=8,
)
DRAFTED = replace(LAUNCH, draft="/models/draft")


def service(engine: str, kind: str, params: Mapping[str, Any] | None = None, **fields: Any) -> Service:
    method = Method(name="m", kind=kind, params=dict(params or {}), args=fields.pop("method_args", {}))
    spec = EngineSpec(kind=engine, version=fields.pop("version", None), binary=fields.pop("binary", None))
    common: dict[str, Any] = {
        "id": "s",
        "phase": "tp1",
        "host": "local",
        "tp": 1,
        "model": ModelSpec(target="target"),
        "context_needed": 2300,
        "max_running_requests": 8,
        "ready_timeout_s": 900.0,
    }
    return Service(engine=spec, method=method, **common | fields)


def shown(command: Command) -> str:
    """The command as it is stored: environment, program, then each flag with its values on a line."""
    lines = [f"{name}={value}" for name, value in sorted(command.env.items())]
    words = " ".join(command.argv).replace(" --", "\n  --")
    return "\n".join([*lines, words])


def stored(engine: str) -> dict[str, str]:
    """The golden commands of an engine by the name of their case."""
    blocks = (GOLDEN / f"{engine}.txt").read_text().split("\n\n")
    return dict(block.removeprefix("# ").strip("\n").split("\n", 1) for block in blocks)


def store(engine: str, commands: Mapping[str, Command]) -> None:
    """Write the golden commands of an engine anew."""
    blocks = [f"# {name}\n{shown(command)}" for name, command in commands.items()]
    (GOLDEN / f"{engine}.txt").write_text("\n\n".join(blocks) + "\n")


def record(output_tokens: int, speculation: Speculation | None, **fields: Any) -> RequestRecord:
    common: dict[str, Any] = {
        "request": "r",
        "prompt_id": "p",
        "kind": "code",
        "role": "measured",
        "start_s": 0.0,
        "max_tokens": output_tokens,
        "output_tokens": output_tokens,
        "speculation": speculation,
    }
    return RequestRecord(**common | fields)
