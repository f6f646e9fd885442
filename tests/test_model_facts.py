"""Facts of models, from config files, indexes and GGUF headers."""

import io
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import known_models as known
import tiny_gguf
from draftmark.campaign.budget import known_facts
from draftmark.errors import BadInput
from draftmark.models.config import config_facts
from draftmark.models.facts import mismatches
from draftmark.models.gguf import read_gguf
from draftmark.models.read import facts_of, gguf_facts, index_bytes


@pytest.mark.parametrize(
    ("shape", "family", "billions"),
    [
        (known.SMOLLM2, "GQA", 0.1345),
        (known.LLAMA_8B, "GQA", 8.030),
        (known.QWEN3_8B, "GQA", 8.191),
        (known.MIXTRAL, "GQA, MoE", 46.70),
        (known.QWEN3_30B_A3B, "GQA, MoE", 30.53),
        (known.DEEPSEEK_V3, "MLA, MoE", 682.6),
        (known.NEMOTRON_H_8B, "GQA + Mamba2", 8.10),
        (known.QWEN36, "GQA + GDN", 27.32),
    ],
)
def test_the_shape_of_a_public_model_gives_its_family_and_size(
    shape: known.Shape, family: str, billions: float
) -> None:
    """Family and parameters come out as the model's makers state them, to within a hundredth."""
    facts = config_facts(known.text(shape))
    assert facts.family == family
    assert facts.parameters == pytest.approx(billions * 1e9, rel=0.01)
    assert facts.unknown == ()


def test_layers_are_counted_by_what_they_keep() -> None:
    """A hybrid's attention and recurrent layers are told apart, from an interval or from a pattern."""
    qwen, nemotron = (config_facts(known.text(shape)) for shape in (known.QWEN36, known.NEMOTRON_H_8B))
    assert [(kind.layers, kind.kv_heads) for kind in qwen.attention] == [(16, 4)]
    assert [(kind.layers, kind.heads, kind.groups) for kind in qwen.recurrent] == [(48, 48, 16)]
    assert [kind.layers for kind in nemotron.attention] == [4]
    assert [(kind.layers, kind.state_dim) for kind in nemotron.recurrent] == [(24, 128)]


@pytest.mark.parametrize(
    ("changed", "full", "sliding"),
    [
        ({"sliding_window": 4096}, 0, 32),
        ({"sliding_window": 4096, "use_sliding_window": False}, 32, 0),
        ({"sliding_window": 4096, "max_window_layers": 28}, 28, 4),
        ({"sliding_window": 1024, "sliding_window_pattern": 4}, 8, 24),
        ({"layer_types": ["sliding_attention", "full_attention"] * 16, "sliding_window": 128}, 16, 16),
    ],
)
def test_windows_follow_each_way_of_stating_them(changed: dict[str, Any], full: int, sliding: int) -> None:
    """Layers with a window are told from those without, however the config states it."""
    facts = config_facts(known.text(known.LLAMA_8B, **changed))
    windows = {kind.window is not None: kind.layers for kind in facts.attention}
    assert (windows.get(False, 0), windows.get(True, 0)) == (full, sliding)


def test_a_model_of_parallel_heads_keeps_both_in_every_layer() -> None:
    """Falcon-H1 keeps keys and a state in each layer."""
    facts = config_facts(
        known.text(
            known.LLAMA_8B,
            model_type="falcon_h1",
            num_hidden_layers=36,
            mamba_n_heads=24,
            mamba_d_head=64,
            mamba_d_state=256,
            mamba_n_groups=1,
            mamba_d_conv=4,
        )
    )
    assert (facts.kv_layers, facts.recurrent[0].layers) == (36, 36)


def test_a_layer_of_an_unknown_type_is_named_and_the_rest_is_known() -> None:
    """What a new type of layer keeps is not guessed; everything else still comes out."""
    facts = config_facts(known.text(known.LLAMA_8B, layer_types=["holographic"] * 32))
    assert facts.unknown == (
        "what a layer of type 'holographic' keeps",
        "what its layers keep of a token",
    )
    assert (facts.layers, facts.hidden, facts.parameters) == (32, 4096, None)


