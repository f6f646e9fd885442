"""How the other load clients are called for the same work, and where their files say what they found."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Report = dict[str, float]
"""``ttft_ms``, ``ttft_p99_ms``, ``tpot_ms``, ``tok_s``; what a client does not say is absent."""


@dataclass(frozen=True)
class Load:
    """A closed loop against a server of known timing."""

    name: str
    streams: int
    requests: int
    tokens: int
    ttft_ms: float
    itl_us: int
    chunk_tokens: int = 1
    characters: int = 600


@dataclass(frozen=True)
class Peer:
    """A client that may be installed."""

    program: str
    command: Callable[[str, Load, Path, str], list[str]]
    read: Callable[[Path], Report]

    @property
    def path(self) -> str | None:
        """None where it is not installed."""
        return shutil.which(self.program)


def vllm_command(url: str, load: Load, folder: Path, tokenizer: str) -> list[str]:
    """``vllm bench serve``."""
    words = (
        f"bench serve --backend openai-chat --endpoint /v1/chat/completions --base-url {url} --model timed"
    )
    work = (
        f"--tokenizer {tokenizer} --dataset-name random --random-input-len {load.characters // 6}"
        f" --random-output-len {load.tokens} --num-prompts {load.requests} --max-concurrency {load.streams}"
    )
    return f"{words} {work} --ready-check-timeout-sec 0 --save-result --result-dir {folder}".split()


def sglang_command(url: str, load: Load, folder: Path, tokenizer: str) -> list[str]:
    """SGLang's ``bench_serving``."""
    words = f"-m sglang.bench_serving --backend sglang-oai-chat --base-url {url} --model timed"
    work = (
        f"--tokenizer {tokenizer} --dataset-name random-ids --random-range-ratio 1"
        f" --random-input-len {load.characters // 6}"
        f" --random-output-len {load.tokens} --num-prompts {load.requests} --max-concurrency {load.streams}"
    )
    return f"{words} {work} --warmup-requests 0 --output-file {folder}/result.json".split()


def aiperf_command(url: str, load: Load, folder: Path, tokenizer: str) -> list[str]:
    """NVIDIA AIPerf."""
    words = f"profile --model timed --url {url} --endpoint-type chat --streaming --tokenizer {tokenizer}"
    work = (
        f"--concurrency {load.streams} --request-count {load.requests} --output-tokens-mean {load.tokens}"
        f" --synthetic-input-tokens-mean {load.characters // 6} --use-server-token-count"
    )
    return f"{words} {work} --ui none --output-artifact-dir {folder}".split()


def guidellm_command(url: str, load: Load, folder: Path, tokenizer: str) -> list[str]:
    """GuideLLM."""
    words = (
        f"run --backend kind=openai_http,target={url},model=timed --tokenizer kind=hf_auto,model={tokenizer}"
    )
    work = (
        f"--profile kind=concurrent,streams={load.streams}"
        f" --constraint kind=max_requests,count={load.requests}"
        f" --data kind=synthetic_text,prompt_tokens={load.characters // 6},output_tokens={load.tokens}"
    )
    return f"{words} {work} --output kind=json,path={folder}/result.json --disable-console".split()


def read_vllm(folder: Path) -> Report:
    """Its and SGLang's files name the figures alike."""
    [path] = folder.glob("*.json")
    said = json.loads(path.read_text().splitlines()[-1])
    return {
        "ttft_ms": said["mean_ttft_ms"],
        "ttft_p99_ms": said["p99_ttft_ms"],
        "tpot_ms": said["mean_tpot_ms"],
        "tok_s": said["output_throughput"],
    }


def read_aiperf(folder: Path) -> Report:
    """What it calls inter-token latency is the time per token of a request."""
    [path] = folder.rglob("profile_export_aiperf.json")
    said = json.loads(path.read_text())
    return {
        "ttft_ms": said["time_to_first_token"]["avg"],
        "ttft_p99_ms": said["time_to_first_token"]["p99"],
        "tpot_ms": said["inter_token_latency"]["avg"],
        "tok_s": said["output_token_throughput"]["avg"],
    }


def read_guidellm(folder: Path) -> Report:
    """What it calls inter-token latency leaves the first token out; its TPOT does not."""
    [path] = folder.glob("*.json")
    metrics = json.loads(path.read_text())["benchmarks"][0]["metrics"]
    first = metrics["time_to_first_token_ms"]["successful"]
    return {
        "ttft_ms": first["mean"],
        "ttft_p99_ms": first["percentiles"]["p99"],
        "tpot_ms": metrics["inter_token_latency_ms"]["successful"]["mean"],
        "tok_s": metrics["output_tokens_per_second"]["successful"]["mean"],
    }


PEERS = {
    "AIPerf": Peer("aiperf", aiperf_command, read_aiperf),
    "GuideLLM": Peer("guidellm", guidellm_command, read_guidellm),
    "vllm bench serve": Peer("vllm", vllm_command, read_vllm),
    "SGLang bench_serving": Peer("sglang", sglang_command, read_vllm),
}
