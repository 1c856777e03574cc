"""`python -m tests.bench.services TRACE`: the comparison as a table."""

import argparse
import sys
from pathlib import Path

from federator.model.services import Scale
from tests.bench.services.comparison import Outcome, at_a_time, compared, target_s
from tests.bench.services.requests import START_S, read

HEADER = "| service | replicas start in | scaled by | within the target | as good as alone | p95 | replicas at most | GPU hours |"


def main() -> int:
    """Compare on each service of the trace, for each time that a replica takes to start."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.services", description="Compare ways to scale a service."
    )
    parser.add_argument("trace", type=Path, help="CSV with service, t_s, context_tokens, generated_tokens")
    parser.add_argument("--service", nargs="+", default=["conv", "code"], help="of the trace")
    parser.add_argument(
        "--start", type=float, nargs="+", default=[START_S], help="seconds that a replica takes to start"
    )
    parser.add_argument(
        "--each", type=float, help="requests to a replica; left out: what one can work on within the target"
    )
    given = parser.parse_args()
    print(HEADER)
    print("|---|" + "---:|" * (HEADER.count("|") - 2))
    for service in given.service:
        requests = read(given.trace, service)
        limit_s = target_s(requests)
        each = given.each or at_a_time(requests, limit_s)
        scale = Scale(least=1, most=50, requests_per_replica=each, p95_latency_s=limit_s, drain_s=3600.0)
        for start_s in given.start:
            for name, outcome in compared(requests, scale, start_s).items():
                print(
                    _row(f"{service}: {limit_s:.1f} s, {each:g} at a time", start_s, name, outcome),
                    flush=True,
                )
    return 0


def _row(service: str, start_s: float, name: str, outcome: Outcome) -> str:
    return (
        f"| {service} | {start_s:g} s | {name} | {100 * outcome.attained:.1f} % | {100 * outcome.unhurried:.1f} % |"
        f" {outcome.p95_s:.1f} s | {outcome.most} | {outcome.gpu_hours:.2f} |"
    )


sys.exit(main())