def test_a_recurrence_that_is_not_understood_is_not_taken_for_attention() -> None:
    """A key of a family that is not known here makes the facts say so."""
    assert "lru_width" in config_facts(known.text(known.LLAMA_8B, lru_width=2560)).unknown[0]


def test_the_index_counts_before_arithmetic(tmp_path: Path) -> None:
    """Bytes come from the index, else from the files, else from the shape, and it says which."""
    (tmp_path / "config.json").write_text(known.text(known.LLAMA_8B))
    assert "arithmetic" in facts_of(tmp_path).weight_source
    (tmp_path / "model.safetensors").write_bytes(b"\0" * 1000)
    assert (facts_of(tmp_path).weight_bytes, facts_of(tmp_path).weight_source) == (
        1000,
        "size of the safetensors files",
    )
    (tmp_path / "model.safetensors.index.json").write_text('{"metadata": {"total_size": 16060522496}}')
    assert facts_of(tmp_path).weight_bytes == 16_060_522_496


def test_quantised_weights_take_their_own_bits() -> None:
    """FP8 weights take a byte each, embeddings stay; a form that is not known leaves the bytes open."""
    fp8 = config_facts(known.text(known.QWEN3_235B))
    assert fp8.weight_bytes == pytest.approx(236e9, rel=0.01)
    assert fp8.quantization == "fp8"
    odd = config_facts(known.text(known.LLAMA_8B, quantization_config={"quant_method": "holographic"}))
    assert odd.weight_bytes is None


def test_a_drafter_is_matched_with_its_target() -> None:
    """Vocabulary, hidden size and depth of the target must be those that the drafter was made for."""
    target, draft = (config_facts(known.text(shape)) for shape in (known.QWEN36, known.QWEN36_DFLASH))
    assert draft.block_size == 16
    assert mismatches(target, draft) == ()
    other = config_facts(known.text(known.QWEN3_8B))
    assert len(mismatches(other, draft)) == 3
    assert mismatches(other, config_facts(known.text(known.QWEN3_8B, hidden_size=1024))) == ()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"a": 1,\n "b": }', "config.json:2: not JSON"),
        ("[1]", "expected a JSON object, got list"),
        (
            known.text(known.LLAMA_8B, num_key_value_heads="eight"),
            "num_key_value_heads: expected a whole number",
        ),
        (known.text(known.LLAMA_8B, num_hidden_layers=10**9), "num_hidden_layers: expected at most"),
        (known.text(known.LLAMA_8B, hidden_size=-1), "hidden_size: expected a whole number, got -1"),
    ],
)
def test_a_damaged_config_is_named_with_its_place(content: str, said: str) -> None:
    """A config that is no config gives one error with the line or the key."""
    with pytest.raises(BadInput, match=said):
        config_facts(content, "config.json")


def test_a_folder_without_a_model_says_what_was_expected(tmp_path: Path) -> None:
    """An empty folder, and a path that does not exist, are refused with what was expected."""
    with pytest.raises(BadInput, match=r"config\.json or one GGUF file"):
        facts_of(tmp_path)
    with pytest.raises(BadInput, match="cannot be read"):
        facts_of(tmp_path / "nothing.json")


def test_an_index_that_states_no_size_gives_none() -> None:
    """A size that is not stated stays unknown; a damaged index is refused."""
    assert index_bytes('{"weight_map": {}}') is None
    with pytest.raises(BadInput, match="not JSON"):
        index_bytes("{")


def test_what_every_service_asks_for_is_read_once(tmp_path: Path) -> None:
    """A campaign's services share their target: asked for again, its facts are those that were read."""
    path = tiny_gguf.write(tmp_path / "shared.gguf")
    assert known_facts(str(path)) == facts_of(path)
    assert known_facts(str(path)) is known_facts(str(path))


