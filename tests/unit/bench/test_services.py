"""The comparison of ways to scale, on a small made-up trace: it works, and Federator's way keeps its bounds."""

import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from federator.model.services import Scale
from tests.bench.services.comparison import at_a_time, compared, simulated
from tests.bench.services.requests import Request, prompt_s, read, token_s
from tests.bench.services.scalers import Federator

QUIET = [Request(float(second), 500, 50) for second in range(0, 600, 4)]
BUSY = [Request(600 + second / 6, 500, 50) for second in range(2400)]
LATER = [Request(1000.0 + second, 500, 50) for second in range(0, 900, 4)]
REQUESTS = [*QUIET, *BUSY, *LATER]
"""Ten quiet minutes, nearly seven with 24 times as many requests, and fifteen that are quiet again."""
SCALE = Scale(least=1, most=10, requests_per_replica=4, p95_latency_s=5.0, drain_s=3600.0)


def test_a_replica_takes_as_long_as_was_measured() -> None:
    assert (prompt_s(512), token_s(16)) == (0.084, 0.042)
    assert prompt_s(16384) > 2 * prompt_s(8192) > prompt_s(8192)
    assert token_s(1) < token_s(24) < token_s(32)


def test_each_way_answers_all_and_pays_for_what_it_holds() -> None:
    outcomes = compared(REQUESTS, SCALE, start_s=30.0)
    mean, peak, threshold, ours = outcomes.values()
    assert mean.attained < peak.attained
    assert mean.gpu_hours < peak.gpu_hours
    assert peak.attained >= 0.95
    assert threshold.most <= SCALE.most
    assert ours.attained > mean.attained
    assert ours.attained >= threshold.attained - 0.01
    assert ours.gpu_hours < threshold.gpu_hours


def test_slow_answers_do_not_bring_ever_more_replicas() -> None:
    """Where one in ten requests is slow by itself, no number of replicas helps: they come one at a time, and go again."""
    requests = [each._replace(tokens=400) if at % 10 == 0 else each for at, each in enumerate(QUIET * 2)]
    requests = [each._replace(at_s=4.0 * at) for at, each in enumerate(requests)]
    many = replace(SCALE, most=100)
    outcome = simulated(requests, Federator(many, 1), many, 1, start_s=30.0)
    assert outcome.most <= 2


def test_what_one_replica_can_work_on_is_found() -> None:
    assert 1 < at_a_time(QUIET, 2.5) < at_a_time(QUIET, 3.0) < 40


def test_it_is_run_by_its_name(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    rows = [f"chat,{100 + each.at_s},{each.prompt},{each.tokens}" for each in QUIET]
    trace.write_text("\n".join(("service,t_s,context_tokens,generated_tokens", *rows, "other,1,1,1", "")))
    assert read(trace, "chat") == QUIET
    words = (sys.executable, "-m", "tests.bench.services", str(trace), "--service", "chat", "--start", "10")
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.count("\n") == 6
    assert "Federator" in done.stdout


def test_a_trace_without_the_service_is_named(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("service,t_s,context_tokens,generated_tokens\nchat,1,2,3\n")
    with pytest.raises(SystemExit, match="no requests of code"):
        read(trace, "code")
