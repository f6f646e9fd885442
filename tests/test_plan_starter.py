"""What a user gets to start from: the written plan, the JSON Schema and the page about plans."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from draftmark.engines import ENGINES, Launch
from draftmark.plan import expand, notes, read_plan, starter
from draftmark.schema import Plan

MACHINES = [
    ({}, ()),
    ({"cores": 2, "gpus": []}, ("vllm",)),
    ({"cores": 16.5, "gpus": [{"name": "Some GPU {96 GB}\n# x: y"}]}, ()),
    ({"cores": 64, "gpus": [{"name": "A"}] * 6}, ("vllm", "sglang")),
    ({"cores": 192, "gpus": [{"name": "A"}] * 8}, ("vllm",)),
]


@pytest.mark.parametrize(("machine", "engines"), MACHINES)
def test_a_starter_is_a_valid_plan(machine: dict[str, Any], engines: tuple[str, ...]) -> None:
    """Whatever the machine, the written plan reads, compares with a baseline and uses degrees that fit."""
    matrix = expand(read_plan(starter(machine, engines), "plan.yaml"))
    gpus = len(machine.get("gpus", ()))
    assert notes(matrix) == ()
    assert matrix.dropped == ()
    assert {service.tp for service in matrix.services} <= {1, 2, 4, 8}
    assert max(service.tp for service in matrix.services) <= max(gpus, 1)
    if not gpus:
        assert (matrix.plan.engine.kind, matrix.plan.model.target) == ("llamacpp", "smollm2-135m")
    elif engines:
        assert matrix.plan.engine.kind in engines


@pytest.mark.parametrize(
    ("stem", "name"),
    [
        ("my", "my"),
        ("-", "first"),
        ("été 2", "t-2"),
        (".x", "x"),
        ("12", "12"),
        ("1e5", "1e5"),
        ("null", "null"),
    ],
)
def test_a_starter_is_named_as_its_file(stem: str, name: str) -> None:
    """The plan's name, and with it the results' folder, is the file's stem, made valid."""
    assert read_plan(starter({}, (), stem), "plan.yaml").name == name


@pytest.mark.parametrize("engines", [(), ("llamacpp",), ("sglang",)])
def test_a_starter_asks_a_small_model_for_short_answers(engines: tuple[str, ...]) -> None:
    """The bundled model loops in longer ones: each cell has 64 tokens, as in the quickstart."""
    matrix = expand(read_plan(starter({"cores": 2}, engines), "plan.yaml"))
    assert {cell.max_tokens for service in matrix.services for cell in service.cells} == {64}


@pytest.mark.parametrize(("machine", "engines"), MACHINES)
def test_what_a_starter_teaches_is_valid(machine: dict[str, Any], engines: tuple[str, ...]) -> None:
    """With the comment signs taken away, every optional section reads, and all sections are there."""
    text = starter(machine, engines)
    head, body = text.split("\nname:", 1)
    plan = read_plan(
        "name:" + re.sub(r"(?m)^( *)# ( *(?:- \{|\w+:(?: \S|  |$)))", r"\1\2", body), "plan.yaml"
    )
    assert head.startswith("#")
    optional = {"slo", "select", "hosts", "server", "on_failure", "seed", "baseline"}
    assert all(re.search(rf"(?m)^(# )?{key}:", text) for key in optional)
    assert plan.slo
    assert plan.select
    assert plan.hosts
    assert plan.server.args
    assert len(plan.workloads) == 5
    assert any(isinstance(value, tuple) for spec in plan.methods for value in spec.params.values())
    for service in expand(plan).services:
        launch = Launch(port=1, served_name="m", model="m.gguf", draft="d.gguf", program=("server",), cores=2)
        assert ENGINES[service.engine.kind].command(service, launch).argv


def test_the_json_schema_is_up_to_date() -> None:
    """docs/plan.schema.json is what the types and the engines' tables say."""
    check = subprocess.run(
        [sys.executable, "scripts/make_schema.py", "--check"], capture_output=True, text=True
    )
    assert check.returncode == 0, check.stdout + check.stderr


def test_the_json_schema_knows_methods_as_they_are_written() -> None:
    """An editor gets each engine's kinds with their parameters, and no 'params'."""
    parts = json.loads(Path("docs/plan.schema.json").read_text())["$defs"]
    assert "params" not in parts["MethodSpec"]["properties"]
    for name, engine in ENGINES.items():
        kinds = {entry["const"] for entry in parts[f"{name}-method"]["properties"]["kind"]["oneOf"]}
        assert kinds == set(engine.METHODS)
        for rule in parts[f"{name}-method"]["allOf"]:
            params = engine.METHODS[rule["if"]["properties"]["kind"]["const"]].params
            assert set(rule["then"]["properties"]) == set(params)


SECTIONS = {
    "Plan": "plan",
    "Host": "hosts",
    "EngineSpec": "engine",
    "ModelSpec": "model",
    "ServerSpec": "server",
    "MethodSpec": "methods",
    "PromptsWorkload": "prompts",
    "ConcurrencyWorkload": "concurrency",
    "ContextWorkload": "context",
    "AgenticWorkload": "agentic",
    "TraceWorkload": "trace",
    "Rule": "select",
    "Match": "select",
    "Slo": "slo",
}


def fields_of(kind: msgspec.inspect.Type) -> Iterator[tuple[str, msgspec.inspect.Field]]:
    """(type, field) of every struct that a type is made of."""
    match kind:
        case msgspec.inspect.StructType(cls=cls, fields=fields):
            for field in fields:
                yield cls.__name__, field
                yield from fields_of(field.type)
        case msgspec.inspect.UnionType(types=types):
            for inner in types:
                yield from fields_of(inner)
        case msgspec.inspect.Metadata(type=inner) | msgspec.inspect.VarTupleType(item_type=inner):
            yield from fields_of(inner)
        case msgspec.inspect.DictType(value_type=inner):
            yield from fields_of(inner)


def stated(default: object) -> str:
    """How the page writes a default; nothing where it is said in words."""
    if isinstance(default, tuple) and len(default) in (1, 2):
        return f"`[{', '.join(map(str, default))}]`"
    if isinstance(default, float):
        return f"`{default:g}`"
    return f"`{default}`" if default and isinstance(default, int | str) else ""


def test_the_page_about_plans_names_every_key() -> None:
    """docs/plan.md has a row for each key of each section, with the default that the types have."""
    page = Path("docs/plan.md").read_text()
    parts = re.findall(r"(?ms)^## `(\w+)`.*?$(.*?)(?=^## |\Z)", page)
    rows = {
        (section, key): default
        for section, text in parts
        for key, default in re.findall(r"(?m)^\| `(\w+)` \|[^|]*\|([^|]*)\|", text)
    }
    for owner, field in fields_of(msgspec.inspect.type_info(Plan)):
        if (owner, field.name) == ("MethodSpec", "params"):
            continue
        said = rows[SECTIONS[owner], field.name]
        assert stated(field.default) in said
        assert ("required" in said) == field.required


def test_every_example_on_the_page_is_valid() -> None:
    """Each whole plan in docs/plan.md reads, and so do the plans that come with the project."""
    page = Path("docs/plan.md").read_text()
    whole = [block for block in re.findall(r"(?s)```yaml\n(.*?)```", page) if block.startswith("name:")]
    assert whole
    for text in [*whole, *(path.read_text() for path in Path("plans").glob("*.yaml"))]:
        assert expand(read_plan(text, "plan.yaml")).services
