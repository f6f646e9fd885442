"""How SGLang 0.5.17 and 0.5.23 refuse settings and requests, or lack what these need."""

from draftmark.diagnose.adjust import context_as_told
from draftmark.diagnose.signature import Signature

_BACKEND = "set attention-backend: triton or flashinfer, for every method alike"

SETTINGS = (
    # --- speculation
    Signature(
        "unknown-algorithm",
        "root",
        "Unknown speculative algorithm name: ",
        "this SGLang has no speculative algorithm {name}",
        "correct the method's algorithm; if a plug-in brings it, see above whether that failed to load",
        r"Unknown speculative algorithm name: (?P<name>\S+)",
    ),
    Signature(
        "plugin-failed",
        "setback",
        "Failed to load plugin",
        "SGLang goes on without the plug-in {name}, which failed to load",
        "mend the plug-in, and install it in SGLang's own environment",
        r"Failed to load plugin:? (?P<name>\S+)",
    ),
    Signature(
        "plugin-failed",
        "setback",
        "Failed to execute general plugin",
        "SGLang goes on without the plug-in {name}, which failed to run",
        "mend the plug-in",
        r"Failed to execute general plugin:? (?P<name>\S+)",
    ),
    Signature(
        "no-draft-model",
        "root",
        "speculative decoding requires setting --speculative-draft-model-path",
        "{algorithm} needs a draft model",
        "set model.draft or the method's draft",
        r"(?P<algorithm>\w+)[\w ]*? speculative decoding requires setting",
    ),
    Signature(
        "vocabulary-mismatch",
        "root",
        "STANDALONE speculative decoding requires the draft model to share the same vocabulary",
        "the draft model's vocabulary is not the target's",
        "use a draft model made for this target",
    ),
    *(
        Signature(
            "context-too-long",
            "root",
            f"{whose} context_length (",
            "a context of {asked} tokens was asked for, and the " + model + " was made for {fits}",
            "lower server.context_length, or set SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1",
            r"context_length \((?P<asked>\d+)\) is greater than the derived context_length \((?P<fits>\d+)\)",
            context_as_told,
        )
        for whose, model in (("User-specified", "model"), ("Target model's", "draft model"))
    ),
    # --- attention and recurrent state
    Signature(
        "attention-backend",
        "root",
        "FlashAttention v3 Backend requires SM>=80 and SM<=90",
        "FlashAttention 3 does not run on this GPU",
        _BACKEND,
    ),
    Signature(
        "attention-backend",
        "root",
        "backends are supported on Blackwell GPUs for hybrid GDN models",
        "on this GPU a hybrid model needs one of {backends}",
        "set attention-backend to one of them, for every method alike",
        r"Only (?P<backends>\{.*?\}) backends are supported on Blackwell GPUs",
    ),
    Signature(
        "attention-backend",
        "root",
        "TRTLLM MHA backend for ",
        "the trtllm_mha backend does not run on this GPU",
        _BACKEND,
        r"TRTLLM MHA backend for (?:prefill|decode) (?:is only supported on|requires)",
    ),
    Signature(
        "attention-backend",
        "root",
        "Can not import FA3 in sgl_kernel",
        "the installed sgl_kernel has no FlashAttention 3",
        f"install sgl-kernel again, or {_BACKEND}",
    ),
    Signature(
        "tree-unsupported",
        "root",
        "trtllm_mha backend only supports topk = 1",
        "the trtllm_mha backend verifies chains alone, and a tree was asked for",
        "set the method's topk to 1, or attention-backend: triton",
    ),
    Signature(
        "tree-unsupported",
        "root",
        "speculative_eagle_topk > 1 with page_size > 1 is only supported on",
        "this attention backend verifies trees only with a page size of 1",
        "set page-size: 1, or attention-backend: flashinfer or triton",
    ),
    Signature(
        "tree-unsupported",
        "root",
        " is unstable",
        "a tree (topk {topk}) is not verified right with a page size of {page}",
        "set page-size: 1, or attention-backend: flashinfer",
        r"speculative_eagle_topk\((?P<topk>\d+)\) > 1 with page_size\((?P<page>\d+)\) > 1 is unstable",
    ),
    *(
        Signature(
            "state-strategy",
            "root",
            needle,
            "the way recurrent state is kept does not go with the other settings: {what}",
            "leave mamba-radix-cache-strategy to SGLang, or set disable-radix-cache: true",
            rf"(?P<what>{needle}.*)",
        )
        for needle in (
            "no_buffer only supports page_size=1",
            "no_buffer do not support",
            "extra_buffer is not supported for",
        )
    ),
    # --- installation
    Signature(
        "package-too-old",
        "root",
        "which is less than the minimum required version",
        "{package} is {version}, and SGLang needs {least}",
        "install the version that SGLang pins",
        r"(?P<package>\S+) is installed with version (?P<version>[^\s,]+), "
        r"which is less than the minimum required version (?P<least>\S*\w)",
    ),
    Signature(
        "no-gpu",
        "root",
        "No accelerator (CUDA, XPU, HPU, NPU, MUSA, MPS) or platform plugin is available",
        "SGLang finds neither a GPU nor another device that it knows",
        "check the driver, the container's GPUs and CUDA_VISIBLE_DEVICES",
    ),
    *(
        Signature(
            "no-gpu",
            "root",
            needle,
            "nvidia-smi does not work here",
            "start the container with the NVIDIA runtime, so that it has the driver's programs",
        )
        for needle in ("nvidia-smi failed (exit code", "nvidia-smi not found")
    ),
    # --- requests
    Signature(
        "request-too-long",
        "http",
        "Requested token count exceeds the model's maximum context length of ",
        "a request was longer than the context of {context} tokens",
        "raise server.context_length or shorten the workload",
        r"maximum context length of (?P<context>\d+) tokens",
    ),
    Signature(
        "request-too-long",
        "http",
        "longer than the model's context length (",
        "a prompt was longer than the context of {context} tokens",
        "raise server.context_length or shorten the workload",
        r"longer than the model's context length \((?P<context>\d+) tokens\)",
    ),
    Signature(
        "queue-full",
        "http",
        "The request queue is full.",
        "more requests waited than max-queued-requests allows",
        "raise max-queued-requests or lower the concurrency",
    ),
    Signature(
        "unsupported-request",
        "http",
        "return_meta_info is not supported with streaming",
        "SGLang gives no meta_info in a stream of the chat API",
        "leave return_meta_info out",
    ),
    Signature(
        "unsupported-request",
        "http",
        "DFLASH speculative decoding does not support return_logprob yet",
        "SGLang gives no log-probabilities with DFLASH",
        "leave logprobs out",
    ),
)
"""Earlier ones win where two are on one line."""
