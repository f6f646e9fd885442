"""How SGLang 0.5.17 and 0.5.23 fail: memory, ports, processes."""

from draftmark.diagnose.adjust import (
    fewer_requests,
    less_memory_or_requests,
    memory_as_told,
    more_memory,
)
from draftmark.diagnose.sglang_settings import SETTINGS
from draftmark.diagnose.signature import Signature

_STATE = (
    "raise server.memory_fraction or tensor_parallel, draft fewer tokens, "
    "or set mamba-ssm-dtype: bfloat16 or disable-radix-cache: true"
)
_READ = "read the lines above"

SGLANG = (
    *SETTINGS,
    # --- memory
    Signature(
        "gpu-out-of-memory",
        "root",
        "Capture cuda graph failed: ",
        "the GPU ran out of memory while CUDA graphs were captured",
        "lower server.memory_fraction, max_running_requests or cuda-graph-max-bs-decode",
        r"Capture cuda graph failed: .*out of memory",
        less_memory_or_requests,
    ),
    Signature(
        "graph-capture",
        "root",
        "Capture cuda graph failed: ",
        "CUDA graphs could not be captured, not for want of memory: {why}",
        "try another attention backend or dtype; cuda-graph-backend-decode: disabled is the last resort",
        r"Capture cuda graph failed: (?P<why>.*)",
    ),
    Signature(
        "graph-capture",
        "root",
        "Fail when using backend: ",
        "CUDA graphs for prefill could not be captured with the backend {backend}",
        "set cuda-graph-backend-prefill: disabled",
        r"Fail when using backend: (?P<backend>\S+) for prefill runner",
    ),
    Signature(
        "weights-too-large",
        "root",
        "Loaded weights leave no GPU memory for the KV cache",
        "the weights, the draft's included, do not fit into the fraction {fraction} of the GPU; "
        "it takes more than {least}",
        "raise server.memory_fraction or tensor_parallel, or see what else is on the GPU",
        r"--mem-fraction-static=(?P<fraction>[\d.]+\d)\b.*?--mem-fraction-static above (?P<least>[\d.]+\d)",
        memory_as_told,
    ),
    Signature(
        "weights-too-large",
        "root",
        "Loaded weights leave no GPU memory for the KV cache",
        "the weights, the draft's included, leave no room for a KV cache",
        "raise server.memory_fraction or tensor_parallel, or see what else is on the GPU",
        adjust=more_memory,
    ),
    Signature(
        "no-kv-memory",
        "root",
        "Not enough memory. Please try to increase --mem-fraction-static",
        "nothing is left for the KV cache after weights and recurrent state",
        "raise server.memory_fraction, or lower max-mamba-cache-size or mamba-full-memory-ratio",
        adjust=more_memory,
    ),
    Signature(
        "no-state-memory",
        "root",
        "Not enough GPU memory for hybrid (mamba/linear-attention) state cache",
        "the recurrent state of no request fits: {slots} slots",
        _STATE,
        r"max_mamba_cache_size=(?P<slots>-?\d+)",
        more_memory,
    ),
    Signature(
        "no-state-memory",
        "root",
        "state cache is too small to serve any requests",
        "{slots} slots of recurrent state were made, and each request takes {each}",
        f"raise max-mamba-cache-size where it is set; else {_STATE}",
        r"max_mamba_cache_size=(?P<slots>\d+), mamba_ratio=(?P<each>\d+)",
        more_memory,
    ),
    Signature(
        "no-running-requests",
        "root",
        "AssertionError: max_running_request is zero",
        "not one request could run: the caches hold fewer than two tokens, or the recurrent state none",
        "raise server.memory_fraction or max-total-tokens; warnings above it name the cache that is short",
        adjust=more_memory,
    ),
    Signature(
        "no-kv-memory",
        "root",
        "AssertionError: Memory pool size is too small",
        "the KV cache holds at most one token",
        "raise server.memory_fraction or lower context_length",
        adjust=more_memory,
    ),
    Signature(
        "cap-lowered",
        "warning",
        "max_running_requests is capped to ",
        "at most {cap} requests run at once: {slots} slots of recurrent state, {each} for each request",
        "do not read numbers at a higher concurrency; disable-radix-cache: true takes fewer slots",
        r"is capped to (?P<cap>\d+) by the mamba state cache "
        r"\(max_mamba_cache_size=(?P<slots>\d+), (?P<each>\d+) state slots per request\)",
    ),
    Signature(
        "cap-lowered",
        "warning",
        "max_running_requests was reduced from the requested ",
        "at most {cap} requests run at once, not {asked}: the KV cache is too small",
        "do not read numbers at a higher concurrency; raise server.memory_fraction",
        r"reduced from the requested (?P<asked>\d+) to (?P<cap>\d+)",
    ),
    Signature(
        "kv-exhausted",
        "root",
        " out of memory. Try to lower your batch size",
        "the KV cache ran full in {step}",
        "lower server.max_running_requests or raise schedule-conservativeness",
        r"(?P<step>Prefill|Decode) out of memory\. Try to lower your batch size",
        fewer_requests,
    ),
    Signature(
        "kv-exhausted",
        "root",
        "alloc_req_slots runs out of memory",
        "the slots for running requests ran out",
        "lower server.max_running_requests or raise max-mamba-cache-size",
        adjust=fewer_requests,
    ),
    Signature(
        "requests-retracted",
        "warning",
        "KV cache pool is full. Retract requests",
        "the KV cache ran full, and running requests were put back and computed again",
        "do not read these numbers; lower the concurrency or raise server.memory_fraction",
    ),
    Signature(
        "pool-leak",
        "root",
        "memory leak detected!",
        "SGLang lost count of its own cache",
        "a fault of SGLang's: report it; try disable-radix-cache: true",
    ),
    Signature(
        "gpu-occupied",
        "root",
        "The memory capacity is unbalanced. Some GPUs may be occupied",
        "another process holds memory on one of the GPUs",
        "wait until it is gone, or use other GPUs; nvidia-smi names the process",
    ),
    # --- ports
    Signature(
        "port-in-use",
        "root",
        "error while attempting to bind on address",
        "port {port} is taken by another process",
        "end the other process or choose another port; SGLang notices only once the model is loaded",
        r"\[Errno \d+\] error while attempting to bind on address \(.*?, (?P<port>\d+)\)",
    ),
    Signature(
        "port-in-use",
        "root",
        "Port is already in use. dist_init_port=",
        "a port that SGLang derives from its own for data parallelism is taken",
        "keep the ports of servers at least 250 apart",
    ),
    # --- processes
    Signature(
        "host-out-of-memory",
        "root",
        "crashed with exit code -9",
        "the process {process} was killed, most likely for want of main memory",
        "look at dmesg for the kernel's OOM killer",
        r"Subprocess (?P<process>\S+) \(pid=\d+\) crashed with exit code -9\b",
    ),
    Signature(
        "native-crash",
        "root",
        "crashed with exit code ",
        "the process {process} crashed with exit code {status}",
        "run once with CUDA_LAUNCH_BLOCKING=1; try another attention backend",
        r"Subprocess (?P<process>\S+) \(pid=\d+\) crashed with exit code (?P<status>-?\d+)",
    ),
    Signature(
        "host-out-of-memory",
        "root",
        "scheduler died during initialization (exit code: -9)",
        "the scheduler of rank {rank} was killed while {phase}, most likely for want of main memory",
        "look at dmesg for the kernel's OOM killer",
        r"Rank (?P<rank>\d+) scheduler died during initialization",
    ),
    Signature(
        "native-crash",
        "root",
        "scheduler died during initialization (exit code: ",
        "the scheduler of rank {rank} crashed with exit code {status} while {phase}",
        "run once with CUDA_LAUNCH_BLOCKING=1; try another attention backend",
        r"Rank (?P<rank>\d+) scheduler died during initialization \(exit code: (?P<status>-?\d+)\)",
    ),
    Signature(
        "watchdog",
        "root",
        "watchdog timeout (self.watchdog_timeout=",
        "one step took longer than the {limit} s that the {process} watchdog allows",
        "raise watchdog-timeout if it compiles; else look at NCCL",
        r"(?P<process>\w+) watchdog timeout \(self\.watchdog_timeout=(?P<limit>[\d.]+), self\.soft=False\)",
    ),
    Signature(
        "slow-step",
        "warning",
        "watchdog timeout (self.watchdog_timeout=",
        "one step took longer than the {limit} s that the {process} watchdog allows",
        "the numbers hold this pause; warm up longer if it compiled",
        r"(?P<process>\w+) watchdog timeout \(self\.watchdog_timeout=(?P<limit>[\d.]+), self\.soft=True\)",
    ),
    Signature(
        "no-answer",
        "setback",
        "Health check failed. Server couldn't get a response from detokenizer for last ",
        "the server did not answer its own health check for {seconds} s",
        "the scheduler hangs or is overloaded; SGLANG_HEALTH_CHECK_TIMEOUT sets the limit",
        r"from detokenizer for last (?P<seconds>\d+) seconds",
    ),
    # --- what points to a cause elsewhere
    Signature(
        "scheduler-failed",
        "wrapper",
        "Scheduler hit an exception: ",
        "the scheduler failed while {phase}, and the log does not say why",
        _READ,
    ),
    Signature(
        "detokenizer-failed",
        "wrapper",
        "DetokenizerManager hit an exception: ",
        "the detokenizer failed, and the log does not say why",
        "check that the tokenizer belongs to the model",
    ),
    Signature(
        "warmup-failed",
        "wrapper",
        "Initialization failed. warmup error: ",
        "the warm-up request failed, and the log does not say why",
        f"{_READ}; SGLANG_WARMUP_TIMEOUT sets how long it may take",
    ),
    *(
        Signature(
            "process-failed", "wrapper", needle, "one of the server's processes failed while {phase}", _READ
        )
        for needle in (
            "Received sigquit from a child process. It usually means the child failed",
            "SIGQUIT received. signum=",
            "Initialization failed. Please see the error messages above",
        )
    ),
)
"""Earlier ones win where two are on one line."""
