"""One dispatcher over everything at once: what is told in `story.py` happens once, and each test looks at one promise. `make test-federation` runs it."""

import asyncio
import itertools
import re
import sys
import time
from collections import defaultdict

import pytest

from federator import __version__
from federator.cli.demo.world import CLOUD_SITE
from federator.model.jobs import JobStatus
from tests.federation.grounds import GROUNDS
from tests.federation.inside import CLUSTERS
from tests.federation.story import CUT, EXCHANGED, KILLED, Evidence, tell
from tests.kills.judge import Attempt, check_bill, judge
from tests.support.newer_dispatcher import VERSION
from tests.testbeds.required import need

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

SITES = {each.name: each for each in GROUNDS}
TRIES = 2
FAILED: list[str] = []
"""How the story has broken off. A shared machine gives it a second try, as every test of real processes; not one for each test that wants it."""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    begun_s = time.monotonic()

    def say(text: str) -> None:
        sys.stderr.write(f"{time.monotonic() - begun_s:6.1f} s  {text}\n")

    if len(FAILED) >= TRIES:
        pytest.fail(f"it has broken off: {FAILED[-1]}")
    try:
        return asyncio.run(tell(tmp_path_factory.mktemp("federation") / "all", say))
    except BaseException as error:
        FAILED.append(repr(error))
        raise


@pytest.fixture
def site(request: pytest.FixtureRequest) -> str:
    """A site's name; where its servers are not installed, the test is skipped, or fails."""
    need(SITES[request.param]().lack)
    return str(request.param)


each_site = pytest.mark.parametrize("site", SITES, indirect=True)
each_cut_site = pytest.mark.parametrize("site", [name for name in SITES if name in CUT], indirect=True)


def test_nothing_acknowledged_is_lost_and_nothing_runs_twice(told: Evidence) -> None:
    nodes = {job: each.nodes for job, each in told.submitted.items()}
    faults = judge(nodes, told.rows, told.history, told.attempts, nodes)
    assert not faults, "\n".join(faults)
    assert told.rows.keys() == told.submitted.keys(), "a job that nobody was told of"


def test_every_gang_was_whole(told: Evidence) -> None:
    """All ranks of each attempt that ever lived were alive at one time."""
    placements: defaultdict[str, list[Attempt]] = defaultdict(list)
    for attempt in told.attempts:
        placements[attempt.placement].append(attempt)
    for ranks in placements.values():
        nodes = told.submitted[ranks[0].job].nodes
        assert sorted(attempt.rank for attempt in ranks) == list(range(nodes))
        assert max(attempt.first_s for attempt in ranks) <= min(attempt.last_s for attempt in ranks)
        assert len({told_site for told_site, _ in told.where[ranks[0].placement]}) == 1, (
            "one gang at two sites"
        )


@each_site
def test_a_gang_over_a_whole_site_survives_what_happens_to_its_agent(site: str, told: Evidence) -> None:
    (placement,) = {attempt.placement for attempt in told.attempts if attempt.job == told.gangs[site]}
    places = told.where[placement]
    assert {name for name, _ in places} == {site}
    assert len(places) == SITES[site].nodes, "one host for each rank"


@each_cut_site
def test_a_site_that_is_cut_off_goes_on_alone(site: str, told: Evidence) -> None:
    """Its gang ended while nobody could hear it; it counted as running until the site was heard again."""
    assert told.away[site].site == "UNREACHABLE"
    assert told.away[site].gang in (JobStatus.RUNNING, JobStatus.STARTING, JobStatus.PLACED)
    assert told.rows[told.gangs[site]].status == JobStatus.SUCCEEDED


@each_site
def test_no_site_is_idle_while_jobs_wait(site: str, told: Evidence) -> None:
    assert site in set(itertools.chain.from_iterable(map(told.at, told.flood)))


@pytest.mark.parametrize("site", CLUSTERS, indirect=True)
def test_a_job_at_a_cluster_is_entered_by_command(site: str, told: Evidence) -> None:
    """Its terminal outlives the client that has opened it, at a cluster as on a host of its own."""
    inside = told.inside[site]
    assert inside.executed == (7, b"from here\n", b"wrong\n")
    assert (inside.copied_out, inside.copied_in) == (f"{site}\n", "mine\n")
    assert inside.answered == b"SHOUT"
    assert inside.by_ssh == (9, b"by ssh\n")
    assert inside.left_with == 5


def test_a_machine_is_rented_for_the_deadline_alone(told: Evidence) -> None:
    assert told.at(told.due) == {CLOUD_SITE}
    assert told.at(told.undue) == {"duo"}
    (lease,) = told.leases
    assert lease.evidence is not None
    assert lease.evidence.job == told.due
    assert lease.evidence.deadline_at is not None
    assert lease.evidence.home_finish_at is not None
    assert lease.evidence.home_finish_at > lease.evidence.deadline_at >= lease.evidence.burst_finish_at


def test_the_price_of_the_deadline_was_told_and_agreed_to(told: Evidence) -> None:
    assert re.search(r"done by .*: [0-9.]+ USD \(at most [0-9.]+ USD\)", told.price)


def test_what_was_used_adds_up_to_the_ledger_to_the_cent(told: Evidence) -> None:
    assert told.usage is not None
    assert sum(row.rented_usd for row in told.usage.rows) > 0
    used_usd = sum(row.usd for row in told.usage.rows)
    assert round(used_usd, 2) == round(told.usage.total.usd, 2) == round(told.ledger_usd, 2)


def test_all_that_was_rented_is_given_back_and_billed_as_we_have_it(told: Evidence) -> None:
    assert {lease.status for lease in told.leases} == {"GONE"}
    assert check_bill(told.leases, told.bill) == []


def test_a_drained_site_takes_nothing_new_until_it_is_taken_back(told: Evidence) -> None:
    assert "the site is draining" in told.probe_because
    assert told.at(told.probe) == {told.drained}
    if len(told.gangs) > 1:  # with one site alone, the others have had to wait for it
        assert told.drained not in set(itertools.chain.from_iterable(map(told.at, told.meanwhile)))


def test_agents_of_each_runtime_were_a_version_behind_and_then_ahead(told: Evidence) -> None:
    """What ran meanwhile is judged by the other tests."""
    behind, ahead = told.versions
    for site in behind.keys() & set(KILLED):
        assert behind[site] == "0.0.older"
    for site in ahead.keys() & set(EXCHANGED):
        assert ahead[site] == "0.0.newer"


def test_the_dispatcher_was_of_the_next_version_and_then_went_back(told: Evidence) -> None:
    """What the newer one has started goes on under the present one, in one attempt, and what it has written is read."""
    assert told.dispatchers == [VERSION, __version__]
    assert told.across
    for site, job in told.across.items():
        assert told.at(job) == {site}
        assert told.rows[job].status == JobStatus.SUCCEEDED
        assert len({attempt.placement for attempt in told.attempts if attempt.job == job}) == 1


def test_nothing_is_left_of_it(told: Evidence) -> None:
    assert told.left == []


def test_every_server_that_is_required_is_there() -> None:
    """Skipped site by site above, and seen here."""
    for each in GROUNDS:
        need(each().lack)
