"""Failures that look alike whatever the engine: command lines, models, drivers, CUDA, the operating system.

The texts are those of argparse, huggingface_hub, transformers, torch, NCCL, the CUDA driver and libc.
"""

from draftmark.diagnose.adjust import less_memory_or_requests
from draftmark.diagnose.signature import Signature

_FLAGS = "correct the flag under server.args or the method's args; flags differ between engine versions"
_CACHED = "download the model first, or give the path of a local folder"
_DRIVER = "start the container with its GPUs (--gpus all, or the NVIDIA runtime); nvidia-smi must work inside"
_UVM = "look for /dev/nvidia-uvm (nvidia-modprobe -u makes it) and for the container's device rules"
_SHM = "give /dev/shm more room (--shm-size of the container)"
_CUDA = "Unexpected error from cudaGetDeviceCount()"


def _cuda_init(number: int, meaning: str, remedy: str) -> Signature:
    """CUDA's start failing with a certain error number."""
    summary = f"CUDA could not start: error {number}, {meaning}"
    return Signature(
        "cuda-init", "root", _CUDA, summary, remedy, rf"cudaGetDeviceCount\(\).*?Error {number}\b"
    )


GENERAL = (
    # --- command line
    Signature(
        "bad-flag",
        "root",
        "error: unrecognized arguments: ",
        "the engine does not know these arguments: {arguments}",
        _FLAGS,
        r"error: unrecognized arguments: (?P<arguments>.+)",
    ),
    Signature(
        "bad-flag",
        "root",
        "error: ambiguous option: ",
        "a shortened flag fits several: {option}",
        "write the flag in full",
        r"error: ambiguous option: (?P<option>.+)",
    ),
    Signature(
        "bad-flag",
        "root",
        "error: argument ",
        "the engine refuses the value of {flag}: {why}",
        _FLAGS,
        r"error: argument (?P<flag>[^\s:]+): (?P<why>.+)",
    ),
    # --- ports
    Signature(
        "port-in-use",
        "root",
        "[Errno 98] Address already in use",
        "the port is taken by another process",
        "end the other process or choose another port",
    ),
    # --- models
    Signature(
        "model-not-cached",
        "root",
        "outgoing traffic has been disabled",
        "the model is not in the local cache, and downloads are switched off (HF_HUB_OFFLINE)",
        _CACHED,
    ),
    Signature(
        "model-not-cached",
        "root",
        "Cannot find the requested files in the ",
        "the model's files are not in the {where} cache, and downloads are switched off",
        _CACHED,
        r"Cannot find the requested files in the (?P<where>disk|local) cache",
    ),
    Signature(
        "hub-unreachable",
        "root",
        "We couldn't connect to '",
        "{url} could not be reached to fetch the model",
        _CACHED,
        r"We couldn't connect to '(?P<url>[^']*)' to load the files",
    ),
    Signature(
        "model-missing",
        "root",
        "is not a local folder and is not a valid model identifier",
        "there is no such model: {model} is neither a folder here nor a name on the hub",
        "correct the path or the name; a gated model needs an access token",
        r"(?P<model>[^\s:]+) is not a local folder and is not a valid model identifier",
    ),
    Signature(
        "model-missing",
        "root",
        "Repo id must be in the form ",
        "there is no folder {model}, and as a name on the hub it is malformed",
        "correct the path",
        r"Repo id must be in the form .*?: '(?P<model>[^']*)'",
    ),
    Signature(
        "model-incomplete",
        "root",
        "does not appear to have a file named ",
        "the model's folder lacks {file}",
        "download the model again",
        r"does not appear to have a file named (?P<file>[^\s,]+?)(?=[.,]?(?:\s|$))",
    ),
    Signature(
        "model-incomplete",
        "root",
        "Cannot find any model weights with `",
        "there are no weights in {model}",
        "check the path, and that the download was complete",
        r"Cannot find any model weights with `(?P<model>[^`]*)`",
    ),
    Signature(
        "unknown-architecture",
        "root",
        "Transformers does not recognize this architecture",
        "the installed transformers is older than the model's architecture",
        "install the version of the engine or of transformers that the model names",
    ),
    # --- parallelism
    Signature(
        "bad-tensor-parallel",
        "root",
        "is not divisible by ",
        "the model cannot be split this way: {size} is not divisible by {parts}",
        "choose a tensor_parallel that divides the model's heads and dimensions",
        r"AssertionError: (?P<size>\d+) is not divisible by (?P<parts>\d+)",
    ),
    # --- GPU and driver
    Signature(
        "gpu-out-of-memory",
        "root",
        "OutOfMemoryError",
        "the GPU ran out of memory while {phase}",
        "lower server.memory_fraction or max_running_requests, raise tensor_parallel, "
        "or see what else is on the GPU",
        r"torch\.(?:cuda\.)?OutOfMemoryError\b",
        less_memory_or_requests,
    ),
    Signature(
        "gpu-out-of-memory",
        "root",
        "CUDA out of memory",
        "the GPU ran out of memory while {phase}",
        "lower server.memory_fraction or max_running_requests, raise tensor_parallel, "
        "or see what else is on the GPU",
        adjust=less_memory_or_requests,
    ),
    _cuda_init(100, "no GPU is visible", _DRIVER),
    _cuda_init(
        802, "the NVSwitch fabric is not ready", "start nvidia-fabricmanager, of the driver's version"
    ),
    _cuda_init(803, "the driver and its libraries do not match", "make the container's driver the host's"),
    _cuda_init(804, "the compatibility libraries do not support this GPU", "update the host's driver"),
    _cuda_init(
        999, "most often /dev/nvidia-uvm is missing or forbidden", f"{_UVM}; nvidia-smi works without it"
    ),
    Signature("cuda-init", "root", _CUDA, "CUDA could not start", _UVM),
    Signature(
        "driver-lost",
        "root",
        "Failed to initialize NVML: Unknown Error",
        "the container has lost its access to the GPUs",
        "restart the container; a reload of systemd on the host takes its device rules away",
    ),
    Signature(
        "driver-mismatch",
        "root",
        "Failed to initialize NVML: Driver/library version mismatch",
        "the driver was updated while the old one is still loaded",
        "restart the machine",
    ),
    Signature(
        "driver-too-old",
        "root",
        "The NVIDIA driver on your system is too old",
        "the driver (CUDA {version}) is older than what the engine was built for",
        "update the driver, or install a build for an earlier CUDA",
        r"The NVIDIA driver on your system is too old \(found version (?P<version>\d+)\)",
    ),
    Signature("no-gpu", "root", "Found no NVIDIA driver on your system", "no NVIDIA driver is here", _DRIVER),
    Signature(
        "no-gpu",
        "root",
        "No CUDA GPUs are available",
        "CUDA sees no GPU",
        "check CUDA_VISIBLE_DEVICES and the container's GPUs",
    ),
    Signature(
        "no-kernel",
        "root",
        "no kernel image is available for execution on the device",
        "a kernel was not built for this GPU",
        "install a build for its compute capability, or choose another attention backend",
    ),
    Signature(
        "unsupported-dtype",
        "root",
        "failed to dispatch data type ",
        "a kernel does not support the data type {dtype}",
        "choose bfloat16 or float16 with the engine's dtype flag",
        r"failed to dispatch data type (?P<dtype>\w+)",
    ),
    Signature(
        "illegal-memory-access",
        "root",
        "CUDA error: an illegal memory access was encountered",
        "a kernel touched memory that is not its own while {phase}",
        "run once with CUDA_LAUNCH_BLOCKING=1 to find it; try another attention backend",
    ),
    # --- between processes
    *(
        Signature(
            "nccl",
            "root",
            needle,
            "the GPUs could not talk to each other: {what}",
            f"{_SHM}; run once with NCCL_DEBUG=INFO; try NCCL_P2P_DISABLE=1",
            rf"(?P<what>{regex})",
        )
        for needle, regex in (
            ("ncclUnhandledCudaError", "ncclUnhandledCudaError"),
            ("ncclSystemError", "ncclSystemError"),
            ("ncclInternalError", "ncclInternalError"),
            ("NCCL error", "NCCL error.*"),
            ("ProcessGroupNCCL", r"ProcessGroupNCCL.*(?:timeout|timed out).*"),
            (
                "Watchdog caught collective operation timeout",
                "Watchdog caught collective operation timeout.*",
            ),
        )
    ),
    Signature(
        "nccl-warning",
        "setback",
        "NCCL WARN",
        "NCCL warns: {what}",
        f"{_SHM}; run once with NCCL_DEBUG=INFO",
        r"NCCL WARN (?P<what>.*)",
    ),
    # --- operating system
    Signature(
        "disk-full",
        "root",
        "No space left on device",
        "a disk is full",
        "look at df -h for the working folder, /tmp and /dev/shm",
    ),
    Signature("shared-memory", "root", "Bus error", "shared memory ran out (bus error)", _SHM),
    Signature("shared-memory", "root", "SIGBUS", "shared memory ran out (SIGBUS)", _SHM),
    *(
        Signature(
            "host-out-of-memory",
            "root",
            needle,
            "the machine's main memory did not suffice while {phase}",
            "free memory, lift the container's limit, or start fewer servers at once",
            regex,
        )
        for needle, regex in (
            ("Cannot allocate memory", ""),
            ("std::bad_alloc", ""),
            ("MemoryError", r"(?<![.\w])MemoryError\b"),
        )
    ),
    Signature(
        "process-limit",
        "root",
        "what():  Resource temporarily unavailable",
        "no further thread could be started: a limit on processes or on memory is reached",
        "raise ulimit -u and the container's pids limit, or ulimit -v",
    ),
    Signature(
        "native-crash",
        "root",
        "Segmentation fault",
        "native code crashed (SIGSEGV) while {phase}",
        "run once with CUDA_LAUNCH_BLOCKING=1; try another attention backend",
    ),
    Signature(
        "killed",
        "wrapper",
        "Killed",
        "a shell says that the server was killed (SIGKILL) while {phase}: by a person or a supervisor, or by "
        "the kernel for want of main memory",
        "look at dmesg for the kernel's OOM killer",
        r"(?m)^(?:.*: line \d+: +\d+ )?Killed(?:  .*)?$",
    ),
    Signature(
        "native-exception",
        "root",
        "  what():  ",
        "native code ended the server: {what}",
        "read the lines around it",
        r"what\(\):  (?P<what>.+)",
    ),
    Signature(
        "package-missing",
        "setback",
        "ModuleNotFoundError: No module named ",
        "the engine's environment lacks the Python module {module}",
        "install it there, or install the engine again",
        r"""ModuleNotFoundError: No module named ['"](?P<module>[^'"]+)['"]""",
    ),
)
"""Looked for in every log; earlier ones win where two are on one line."""
