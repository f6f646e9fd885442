"""A commented first plan for the machine at hand."""

import re
from collections.abc import Collection, Mapping
from typing import Any

from draftmark.plan.document import parse

DEFAULT_NAME = "first"
"""Of a plan whose file has no name to go by."""

HEAD = """\
# A draftmark plan: which servers to start, and what to measure on each.
#   draftmark plan FILE     shows what it starts and measures; starts nothing
#   draftmark run FILE      measures it; after an interruption the same command goes on
# This machine: {machine}.

name: {name}
description: Which way of decoding is fastest here?
"""

CPU = """
engine: {kind: llamacpp}               # llama.cpp, from `pip install 'draftmark[llamacpp]'` or on the PATH

model:
  target: smollm2-135m                 # small, fetched once; or the path of a .gguf file
  # draft: /models/draft.gguf          # for the kinds that need a draft model

methods:                               # one server start for each
  - {name: none, kind: none}           # plain decoding, what the others are compared with
  - {name: ngram-simple, kind: ngram-simple}
  - {name: ngram-mod, kind: ngram-mod}
  # A list of values is one method for each; the name says which:
  # - {name: "map-m{size_m}", kind: ngram-map-k4v, size_n: 4, size_m: [4, 8, 16]}
"""

GPU = """
engine:
  kind: {engine}
  # python: /opt/venv/bin/python       # the interpreter that has {engine}; draftmark's own when not given
  # env: {{CUDA_DEVICE_MAX_CONNECTIONS: "1"}}

model:
  target: Qwen/Qwen3-8B                # a hub id or a folder
  # draft: my/drafter                  # for the kinds that need a draft model
  # served_name: qwen

methods:                               # one server start for each, on each degree below
  - {{name: ar, kind: none}}             # plain decoding, what the others are compared with
  - {ngram}
  # A list of values is one method for each; the name says which:
  # - {several}
  # - {dflash}

tensor_parallel: {degrees!s:<22}# GPUs per server; the model's heads must divide by it
"""

BY_ENGINE = {
    "sglang": {
        "ngram": "{name: ngram, kind: ngram}         # drafts from earlier text; needs no draft model",
        "several": '{name: "ngram-{num_draft_tokens}", kind: ngram, num_draft_tokens: [4, 8, 16]}',
        "dflash": "{name: dflash, kind: dflash, draft: my/drafter}",
        "flag": "{attention-backend: triton}",
    },
    "vllm": {
        "ngram": "{name: ngram, kind: ngram, num_speculative_tokens: 4}   # needs no draft model",
        "several": '{name: "ngram-{num_speculative_tokens}", kind: ngram, num_speculative_tokens: [2, 8]}',
        "dflash": "{name: dflash, kind: dflash, draft: my/drafter, num_speculative_tokens: 15}",
        "flag": "{block-size: 32}",
    },
}

CPU_WORK = """
workloads:                             # so small a model soon repeats itself; larger ones take 256 and more
  - {kind: prompts, prompts: [code, json, creative], max_tokens: [64], repetitions: 5}
  # - {kind: concurrency, levels: [1, 2, 4], max_tokens: 64}              # so many requests at a time
  # - {kind: concurrency, rates: [0.5, 1], max_tokens: 64}                # requests per second
  # - {kind: context, lengths: [1k, 3k], max_tokens: 64}                  # prompts of exact length
  # - {kind: agentic, scenarios: [cli-calculator], turns: 5}              # sessions that grow
"""

GPU_WORK = """
workloads:
  - {kind: prompts, prompts: [code, json, creative], max_tokens: [256, 1024], repetitions: 5}
  - {kind: concurrency, levels: [1, 2, 4, 8], max_tokens: 256}            # so many requests at a time
  # - {kind: concurrency, rates: [0.5, 1, 2], max_tokens: 256}            # requests per second
  # - {kind: context, lengths: [3k, 30k], max_tokens: 256}                # prompts of exact length
  # - {kind: agentic, scenarios: [cli-calculator], turns: 5}              # sessions that grow
"""

TAIL = """
# server:                              # the same for every method
#   context_length: {context:<17}  # the longest request of the workloads when not given
#   max_running_requests: 8            # the largest concurrency above when not given
#   {setting}
#   args: {flag:<29}# any flag of the engine, without its dashes

# select:                              # narrows the grid; for each cell the first rule that matches decides
#   - {{drop: {{prompt: creative, method: "{glob}"}}, why: known to be slow}}

# hosts:                               # this machine, with all its GPUs, when not given
#   here: {{gpus: {gpus}}}

baseline: {baseline}
drift: true                            # measure it again at the end: is the machine still what it was?
# slo: {{ttft_ms: 2000, tpot_ms: 50}}    # latency targets that a recommendation must meet
# on_failure: adjust                   # after a failed start, try once what the diagnosis advises
# seed: 0
"""

CPU_TAIL = {
    "baseline": "none",
    "glob": "ngram-*",
    "context": "8k",
    "flag": "{batch-size: 512}",
    "setting": "threads: 1                         # cores less one when not given",
}
GPU_TAIL = {
    "baseline": "ar",
    "glob": "ngram*",
    "context": "32k",
    "setting": "memory_fraction: {default: 0.85}   # or one per degree: {tp1: 0.80, default: 0.85}",
}


def starter(
    machine: Mapping[str, Any], engines_present: Collection[str] = (), stem: str = DEFAULT_NAME
) -> str:
    """Text of a valid plan, every optional section in it as a comment.

    Args:
        machine: facts as ``hosts.Host.machine`` gives them; ``cores`` and ``gpus`` are used where present.
        engines_present: kinds of engines found on the machine, the first of sglang and vllm is taken;
            llama.cpp where there is no GPU.
        stem: of the file's name; the plan's name is made of it.
    """
    gpus = len(machine.get("gpus") or ())
    head = HEAD.format(machine=_machine(machine), name=_name(stem))
    if not gpus:
        return head + CPU + CPU_WORK + TAIL.format(gpus=0, **CPU_TAIL)
    engine = next((kind for kind in BY_ENGINE if kind in engines_present), "sglang")
    words = BY_ENGINE[engine]
    work = GPU.format(engine=engine, degrees=_degrees(gpus), **words) + GPU_WORK
    return head + work + TAIL.format(gpus=gpus, flag=words["flag"], **GPU_TAIL)


def _name(stem: str) -> str:
    """A valid name as YAML has it: what would be a number or true is quoted."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).lstrip("._-") or DEFAULT_NAME
    return name if isinstance(parse(f"name: {name}", "").data["name"], str) else f'"{name}"'


def _degrees(gpus: int) -> list[int]:
    """Powers of two up to the number of GPUs: one, and the largest."""
    largest = 1 << (gpus.bit_length() - 1)
    return [1] if largest == 1 else [1, largest]


def _machine(machine: Mapping[str, Any]) -> str:
    gpus = [str(gpu.get("name", "GPU")) for gpu in machine.get("gpus") or ()]
    kinds = [f"{gpus.count(name)} × {name}" for name in dict.fromkeys(gpus)]
    cores = machine.get("cores")
    said = [f"{cores:g} cores"] if isinstance(cores, int | float) else []
    return " ".join(", ".join(said + (kinds or ["no GPU"])).split())
