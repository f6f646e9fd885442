"""A server that already runs."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.engines import ENGINES, attach
from draftmark.engines.types import Launch
from draftmark.errors import BadInput
from draftmark.schema import EngineSpec, Message, Method, ModelSpec, Request, Service


def service(
    url: str | None = "http://127.0.0.1:9", key: str | None = None, own: dict[str, Any] | None = None
) -> Service:
    return Service(
        id="attach-tp1-live",
        phase="tp1",
        host="local",
        tp=1,
        engine=EngineSpec(kind="attach", url=url, api_key_env=key),
        model=ModelSpec(target="m"),
        method=Method(name="live", kind="speculative", params=own or {}),
        context_needed=100,
        max_running_requests=1,
        ready_timeout_s=5.0,
    )


def test_the_engine_is_listed() -> None:
    """The plan finds the engine by its kind, and a baseline can be named."""
    assert ENGINES["attach"] is attach
    assert not attach.METHODS["none"].speculative


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://h:8000", "http://h:8000"),
        ("http://h:8000/", "http://h:8000"),
        ("https://h/v1", "https://h"),
        ("https://h/team/llm/v1/", "https://h/team/llm"),
        ("http://[::1]:80/p", "http://[::1]:80/p"),
    ],
)
def test_base_urls(url: str, expected: str) -> None:
    """Prefixes and https are kept; the /v1 that clients are given is not doubled."""
    assert attach.base_url(service(url)) == expected
    assert attach.base_url(service("http://other", own={"url": url})) == expected


@pytest.mark.parametrize(
    "url",
    [
        None,
        "",
        "h:8000",
        "ftp://h",
        "http://",
        "http://h?key=1",
        "http://me:secret@h",
        "http://h:x",
        "http://[h",
    ],
)
def test_wrong_urls(url: str | None) -> None:
    """What is no base URL is refused, and a secret in it is not repeated."""
    with pytest.raises(BadInput, match="expected the base URL") as caught:
        attach.base_url(service(url))
    assert "secret" not in str(caught.value)


def test_key() -> None:
    """The key comes from the environment variable that the plan names; without it, that name is told."""
    assert attach.headers(service(), {"KEY": "x"}) == {}
    assert attach.headers(service(key="KEY"), {"KEY": "x"}) == {"Authorization": "Bearer x"}
    for environ in ({}, {"KEY": ""}):
        with pytest.raises(BadInput, match="KEY is not set"):
            attach.headers(service(key="KEY"), environ)


def test_nothing_is_started() -> None:
    """There is no command."""
    launch = Launch(port=1, served_name="s", model="m", draft=None, program=(), cores=1)
    with pytest.raises(BadInput, match="attach-tp1-live"):
        attach.command(service(), launch)


def test_request_body() -> None:
    """A body holds OpenAI's own fields alone, and ignore_eos where the plan asks for it."""
    request = Request(
        id="r", prompt_id="p", kind="code", messages=(Message(role="user", content="hi"),), max_tokens=9
    )
    path, body = attach.request_body(service(), request, "m")
    assert path == "/v1/chat/completions"
    assert set(body) == {"model", "messages", "stream", "stream_options", "max_tokens", "temperature", "seed"}
    assert attach.request_body(service(own={"ignore_eos": True}), request, "m")[1]["ignore_eos"] is True


def test_readiness_and_facts() -> None:
    """Ready when it lists its models, which are its only facts."""
    assert attach.readiness(service()).path == "/v1/models"
    page = '{"data": [{"id": "a"}, {"id": "b"}]}'
    assert attach.facts("", {"/v1/models": page}) == {"models": ["a", "b"]}


@given(st.text(max_size=20) | st.sampled_from(["[]", "null", '{"data": 3}', '{"data": [3, {}]}', "{}"]))
def test_facts_survive_any_page(page: str) -> None:
    """A page that is no list of models states no fact."""
    assert attach.facts("", {"/v1/models": page}) == {}


def test_no_acceptance() -> None:
    """OpenAI's API has no word on speculation, so nothing is claimed."""
    assert attach.request_speculation({"usage": {}}, 3) is None
    assert attach.speculation("", "", []) is None
