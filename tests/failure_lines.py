"""Lines by which servers tell of failures, as SGLang, vLLM, llama.cpp and what they stand on print them."""

GENERAL_LINES = (
    ("bad-flag", "launch_server.py: error: unrecognized arguments: --mamba-scheduler-strategy auto"),
    ("bad-flag", "sglang serve: error: ambiguous option: --cuda-graph-max could match --cuda-graph-max-bs"),
    ("bad-flag", "vllm serve: error: argument --dtype: invalid choice: 'f32' (choose from 'auto')"),
    ("port-in-use", "OSError: [Errno 98] Address already in use"),
    (
        "model-not-cached",
        "LocalEntryNotFoundError: outgoing traffic has been disabled. Set 'HF_HUB_OFFLINE=0'",
    ),
    ("model-not-cached", "LocalEntryNotFoundError: Cannot find the requested files in the local cache."),
    ("hub-unreachable", "OSError: We couldn't connect to 'https://huggingface.co' to load the files"),
    (
        "model-missing",
        "OSError: org/none is not a local folder and is not a valid model identifier listed on",
    ),
    (
        "model-missing",
        "OSError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': '/a/draft'.",
    ),
    ("model-incomplete", "OSError: /models/a does not appear to have a file named config.json. Checkout"),
    ("model-incomplete", "RuntimeError: Cannot find any model weights with `/models/a`"),
    ("unknown-architecture", "of type `new` but Transformers does not recognize this architecture. This"),
    ("bad-tensor-parallel", "AssertionError: 14 is not divisible by 4"),
    ("gpu-out-of-memory", "torch.OutOfMemoryError: Allocation on device 0 would exceed"),
    ("gpu-out-of-memory", "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB."),
    *(
        (
            "cuda-init",
            f"RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions "
            f"before calling NumCudaDevices()? Error {number}: {text}",
        )
        for number, text in (
            (100, "no CUDA-capable device is detected"),
            (802, "system not yet initialized"),
            (803, "system has unsupported display driver / cuda driver combination"),
            (804, "forward compatibility was attempted on non supported HW"),
            (999, "unknown error"),
            (46, "all CUDA-capable devices are busy or unavailable"),
        )
    ),
    ("driver-lost", "Failed to initialize NVML: Unknown Error"),
    ("driver-mismatch", "Failed to initialize NVML: Driver/library version mismatch"),
    ("driver-too-old", "The NVIDIA driver on your system is too old (found version 12040). Please update"),
    ("no-gpu", "RuntimeError: Found no NVIDIA driver on your system. Please check"),
    ("no-gpu", "RuntimeError: No CUDA GPUs are available"),
    ("no-kernel", "RuntimeError: CUDA error: no kernel image is available for execution on the device"),
    ("unsupported-dtype", "RuntimeError: rmsnorm.<locals>.fn failed to dispatch data type Float"),
    ("illegal-memory-access", "RuntimeError: CUDA error: an illegal memory access was encountered"),
    ("nccl", "RuntimeError: ncclUnhandledCudaError: Call to CUDA function failed."),
    ("nccl", "ncclSystemError: System call (e.g. socket, malloc) or external library call failed"),
    ("nccl", "ncclInternalError: Internal check failed."),
    ("nccl", "torch.distributed.DistBackendError: NCCL error in: ProcessGroup.cpp:77, remote process exited"),
    ("nccl", "[Rank 1] ProcessGroupNCCL's heartbeat: communicator timed out after 600 s"),
    ("nccl", "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3)"),
    ("disk-full", "OSError: [Errno 28] No space left on device: '/tmp/ipc'"),
    ("shared-memory", "Bus error (core dumped)"),
    ("shared-memory", "worker 1 ended by SIGBUS"),
    ("host-out-of-memory", "OSError: [Errno 12] Cannot allocate memory"),
    ("host-out-of-memory", "  what():  std::bad_alloc"),
    ("host-out-of-memory", "MemoryError: Unable to allocate 3.2 GiB"),
    ("process-limit", "  what():  Resource temporarily unavailable"),
    ("native-exception", "  what():  basic_string::_M_create"),
    ("native-crash", "Segmentation fault (core dumped)"),
    ("killed", "Killed"),
    ("killed", "serve.sh: line 3: 12345 Killed                  python -m vllm.entrypoints"),
)
GENERAL_SETBACKS = (
    ("nccl-warning", "host:1:1 [0] NCCL WARN Call to posix_fallocate failed"),
    ("package-missing", "ModuleNotFoundError: No module named 'flashinfer'"),
    ("package-missing", 'ModuleNotFoundError: No module named "flashinfer"'),
)
SGLANG_LINES = (
    (
        "gpu-out-of-memory",
        "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 1 GiB",
    ),
    ("graph-capture", "Exception: Capture cuda graph failed: Triton Error [CUDA]: invalid argument"),
    ("graph-capture", "RuntimeError: Fail when using backend: tc_piecewise for prefill runner"),
    (
        "weights-too-large",
        "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.002. "
        "Raise --mem-fraction-static above 0.070 (minimum viable = 1 - available/pre = 0.0692).",
    ),
    ("weights-too-large", "ValueError: Loaded weights leave no GPU memory for the KV cache"),
    ("no-kv-memory", "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."),
    (
        "no-state-memory",
        "RuntimeError: Not enough GPU memory for hybrid (mamba/linear-attention) state cache. "
        "max_mamba_cache_size=-3, mamba_ratio=5",
    ),
    (
        "no-state-memory",
        "RuntimeError: Hybrid (mamba/linear-attention) state cache is too small to serve any requests. "
        "max_mamba_cache_size=1, mamba_ratio=5, resulting max_num_reqs=0. Try: (1) ...",
    ),
    ("no-running-requests", "AssertionError: max_running_request is zero"),
    ("no-kv-memory", "AssertionError: Memory pool size is too small"),
    ("kv-exhausted", "RuntimeError: Decode out of memory. Try to lower your batch size."),
    ("kv-exhausted", "RuntimeError: alloc_req_slots runs out of memory. Please set a smaller number"),
    ("pool-leak", "ValueError: token_to_kv_pool_allocator memory leak detected! available_size=3"),
    ("gpu-occupied", "ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other"),
    (
        "port-in-use",
        "ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 30000): address",
    ),
    ("port-in-use", "ValueError: Port is already in use. dist_init_port=30233"),
    ("unknown-algorithm", "ValueError: Unknown speculative algorithm name: FOO"),
    (
        "no-draft-model",
        "ValueError: DFLASH speculative decoding requires setting --speculative-draft-model-path.",
    ),
    (
        "no-draft-model",
        "ValueError: DSpark dense speculative decoding requires setting --speculative-draft-model-path.",
    ),
    (
        "vocabulary-mismatch",
        "ValueError: STANDALONE speculative decoding requires the draft model to share the same vocabulary",
    ),
    (
        "context-too-long",
        "ValueError: User-specified context_length (65536) is greater than the derived context_length (8192)",
    ),
    (
        "context-too-long",
        "ValueError: Target model's context_length (40960) is greater than the derived context_length (4096)",
    ),
    ("attention-backend", "AssertionError: FlashAttention v3 Backend requires SM>=80 and SM<=90."),
    (
        "attention-backend",
        "Only {'triton', 'fa4'} backends are supported on Blackwell GPUs for hybrid GDN models",
    ),
    ("attention-backend", "ValueError: TRTLLM MHA backend for decode is only supported on Blackwell GPUs"),
    ("attention-backend", "ImportError: Can not import FA3 in sgl_kernel. Please check your installation."),
    ("tree-unsupported", "ValueError: trtllm_mha backend only supports topk = 1 for speculative decoding."),
    (
        "tree-unsupported",
        "ValueError: speculative_eagle_topk > 1 with page_size > 1 is only supported on fa3",
    ),
    ("tree-unsupported", "ValueError: speculative_eagle_topk(4) > 1 with page_size(64) > 1 is unstable and"),
    ("state-strategy", "AssertionError: no_buffer only supports page_size=1, got 64"),
    ("state-strategy", "ValueError: no_buffer do not support the overlap schedule"),
    ("state-strategy", "ValueError: extra_buffer is not supported for this model"),
    (
        "package-too-old",
        "Exception: flashinfer_python is installed with version 0.5.1, which is less than the minimum "
        "required version 0.6.2. Please reinstall",
    ),
    (
        "no-gpu",
        "RuntimeError: No accelerator (CUDA, XPU, HPU, NPU, MUSA, MPS) or platform plugin is available.",
    ),
    ("no-gpu", "RuntimeError: nvidia-smi failed (exit code 9): "),
    ("no-gpu", "RuntimeError: nvidia-smi not found. Ensure the driver is installed"),
    ("host-out-of-memory", "Subprocess scheduler_0 (pid=12) crashed with exit code -9. Triggering SIGQUIT"),
    ("native-crash", "Subprocess detokenizer (pid=12) crashed with exit code -11. Triggering SIGQUIT"),
    ("host-out-of-memory", "RuntimeError: Rank 0 scheduler died during initialization (exit code: -9)."),
    ("native-crash", "RuntimeError: Rank 3 scheduler died during initialization (exit code: -6)."),
    ("watchdog", "Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)"),
    ("scheduler-failed", "[2026-11-29 10:00:00 TP0] Scheduler hit an exception: Traceback"),
    ("detokenizer-failed", "DetokenizerManager hit an exception: "),
    ("warmup-failed", "Initialization failed. warmup error: "),
    ("process-failed", "Received sigquit from a child process. It usually means the child failed."),
    ("process-failed", "SIGQUIT received. signum=3, frame=None. It usually means one child failed."),
    ("process-failed", "RuntimeError: Initialization failed. Please see the error messages above."),
)
SGLANG_WARNINGS = (
    (
        "cap-lowered",
        "max_running_requests is capped to 4 by the mamba state cache (max_mamba_cache_size=20, 5 state "
        "slots per request)",
    ),
    ("cap-lowered", "max_running_requests was reduced from the requested 16 to 8 (per dp worker) due to"),
    ("requests-retracted", "KV cache pool is full. Retract requests. #retracted_reqs: 1"),
    ("slow-step", "Scheduler watchdog timeout (self.watchdog_timeout=20.0, self.soft=True)"),
    ("plugin-failed", "Failed to load plugin: demo"),
    ("plugin-failed", "Failed to execute general plugin demo"),
    (
        "no-answer",
        "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds.",
    ),
    (
        "request-too-long",
        "Requested token count exceeds the model's maximum context length of 4096 tokens. You",
    ),
    ("request-too-long", "The input (9000 tokens) is longer than the model's context length (8192 tokens)."),
    ("queue-full", "The request queue is full."),
    ("unsupported-request", "return_meta_info is not supported with streaming"),
    ("unsupported-request", "DFLASH speculative decoding does not support return_logprob yet."),
)
VLLM_LINES = (
    (
        "gpu-out-of-memory",
        "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please",
    ),
    (
        "kv-too-small",
        "ValueError: To serve at least one request with the model's max seq len (40960), (5.62 GiB KV cache "
        "is needed, which is larger than the available KV cache memory (2.10 GiB). Based on the available "
        "memory, the estimated maximum model length is 15296. Try increasing `gpu_memory_utilization`",
    ),
    ("kv-too-small", "ValueError: To serve at least one request with the model's max seq len (40960), 5 GiB"),
    ("no-kv-memory", "ValueError: No available memory for the cache blocks. Try increasing"),
    (
        "gpu-occupied",
        "ValueError: Free memory on device cuda:0 (3.2/79.1 GiB) on startup is less than desired GPU memory "
        "utilization (0.9, 71.2 GiB).",
    ),
    (
        "gpu-occupied",
        "AssertionError: Error in memory profiling. Initial free memory 70.1 GiB, current 75 GiB.",
    ),
    ("no-draft-model", "num_speculative_tokens was provided but without speculative model."),
    ("no-draft-model", "num_speculative_tokens must be provided with speculative model unless"),
    ("no-draft-model", "A speculative model was provided, but `num_speculative_tokens` was not provided"),
    ("vocabulary-mismatch", "ValueError: Target and draft model should have the same vocabulary size."),
    (
        "context-too-long",
        "Value error, User-specified max_model_len (65536) is greater than the derived max_model_len (n=1)",
    ),
    (
        "bad-tensor-parallel",
        "Total number of attention heads (14) must be divisible by tensor parallel size (4).",
    ),
    (
        "attention-backend",
        "ValueError: Selected backend FLASHMLA is not valid for this configuration. Reason: ['head_size']",
    ),
    ("attention-backend", "ValueError: No valid attention backend found for cuda with"),
    ("no-gpu", "RuntimeError: Failed to infer device type, please set"),
    (
        "host-out-of-memory",
        "ERROR [e.py:316] Worker proc VllmWorker-1 died unexpectedly (exit code: -9), shutting",
    ),
    (
        "native-crash",
        "ERROR [e.py:316] Worker proc VllmWorker-1 died unexpectedly (exit code: -11), shutting",
    ),
    ("engine-failed", "(EngineCore pid=7) ERROR 11-29 10:00:00 [core.py:1510] EngineCore failed to start."),
    (
        "engine-failed",
        "(EngineCore pid=7) ERROR 11-29 10:00:00 [core.py:1512] EngineCore encountered a fatal error.",
    ),
    (
        "engine-failed",
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core",
    ),
    (
        "engine-failed",
        "EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root",
    ),
)
VLLM_WARNINGS = (
    ("worker-stalled", "No available shared memory broadcast block found in 60 seconds."),
    ("request-too-long", "This model's maximum context length is 4096 tokens. However, you requested 5000"),
    (
        "unsupported-sampling",
        "The min_p and logit_bias sampling parameters are not yet supported with speculative decoding.",
    ),
)
LLAMACPP_LINES = (
    ("bad-flag", "error: invalid argument: --ctx-sise"),
    ("bad-flag", "error while handling argument: the argument has been removed. use --spec-draft-n-max"),
    ("port-in-use", "main: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8080"),
    ("bad-flag", "E llama_init_from_model: quantized V cache requires flash_attn to be enabled"),
    ("package-missing", "error: xllamacpp cannot be imported (No module named 'xllamacpp'); pip install"),
    ("model-missing", "gguf_init_from_file: failed to open GGUF file '/m.gguf' (No such file or directory)"),
    ("model-damaged", "error: failed to load model, '/m.gguf': not a GGUF file"),
    ("model-missing", "error: failed to load model, '/m.gguf': No such file or directory"),
    (
        "model-damaged",
        "error loading model: tensor 'a' data is not within bounds, model is corrupted or incomplete",
    ),
    ("model-damaged", "E gguf_init_from_reader: failed to read tensor info"),
    ("unknown-architecture", "error loading model: unknown model architecture: 'newer'"),
    ("model-not-loaded", "llama_model_load: error loading model: missing tensor 'output.weight'"),
    ("draft-not-loaded", "E srv load_model: failed to load draft model, '/d.gguf'"),
    ("no-draft-heads", "context type MTP requested but model doesn't contain MTP layers"),
    ("gpu-out-of-memory", "allocating 4096.00 MiB on device 0: cudaMalloc failed: out of memory"),
    ("host-out-of-memory", "E ggml_aligned_malloc: insufficient memory (attempted to allocate  41.96 MB)"),
    ("no-kv-memory", "failed to allocate buffer for kv cache"),
    ("no-kv-memory", "failed to allocate buffer for rs cache"),
    ("no-kv-memory", "failed to allocate compute pp buffers"),
    ("no-kv-memory", "failed to allocate compute tg buffers"),
    ("context-not-made", "failed to initialize the context: n_ctx is too small"),
    ("gpu-error", "CUDA error: unspecified launch failure"),
    ("engine-assertion", "/build/ggml.c:3355: GGML_ASSERT(ggml_can_mul_mat(a, b)) failed"),
    ("model-not-loaded", "E srv init: exiting due to model loading error"),
)
LLAMACPP_WARNINGS = (
    ("vocabulary-mismatch", "E spec common_specu: the target and draft vocabs are not compatible"),
    (
        "speculation-off",
        "failed to initialize speculative decoding context: draft-simple requires a draft context",
    ),
    ("speculation-off", "W srv load_model: speculative decoding not supported by this context"),
    ("memory-not-fitted", "W common_fit_params: failed to fit params to free device memory: unable, abort"),
    ("gpu-unused", "ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected"),
    (
        "context-beyond-training",
        "W n_ctx_seq (9000) > n_ctx_train (4096) -- possible training context overflow",
    ),
    (
        "request-too-long",
        "request (3000 tokens) exceeds the available context size (256 tokens), try increasing",
    ),
    ("request-too-long", "Context size has been exceeded."),
    ("still-loading", '{"error":{"message":"Loading model","type":"unavailable_error","code":503}}'),
)
FATAL = (
    *(("vllm", *line) for line in GENERAL_LINES),
    *(("sglang", *line) for line in SGLANG_LINES),
    *(("vllm", *line) for line in VLLM_LINES),
    *(("llamacpp", *line) for line in LLAMACPP_LINES),
)
"""(engine, cause, line): the server cannot go on."""
HARMLESS = (
    *(("vllm", *line) for line in GENERAL_SETBACKS),
    *(("sglang", *line) for line in SGLANG_WARNINGS),
    *(("vllm", *line) for line in VLLM_WARNINGS),
    *(("llamacpp", *line) for line in LLAMACPP_WARNINGS),
)
"""The same: the server goes on."""
