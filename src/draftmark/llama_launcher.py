"""Serve a GGUF with llama.cpp's own HTTP server out of the ``xllamacpp`` wheel, by ``llama-server``'s flags.

Run as a program: ``python llama_launcher.py --model model.gguf --port 8080``. It imports nothing of
draftmark, so any environment that has ``xllamacpp`` can run it. It ends at SIGTERM, at Ctrl-C, and when
the process that started it is gone.
Exit status: 0 after a stop, 1 when the server did not start, 2 for a wrong flag.
"""

import argparse
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

WATCH_S = 0.5
"""How often to look whether the parent is still there."""


class Refused(Exception):
    """The server cannot be started as asked; the message says why."""


def bindings() -> Any:
    """The ``xllamacpp`` module; Refused where it is not installed or cannot be loaded."""
    try:
        return import_module("xllamacpp")
    except ImportError as error:
        raise Refused(f"xllamacpp cannot be imported ({error}); pip install 'draftmark[llamacpp]'") from error


def member(enumeration: str, prefix: str, **spelled: str) -> Callable[[str], Any]:
    """A converter from the end of a member's name, in small letters, to the member; ``spelled`` renames."""

    def convert(text: str) -> Any:
        members = getattr(bindings(), enumeration).__members__
        name = prefix + spelled.get(text, text).upper().replace("-", "_").replace("+", "_")
        if name not in members:
            known = ", ".join(key.removeprefix(prefix).lower() for key in members)
            raise argparse.ArgumentTypeError(f"invalid value {text!r}; known: {known}")
        return members[name]

    convert.__name__ = enumeration
    return convert


def one_of(**values: Any) -> Callable[[str], Any]:
    """A converter from one of a few words to what it stands for."""

    def convert(text: str) -> Any:
        if text not in values:
            raise argparse.ArgumentTypeError(f"invalid value {text!r}; known: {', '.join(values)}")
        return values[text]

    return convert


def layers(text: str) -> int:
    """Layers to put on a GPU: a number, ``auto`` or ``all``."""
    return {"auto": -1, "all": -2}.get(text) or int(text)


def rates(text: str) -> list[float]:
    """Comma-separated numbers."""
    return [float(part) for part in text.split(",")]


def speculation_types(text: str) -> list[Any]:
    """Comma-separated names of ways to draft."""
    convert = member("common_speculative_type", "COMMON_SPECULATIVE_TYPE_")
    return [convert(name) for name in text.split(",")]


def template_arguments(text: str) -> dict[str, str]:
    """A JSON object, each of its values as JSON again."""
    return {key: json.dumps(value) for key, value in json.loads(text).items()}


def words(text: str) -> list[str]:
    """Comma-separated words."""
    return text.split(",")


cache_type = member("ggml_type", "GGML_TYPE_")

