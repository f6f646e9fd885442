"""Tokenizers of other families, and where they come from: a server's endpoint or a file."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import pytest

from draftmark.campaign.servers import Ready
from draftmark.campaign.tokenizers import tokenizer_of
from draftmark.engines import ENGINES
from draftmark.errors import BadInput, ServiceError
from draftmark.schema import Cell, EngineSpec, Message, Method, ModelSpec, Service
from draftmark.workload import Tokenizer, read_tokenizer, work
from draftmark.workload.contexts import context, documents

FAMILIES = ("unigram", "wordpiece")
LENGTHS = (3_000, 30_000)


@cache
def trained(family: str) -> str:
    """A tokenizer.json of 2,000 pieces, learned from some of the documents that contexts are made of."""
    made = pytest.importorskip("tokenizers", reason="the tokenizers extra is not installed")
    if family == "unigram":  # as SentencePiece has it: words carry the space before them
        whole = made.Tokenizer(made.models.Unigram())
        whole.pre_tokenizer = made.pre_tokenizers.Metaspace()
        trainer = made.trainers.UnigramTrainer(
            vocab_size=2_000, unk_token="<unk>", special_tokens=["<s>", "<unk>"], show_progress=False
        )
    else:  # as BERT has it: white space is lost
        whole = made.Tokenizer(made.models.WordPiece(unk_token="<unk>"))
        whole.normalizer = made.normalizers.BertNormalizer()
        whole.pre_tokenizer = made.pre_tokenizers.BertPreTokenizer()
        trainer = made.trainers.WordPieceTrainer(
            vocab_size=2_000, special_tokens=["<s>", "<unk>"], show_progress=False
        )
    whole.train_from_iterator((text for _, text in documents()[::60]), trainer)
    start = made.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    whole.post_processor = start
    whole.enable_truncation(512)
    text: str = whole.to_str()
    return text


class Answers:
    """A server behind an address alone: it puts nine tokens around a message and tells its usage."""

    def __init__(self, family: str) -> None:
        self._encode = read_tokenizer(trained(family), "t.json")
        self.asked = 0

    def __call__(self, path: str, body: Any) -> Any:
        assert (path, body["max_tokens"]) == ("/v1/chat/completions", 1)
        self.asked += 1
        (message,) = body["messages"]
        return {"usage": {"prompt_tokens": 9 + len(self._encode(message["content"], False))}}


def ready(post: Any, kind: str = "attach") -> Ready:
    service = Service(
        id="s",
        phase="tp1",
        host="local",
        tp=1,
        engine=EngineSpec(kind=kind),  # type: ignore[arg-type]
        model=ModelSpec(target="m", tokenizer="t.json"),
        method=Method(name="m", kind="none"),
        context_needed=1,
        max_running_requests=1,
        ready_timeout_s=1,
    )
    return Ready(
        service=service,
        base_url="",
        headers={},
        served_name="m-1",
        get=str,
        post=post,
        flush=lambda: None,
        alive=lambda: True,
        died=lambda: pytest.fail("it lives"),
        facts={},
        adjusted={},
        ready_s=None,
    )


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("length", LENGTHS)
def test_contexts_are_exact_in_other_families(family: str, length: int) -> None:
    """Contexts have their length in tokenizers that are no byte-level BPE, with a template and without."""
    encode = read_tokenizer(trained(family), "t.json")

    def count(messages: Sequence[Message]) -> int:
        return 9 + len(encode(messages[0].content, False))

    made = context(length, 0, 0, count)
    assert count(made.messages) == length
    assert made.text.count(str(made.answer)) == 1
    raw = Tokenizer(count, encode).count_raw
    assert raw(context(length, 1, 0, raw).messages) == length


@pytest.mark.parametrize("family", FAMILIES)
def test_a_file_counts_for_a_server_without_an_endpoint(family: str) -> None:
    """One tiny request tells what the template adds; contexts are then exact by the server's own count."""
    post, files = Answers(family), {"t.json": trained(family)}
    tokenizer = tokenizer_of(ready(post), files)
    cell = Cell(id="ctx", workload="context", max_tokens=8, requests=2, repetitions=2, length=3_000)
    requests = work(cell, tokenizer=tokenizer, files=files).requests
    assert post.asked == 1
    for request in requests:
        body = {"messages": [{"content": request.messages[0].content}], "max_tokens": 1}
        assert post("/v1/chat/completions", body)["usage"]["prompt_tokens"] == 3_000


def test_a_file_is_read_whatever_it_cuts() -> None:
    """Truncation that the file asks for is left out; special tokens come only where they are asked for."""
    encode = read_tokenizer(trained("unigram"), "t.json")
    plain, marked = encode("word " * 3_000, False), encode("word " * 3_000, True)
    assert len(plain) >= 3_000
    assert list(marked) == [0, *plain]


@pytest.mark.parametrize("text", ["", "{}", '{"model": 3}', "[1]"])
def test_what_is_no_tokenizer(text: str) -> None:
    """Another file is one error that names it."""
    pytest.importorskip("tokenizers", reason="the tokenizers extra is not installed")
    with pytest.raises(BadInput, match=r"t\.json: not a tokenizer"):
        read_tokenizer(text, "t.json")


def test_without_the_library_a_person_is_told_how_to_get_it() -> None:
    """Without the extra a tokenizer file is one error, with the command that installs it."""
    code = (
        "import sys; sys.modules['tokenizers'] = None\n"
        "from draftmark.workload import read_tokenizer\n"
        "read_tokenizer('{}', 't.json')"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "BadInput: t.json: reading it needs the library 'tokenizers'" in ended.stderr
    assert "pip install 'draftmark[tokenizers]'" in ended.stderr


def test_a_server_that_counts_nothing() -> None:
    """Without usage in its answer nothing is guessed."""
    pytest.importorskip("tokenizers", reason="the tokenizers extra is not installed")
    tokenizer = tokenizer_of(ready(lambda *_: {"choices": []}), {"t.json": trained("wordpiece")})
    with pytest.raises(ServiceError, match="does not say how many tokens"):
        tokenizer.count((Message(role="user", content="hi"),))


def post(path: str, body: Mapping[str, Any]) -> Any:
    """The tokenizer endpoints of engines: a token for each letter, 0 before them where asked for."""
    assert path == "/tokenize"
    text = body.get("prompt", body.get("content"))
    special = body.get("add_special_tokens", body.get("add_special"))
    return {"tokens": [0] * bool(special) + [ord(letter) for letter in str(text)], "count": 1}


@pytest.mark.parametrize("kind", ["sglang", "vllm", "llamacpp"])
def test_servers_give_token_ids(kind: str) -> None:
    """Each engine's endpoint is asked in its own words, with special tokens and without."""
    tokenizer = tokenizer_of(ready(post, kind), {})
    assert tokenizer.encode("ab", True) == (0, 97, 98)
    assert tokenizer.encode("ab", False) == (97, 98)
    assert tokenizer.count_raw((Message(role="user", content="abc"),)) == 4


def test_servers_that_give_none() -> None:
    """An answer without ids, or a server without an endpoint, is an error and never a guess."""
    for kind, answer in (("sglang", {"count": 3}), ("vllm", {"tokens": ["a"]}), ("vllm", [])):
        with pytest.raises(BadInput, match="token ids"):
            ENGINES[kind].encode(lambda *_, answer=answer: answer, "m", "ab", True)  # type: ignore[misc]
    with pytest.raises(BadInput, match="token ids"):
        tokenizer_of(ready(post), {}).encode("ab", True)
