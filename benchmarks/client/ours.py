"""Run draftmark's load client once and print what it reports, as one JSON object.

Usage: python ours.py URL STREAMS REQUESTS TOKENS PROMPT_CHARACTERS
"""

import json
import resource
import sys
from statistics import mean, quantiles

from draftmark.load import LoadJob, measure_apart
from draftmark.schema import EngineSpec, Message, Method, ModelSpec, Request, RequestRecord, Service, Work


def job(url: str, streams: int, requests: int, tokens: int, characters: int) -> LoadJob:
    """A closed loop without warm-up."""
    service = Service(
        id="attach-none",
        phase="attach",
        host="local",
        tp=1,
        engine=EngineSpec(kind="attach", url=url),
        model=ModelSpec(target="timed"),
        method=Method(name="none", kind="none"),
        context_needed=tokens,
        max_running_requests=streams,
        ready_timeout_s=5.0,
    )
    message = Message(role="user", content="lorem " * (characters // 6))
    work = Work(
        requests=tuple(
            Request(id=f"r{i}", prompt_id=f"r{i}", kind="code", messages=(message,), max_tokens=tokens)
            for i in range(requests)
        )
    )
    return LoadJob(
        base_url=url,
        service=service,
        served_name="timed",
        work=work,
        concurrency=streams,
        timeout_s=600.0,
        stall_s=60.0,
        give_up=3,
    )


def time_per_token_ms(record: RequestRecord) -> float:
    """As docs define it, for one token in the first chunk or as many as in the others."""
    first, last = record.chunks[0], record.chunks[-1]
    assert record.output_tokens
    in_first = record.output_tokens / len(record.chunks)
    return 1e3 * (last.t_s - first.t_s) / (record.output_tokens - in_first)


def main() -> None:
    """Measure, then report."""
    result = measure_apart(job(sys.argv[1], *map(int, sys.argv[2:])))
    good = [record for record in result.records if record.ok]
    first = [1e3 * record.chunks[0].t_s for record in good]
    tokens = sum(record.output_tokens or 0 for record in good)
    report = {
        "ttft_ms": mean(first),
        "ttft_p99_ms": quantiles(first, n=100)[98],
        "tpot_ms": mean(map(time_per_token_ms, good)),
        "tok_s": tokens / result.duration_s,
        "failed": len(result.records) - len(good),
        "lag_p99_ms": 1e3 * (result.health.loop_lag_p99_s or 0),
        "peak_mb": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024,
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