OPTIONS: tuple[tuple[str, str, Callable[[str], Any]], ...] = (
    ("--ctx-size -c", "n_ctx", int),
    ("--parallel -np", "n_parallel", int),
    ("--predict --n-predict -n", "n_predict", int),
    ("--batch-size -b", "n_batch", int),
    ("--ubatch-size -ub", "n_ubatch", int),
    ("--keep", "n_keep", int),
    ("--threads -t", "cpuparams.n_threads", int),
    ("--threads-batch -tb", "cpuparams_batch.n_threads", int),
    ("--threads-http", "n_threads_http", int),
    ("--poll", "cpuparams.poll", int),
    ("--poll-batch", "cpuparams_batch.poll", int),
    ("--port", "port", int),
    ("--cache-ram -cram", "cache_ram_mib", int),
    ("--cache-reuse", "n_cache_reuse", int),
    ("--ctx-checkpoints -ctxcp", "n_ctx_checkpoints", int),
    ("--checkpoint-min-step", "checkpoint_min_step", int),
    ("--main-gpu -mg", "main_gpu", int),
    ("--fit-ctx -fitc", "fit_params_min_ctx", int),
    ("--sse-ping-interval", "sse_ping_interval", int),
    ("--seed -s", "sampling.seed", int),
    ("--top-k", "sampling.top_k", int),
    ("--yarn-orig-ctx", "yarn_orig_ctx", int),
    ("--verbosity --log-verbosity -lv", "verbosity", int),
    ("--spec-draft-n-max", "speculative.draft.n_max", int),
    ("--spec-draft-n-min", "speculative.draft.n_min", int),
    ("--spec-draft-threads --threads-draft -td", "speculative.draft.cpuparams.n_threads", int),
    (
        "--spec-draft-threads-batch --threads-batch-draft -tbd",
        "speculative.draft.cpuparams_batch.n_threads",
        int,
    ),
    ("--spec-ngram-simple-size-n", "speculative.ngram_simple.size_n", int),
    ("--spec-ngram-simple-size-m", "speculative.ngram_simple.size_m", int),
    ("--spec-ngram-simple-min-hits", "speculative.ngram_simple.min_hits", int),
    ("--spec-ngram-map-k-size-n", "speculative.ngram_map_k.size_n", int),
    ("--spec-ngram-map-k-size-m", "speculative.ngram_map_k.size_m", int),
    ("--spec-ngram-map-k-min-hits", "speculative.ngram_map_k.min_hits", int),
    ("--spec-ngram-map-k4v-size-n", "speculative.ngram_map_k4v.size_n", int),
    ("--spec-ngram-map-k4v-size-m", "speculative.ngram_map_k4v.size_m", int),
    ("--spec-ngram-map-k4v-min-hits", "speculative.ngram_map_k4v.min_hits", int),
    ("--spec-ngram-mod-n-match", "speculative.ngram_mod.n_match", int),
    ("--spec-ngram-mod-n-min", "speculative.ngram_mod.n_min", int),
    ("--spec-ngram-mod-n-max", "speculative.ngram_mod.n_max", int),
    ("--temp --temperature", "sampling.temp", float),
    ("--top-p", "sampling.top_p", float),
    ("--min-p", "sampling.min_p", float),
    ("--repeat-penalty", "sampling.penalty_repeat", float),
    ("--rope-freq-base", "rope_freq_base", float),
    ("--rope-freq-scale", "rope_freq_scale", float),
    ("--yarn-ext-factor", "yarn_ext_factor", float),
    ("--yarn-attn-factor", "yarn_attn_factor", float),
    ("--yarn-beta-slow", "yarn_beta_slow", float),
    ("--yarn-beta-fast", "yarn_beta_fast", float),
    ("--slot-prompt-similarity -sps", "slot_prompt_similarity", float),
    ("--spec-draft-p-min --draft-p-min", "speculative.draft.p_min", float),
    ("--spec-synth-len", "speculative.synth_len", float),
    ("--model -m", "model.path", str),
    ("--api-prefix", "api_prefix", str),
    ("--chat-template", "chat_template", str),
    ("--slot-save-path", "slot_save_path", str),
    ("--spec-draft-model --model-draft -md", "speculative.draft.mparams.path", str),
    ("--lookup-cache-static -lcs", "speculative.ngram_cache.lookup_cache_static", str),
    ("--lookup-cache-dynamic -lcd", "speculative.ngram_cache.lookup_cache_dynamic", str),
    ("--timeout -to", "timeout_read timeout_write", int),
    ("--host", "hostnames", words),
    ("--alias -a", "model_alias", lambda text: set(words(text))),
    ("--api-key", "api_keys", words),
    ("--gpu-layers --n-gpu-layers -ngl", "n_gpu_layers", layers),
    ("--spec-draft-ngl --gpu-layers-draft -ngld", "speculative.draft.n_gpu_layers", layers),
    ("--spec-type", "speculative.types", speculation_types),
    ("--spec-synth-rates", "speculative.synth_rates", rates),
    ("--chat-template-file", "chat_template", lambda text: Path(text).read_text(encoding="utf-8")),
    ("--chat-template-kwargs", "default_template_kwargs", template_arguments),
    ("--fit", "fit_params", one_of(on=True, off=False)),
    ("--reasoning", "enable_reasoning", one_of(on=1, off=0, auto=-1)),
    ("--spec-draft-sampling", "speculative.draft.probabilistic", one_of(greedy=False, probabilistic=True)),
    ("--cache-type-k -ctk", "cache_type_k", cache_type),
    ("--cache-type-v -ctv", "cache_type_v", cache_type),
    ("--spec-draft-type-k --cache-type-k-draft -ctkd", "speculative.draft.cache_type_k", cache_type),
    ("--spec-draft-type-v --cache-type-v-draft -ctvd", "speculative.draft.cache_type_v", cache_type),
    (
        "--flash-attn -fa",
        "flash_attn_type",
        member("llama_flash_attn_type", "LLAMA_FLASH_ATTN_TYPE_", on="enabled", off="disabled"),
    ),
    ("--split-mode -sm", "split_mode", member("llama_split_mode", "LLAMA_SPLIT_MODE_")),
    ("--load-mode -lm", "load_mode", member("llama_load_mode", "LLAMA_LOAD_MODE_")),
    ("--rope-scaling", "rope_scaling_type", member("llama_rope_scaling_type", "LLAMA_ROPE_SCALING_TYPE_")),
    ("--reasoning-format", "reasoning_format", member("common_reasoning_format", "COMMON_REASONING_FORMAT_")),
)
"""A flag's names, the parameters of the server that it sets, and how its text becomes their value."""
SWITCHES = {
    "--metrics": ("endpoint_metrics", True),
    "--slots": ("endpoint_slots", True),
    "--no-slots": ("endpoint_slots", False),
    "--props": ("endpoint_props", True),
    "--ui --webui": ("ui", True),
    "--no-ui --no-webui": ("ui", False),
    "--warmup": ("warmup", True),
    "--no-warmup": ("warmup", False),
    "--kv-unified -kvu": ("kv_unified", True),
    "--no-kv-unified -no-kvu": ("kv_unified", False),
    "--kv-offload -kvo": ("no_kv_offload", False),
    "--no-kv-offload -nkvo": ("no_kv_offload", True),
    "--op-offload": ("no_op_offload", False),
    "--no-op-offload": ("no_op_offload", True),
    "--repack": ("no_extra_bufts", False),
    "--no-repack -nr": ("no_extra_bufts", True),
    "--cont-batching -cb": ("cont_batching", True),
    "--no-cont-batching -nocb": ("cont_batching", False),
    "--cache-prompt": ("cache_prompt", True),
    "--no-cache-prompt": ("cache_prompt", False),
    "--cache-idle-slots": ("cache_idle_slots", True),
    "--no-cache-idle-slots": ("cache_idle_slots", False),
    "--context-shift": ("ctx_shift", True),
    "--no-context-shift": ("ctx_shift", False),
    "--swa-full": ("swa_full", True),
    "--jinja": ("use_jinja", True),
    "--no-jinja": ("use_jinja", False),
    "--ignore-eos": ("sampling.ignore_eos", True),
    "--check-tensors": ("check_tensors", True),
    "--reuse-port": ("reuse_port", True),
    "--offline": ("offline", True),
    "--spec-draft-backend-sampling": ("speculative.draft.backend_sampling", True),
    "--no-spec-draft-backend-sampling": ("speculative.draft.backend_sampling", False),
}
"""A flag without a value, by its names: the parameter that it sets and what to."""


