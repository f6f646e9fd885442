"""How far a start had come, by the lines that mark its progress, and from which engine a log is."""

from collections.abc import Mapping

from draftmark.diagnose.log import Log

STARTING = "starting"
LOADING = "loading the weights"
CACHES = "setting up the caches"
CAPTURE = "capturing CUDA graphs"
WARMUP = "warming up"
SERVING = "serving"

PHASES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "sglang": (
        ("Load weight begin", LOADING),
        ("Load weight end", CACHES),
        ("Memory pool end", CAPTURE),
        ("max_total_num_tokens=", WARMUP),
        ("The server is fired up and ready to roll!", SERVING),
    ),
    "vllm": (
        ("Starting to load model", LOADING),
        ("Model loading took", CACHES),
        ("Available KV cache memory", CAPTURE),
        ("Graph capturing finished in", WARMUP),
        ("Application startup complete", SERVING),
    ),
    "llamacpp": (
        ("loading model", "loading the model"),
        ("initializing, n_slots", CACHES),
        ("listening on http", SERVING),
    ),
}
"""(text, what the engine does from there on), by engine."""

_ORIGINS: Mapping[str, tuple[str, ...]] = {
    "sglang": ("server_args=ServerArgs(", "sglang/srt/", "sglang.launch_server", "sglang serve", "sglang::"),
    "vllm": ("vLLM API server version", "vllm serve", "/vllm/", "(EngineCore", "(APIServer pid=", "vllm.v1."),
    "llamacpp": ("xllamacpp", "llama_launcher", "srv  ", "llama_model_load", "ggml_", "llama_context"),
}


def guess_engine(log: Log) -> str | None:
    """The engine whose own words come first in a log; None where none of them does."""
    firsts = ((log.text.find(word), engine) for engine, words in _ORIGINS.items() for word in words)
    return min(((at, engine) for at, engine in firsts if at >= 0), default=(0, None))[1]


def phase(log: Log, engine: str | None, before: int) -> str:
    """What the server was doing when the line at offset ``before`` was written."""
    known = PHASES.get(engine or "", ())
    last = max(((log.text.rfind(text, 0, before), name) for text, name in known), default=(-1, ""))
    return last[1] if last[0] >= 0 else STARTING


def ready_at(log: Log, engine: str | None) -> int | None:
    """Offset of the line that says that the server is ready; None where it never was."""
    tables = [table for name, table in PHASES.items() if engine in (None, name)]
    marks = [log.text.find(table[-1][0]) for table in tables]
    # SGLang warms up whatever answers on its port, so it can call itself ready after it failed to bind it.
    if "error while attempting to bind on address" in log.text:
        return None
    return min((at for at in marks if at >= 0), default=None)