def test_a_gguf_file_gives_the_same_kind_of_facts(tmp_path: Path) -> None:
    """A real header gives layers, heads, vocabulary and the bytes of its tensors."""
    path = tiny_gguf.write(tmp_path / "tiny.gguf")
    facts = facts_of(tmp_path)
    assert (facts.layers, facts.hidden, facts.vocabulary) == (2, 64, 258)
    assert [(kind.layers, kind.kv_heads, kind.key_dim) for kind in facts.attention] == [(2, 4, 16)]
    assert facts.weight_bytes is not None
    assert facts.weight_bytes < path.stat().st_size
    assert facts.family == "MHA"


def gguf(architecture: str, **numbers: int | list[int]) -> bytes:
    """A header without tensors."""
    pairs = [tiny_gguf.pair("general.architecture", tiny_gguf.STRING, tiny_gguf.text(architecture))]
    for name, value in numbers.items():
        key = f"{architecture}.{name.replace('__', '.')}"
        if isinstance(value, int):
            pairs.append(tiny_gguf.pair(key, tiny_gguf.U32, struct.pack("<I", value)))
        else:
            packed = struct.pack(f"<IQ{len(value)}i", 5, len(value), *value)
            pairs.append(tiny_gguf.pair(key, tiny_gguf.ARRAY, packed))
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(pairs)) + b"".join(pairs)


def test_a_hybrid_gguf_tells_its_layers_apart() -> None:
    """A GGUF of the Qwen3.5 family gives the same state as its config, MTP layers apart."""
    header = gguf(
        "qwen35",
        block_count=65,
        nextn_predict_layers=1,
        embedding_length=5120,
        attention__head_count=24,
        attention__head_count_kv=4,
        attention__key_length=256,
        attention__value_length=256,
        full_attention_interval=4,
        ssm__inner_size=6144,
        ssm__state_size=128,
        ssm__time_step_rank=48,
        ssm__group_count=16,
        ssm__conv_kernel=4,
    )
    facts = gguf_facts(read_gguf(io.BytesIO(header), "q.gguf"), "q.gguf")
    config = config_facts(known.text(known.QWEN36))
    assert facts.attention == config.attention
    assert facts.recurrent[0].state_numbers() == config.recurrent[0].state_numbers()
    assert facts.recurrent[0].channels() == config.recurrent[0].channels() == 10240
    assert facts.mtp_layers == 1


def test_a_gguf_with_heads_by_layer_counts_the_layers_without() -> None:
    """Layers whose KV heads are 0 are the recurrent ones."""
    header = gguf(
        "nemotron_h",
        block_count=4,
        embedding_length=4096,
        attention__head_count=32,
        attention__head_count_kv=[0, 8, 0, 0],
        attention__key_length=128,
        ssm__inner_size=8192,
        ssm__state_size=128,
        ssm__time_step_rank=128,
        ssm__group_count=8,
        ssm__conv_kernel=4,
    )
    facts = gguf_facts(read_gguf(io.BytesIO(header), "n.gguf"), "n.gguf")
    assert [kind.layers for kind in facts.attention] == [1]
    assert [(kind.kind, kind.layers) for kind in facts.recurrent] == [("Mamba2", 3)]


@given(
    st.dictionaries(
        st.sampled_from(sorted(known.QWEN36_TEXT)),
        st.none()
        | st.integers(-3, 9)
        | st.floats(allow_nan=False)
        | st.text(max_size=3)
        | st.lists(st.integers(), max_size=2),
        max_size=4,
    )
)
def test_no_config_makes_it_crash(changed: dict[str, Any]) -> None:
    """Whatever the keys hold, there are facts or one error."""
    try:
        facts = config_facts(json.dumps(known.QWEN36_TEXT | changed))
    except BadInput:
        return
    assert facts.parameters is None or facts.parameters >= 0