def parser() -> argparse.ArgumentParser:
    """Of the flags above, and of no abbreviation of them."""
    made = argparse.ArgumentParser(
        prog="llama_launcher.py",
        usage="%(prog)s --model FILE [flags as llama-server has them]",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    for names, target, convert in OPTIONS:
        made.add_argument(*names.split(), dest=target, type=convert, metavar="VALUE")
    for names, (target, value) in SWITCHES.items():
        made.add_argument(*names.split(), dest=target, action="store_const", const=value)
    made.add_argument("--version", action="store_true", default=False)
    return made


def configured(options: dict[str, Any]) -> Any:
    """The server's parameters, with ``options`` (dotted names, several apart by blanks) set in them."""
    params = bindings().CommonParams()
    options.setdefault("cpuparams_batch.n_threads", options.get("cpuparams.n_threads", -1))
    options.setdefault("port", 8080)
    for targets, value in options.items():
        for target in targets.split():
            *path, name = target.split(".")
            setattr(reduce(getattr, path, params), name, value)
    return params


def check_model(path: str) -> None:
    """Refused unless ``path`` is a readable GGUF file."""
    try:
        with Path(path).open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise Refused(f"failed to load model, '{path}': {error.strerror}") from error
    if magic != b"GGUF":
        raise Refused(f"failed to load model, '{path}': not a GGUF file")


def check_port(host: str, port: int) -> None:
    """Refused unless ``port`` can be bound."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise Refused(
            f"couldn't bind HTTP server socket, hostname: {host}, port: {port} ({error.strerror})"
        ) from error


def checked(params: Any) -> Any:
    """``params``, after what the library would only report as a bare failure; Refused with the cause."""
    if not params.model.path:
        raise Refused("--model is missing")
    check_model(params.model.path)
    if params.speculative.draft.mparams.path:
        check_model(params.speculative.draft.mparams.path)
    for host in params.hostnames:
        check_port(host, params.port)
    return params


def serve(params: Any) -> NoReturn:
    """Serve until told to stop, or until the parent is gone; Refused where the server does not start."""
    parent = os.getppid()
    print(f"xllamacpp {bindings().__version__}", flush=True)
    try:
        server = bindings().Server(params)
    except RuntimeError as error:
        raise Refused(f"llama.cpp did not start: {error}; the lines above say why") from error
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    while not stop.wait(WATCH_S) and os.getppid() == parent:
        pass
    print(f"stopped serving on {server.listening_address}", flush=True)
    # The library's own stop can wait for a stream for half a minute, and holds the interpreter meanwhile.
    os._exit(0)


def main(arguments: Sequence[str]) -> int:
    """Run with the arguments of a command line; returns the exit status."""
    options = vars(parser().parse_args(arguments))
    try:
        if options.pop("version"):
            print(f"version: {bindings().__version__} (xllamacpp)")
        else:
            serve(checked(configured(options)))
    except Refused as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
