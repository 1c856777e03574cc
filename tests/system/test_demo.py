"""The demonstration, as `make demo` runs it: real processes, one kill -9, and money that is spent for a cause or not at all."""

import re
from pathlib import Path

import msgspec
import pytest

from federator.cli.demo.federation import DemoFederation
from federator.cli.demo.processes import Processes
from federator.client import AsyncClient
from federator.model.plans import Rent
from federator.model.snapshot import Problem
from federator.planning.plans.greedy import plan_greedily
from federator.planning.scheduling.forecast import home_forecast_of
from tests.bench.measuring import child
from tests.support.demo_runs import Run, federator

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

JOBS = 18


def test_it_ends_well_and_every_job_is_done(plain: Run) -> None:
    assert plain.failed_checks == []
    assert plain.code == 0, plain.output
    assert len(plain.result["jobs"]) == JOBS
    assert {job["status"] for job in plain.result["jobs"]} == {"SUCCEEDED"}


def test_one_job_bursts_and_makes_its_deadline(plain: Run) -> None:
    burst = [job["name"] for job in plain.result["jobs"] if job["burst"]]
    assert burst == ["review-figures"]
    assert plain.job("review-figures")["market"] == "on-demand"
    assert plain.job("review-figures")["met"] is True
    assert 0 < plain.result["spent_usd"] <= plain.result["cap_usd"]


def test_jobs_of_every_kind_did_what_they_are_for(plain: Run) -> None:
    pretrain, flaky = plain.job("pretrain"), plain.job("flaky-eval")
    assert (pretrain["gpus"], pretrain["site"]) == (8, "hall")
    assert flaky["attempts"] == 2, "it fails once, and asks to be tried again"
    assert plain.job("evaluate")["started_at"] >= pretrain["finished_at"]
    assert plain.job("count-visitors")["site"] == "shop"
    assert sum(job["name"].startswith("sweep[") for job in plain.result["jobs"]) == 4


def test_the_kill_was_a_real_one_and_lost_nothing(plain: Run) -> None:
    survival = plain.result["survival"]
    assert survival["killed_pid"] != survival["new_pid"]
    assert survival["faults"] == []
    assert survival["jobs_before"] == survival["jobs_after"] == JOBS
    assert survival["kept"] == survival["running_before"] > 0
    assert survival["worked_on"] > 0, "nothing ran while the dispatcher was dead"


def test_nothing_is_left_behind(plain: Run) -> None:
    assert Processes(plain.folder).living() == {}
    assert plain.result["leases"]
    for lease in plain.result["leases"]:
        assert (lease["status"], lease["provider_status"]) == ("GONE", "ENDED")
        assert lease["billed_usd"] == pytest.approx(lease["provider_billed_usd"], abs=0.005)


def test_what_it_prints_explains_both_and_says_what_to_type_next(plain: Run) -> None:
    assert "federator explain review-figures" in plain.output
    assert "Why capacity was rented" in plain.output
    assert "federator explain nightly-embed" in plain.output
    assert "federator demo --keep" in plain.output


def test_without_deadlines_nothing_is_rented(undue: Run) -> None:
    """The burst is caused, not scripted: take the cause away, and the same work spends nothing."""
    assert undue.code == 0, undue.output
    assert len(undue.result["jobs"]) == JOBS
    assert undue.result["spent_usd"] == 0
    assert undue.result["leases"] == []
    assert not any(job["deadline_at"] for job in undue.result["jobs"])
    assert undue.job("review-figures")["market"] == "owned"


def test_a_tightened_deadline_bursts_that_job_too(plain: Run, kept: Run) -> None:
    assert kept.code == 0, kept.output
    assert plain.job("nightly-embed")["market"] == "owned"
    assert kept.job("nightly-embed")["market"] == "on-demand"
    assert any(lease["evidence"]["job"] == kept.job("nightly-embed")["id"] for lease in kept.result["leases"])


async def test_every_burst_has_a_cause_that_can_be_recomputed(kept: Run) -> None:
    """Each recorded decision, planned again without the offers: the job misses the deadline that the rental was to meet."""
    async with AsyncClient(*_exports(kept.output)) as client:
        for lease in kept.result["leases"]:
            evidence = lease["evidence"]
            assert evidence["home_finish_at"] > evidence["deadline_at"]
            assert evidence["policy"] == "BurstPolicy/deadlines-only"
            recorded = await client.decision(evidence["decision"])
            problem = msgspec.convert(recorded["problem"], Problem)
            assert any(
                isinstance(a, Rent) and a.job == evidence["job"] for a in plan_greedily(problem).actions
            )
            home = _without_offers(problem)
            again = {waiting.job: waiting for waiting in plan_greedily(home).waiting}[evidence["job"]]
            assert again.expected_finish_at is not None
            assert again.expected_finish_at > evidence["deadline_at"]
            assert home_forecast_of(home)[evidence["job"]].finish_at == pytest.approx(
                evidence["home_finish_at"]
            )
            assert (await client.replay(evidence["decision"])).identical


def test_what_is_left_up_can_be_used_and_stopped(kept: Run) -> None:
    server, token = _exports(kept.output)
    listed = federator("list", "--server", server, "--token", token)
    assert "review-figures" in listed.stdout
    stopped = federator("demo", "--stop", str(kept.folder))
    assert stopped.returncode == 0, stopped.stdout
    assert Processes(kept.folder).living() == {}
    assert not kept.folder.exists()


async def test_a_dispatcher_starts_its_solver_before_the_first_job(tmp_path: Path) -> None:
    """Its imports take a second, and many on a slow machine: whoever submits first would wait for them."""
    federation = DemoFederation(tmp_path, 1.0)
    try:
        dispatcher = await federation.start_dispatcher()
        assert child(dispatcher, "federator.solving.worker")
    finally:
        await federation.end()


def _exports(output: str) -> tuple[str, str]:
    """Server and token, as printed for a person."""
    found = re.search(r"export FEDERATOR_SERVER=(\S+) FEDERATOR_TOKEN=(\S+)", output)
    assert found is not None, output
    return found[1], found[2]


def _without_offers(problem: Problem) -> Problem:
    return msgspec.structs.replace(problem, snapshot=msgspec.structs.replace(problem.snapshot, offers=()))
