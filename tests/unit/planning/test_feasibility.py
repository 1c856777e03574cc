"""Every filter rejects what it is for, says so in the published order, and offers a change that lifts it."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from federator.model.capacity import Market
from federator.model.rules import (
    BurstMode,
    CapRow,
    CapUnit,
    Effect,
    Filter,
    Opening,
    PoolSelector,
    Rule,
    Scope,
    Window,
)
from federator.model.snapshot import JobView, OfferView, PoolView, Snapshot
from federator.planning.places.candidates import of_offer, of_pool
from federator.planning.places.data import data_book
from federator.planning.rules.feasibility import FILTERS, SITUATIONS, reject
from federator.planning.rules.filters import FilterContext, Rejection
from federator.planning.rules.rulebook import RuleBook
from federator.planning.wording.told import words
from tests.support.worlds import HOUR, NOW, a_job, a_lease, a_pool, a_world, an_offer, bursting

BURST: tuple[Rule, ...] = (bursting(),)


def eligibility(job: JobView, place: PoolView | OfferView, snapshot: Snapshot) -> Rejection | None:
    """The reason why the job may not run at a pool or offer, or None when it may."""
    data = data_book(snapshot)
    at = of_offer(place, data) if isinstance(place, OfferView) else of_pool(place, data)
    return reject(job, at, FilterContext(snapshot, RuleBook(snapshot.rules, snapshot.taken_at)))


NIGHTS = Opening("Calendar/nights", PoolSelector(sites=("home",)), (Window(from_minute=360, to_minute=720),))
DAYS_ONLY = Opening(
    "Calendar/days",
    PoolSelector(sites=("home",)),
    closed=(Window(from_minute=360, to_minute=720),),
    stops=True,
)
LICENSES = (
    CapRow("License/matlab", CapUnit.LICENSES, 3.0, pools=PoolSelector(sites=("home",)), license="matlab"),
)
Case = tuple[str, JobView, PoolView | OfferView, tuple[Rule, ...], str]
CASES: list[Case] = [
    (
        "closed",
        a_job(),
        a_pool(open=False, closed_because="draining for maintenance"),
        (),
        "draining for maintenance",
    ),
    ("calendar", a_job(), a_pool(), (NIGHTS,), "Calendar/nights has it closed until 06:00"),
    ("calendar", a_job(run_s=13 * HOUR), a_pool(), (DAYS_ONLY,), "which cannot save itself"),
    ("offer-avoided", a_job(), an_offer(avoid_until_at=NOW + 60), BURST, "its last launch failed"),
    ("sites", a_job(sites=("other",)), a_pool(), (), "may run only at other"),
    ("not-sites", a_job(not_sites=("home",)), a_pool(), (), "excludes home"),
    (
        "refused",
        a_job(refused=(("home", NOW + 60.0),)),
        a_pool(),
        (),
        "home has evicted or repeatedly refused it",
    ),
    ("kinds", a_job(kinds=("edge",)), a_pool(), (), "this one is onprem"),
    (
        "site-labels",
        a_job(site_labels={"region": "eu"}),
        a_pool(labels={"region": "us"}),
        (),
        "a site with region=eu",
    ),
    ("lends-to", a_job(), a_pool(lends_to=("production",)), (), "lends only to queue production"),
    (
        "isolation",
        a_job(owner="eve"),
        a_pool(trusts=("owner:ada", "queue:production")),
        (),
        "this site runs work without isolation and takes only that of owner ada, queue production",
    ),
    ("abilities", a_job(needs=("secret:hub",)), a_pool(), (), "it has no secret hub"),
    ("abilities", a_job(needs=("data",)), a_pool(), (), "it cannot bring data"),
    (
        "licenses",
        a_job(licenses={"ansys": 1}),
        a_pool(),
        LICENSES,
        "no policy has licences ansys for work there",
    ),
    (
        "licenses",
        a_job(licenses={"matlab": 4}),
        a_pool(),
        LICENSES,
        "asks for 4 licences matlab, and there are 3 for work there",
    ),
    ("licenses", a_job(licenses={"matlab": 1}), a_pool("away"), LICENSES, "no policy has licences matlab"),
    ("fencing", a_job(needs_fencing=True), a_pool(), (), "when the agent itself is dead"),
    ("fencing", a_job(needs_fencing=True), an_offer(), BURST, "known only once its agent has reported"),
    (
        "longest-run",
        a_job(max_duration_s=7200.0),
        a_pool(longest_s=3600.0),
        (),
        "ends what runs there after 1h, and its max_duration is 2h",
    ),
    (
        "longest-run",
        a_job(max_duration_s=None, run_s=7200.0),
        a_pool(longest_s=3600.0),
        (),
        "without a max_duration, it is forecast to run for 2h",
    ),
    ("gpu-model", a_job(models=("H100",)), a_pool(), (), "it has A100"),
    ("gpu-memory", a_job(gpu_memory_mib=100_000), a_pool(), (), "it has 80GiB"),
    ("shared-gpus", a_job(gpus=500, shared=True), a_pool(), (), "none there is shared"),
    ("shared-gpus", a_job(), a_pool(shared=True, gpus_per_node=1000), (), "the job asks for whole ones"),
    ("shared-gpus", a_job(gpus=500, shared=True), an_offer(), BURST, "none there is shared"),
    (
        "shared-gpus",
        a_job(gpus=300, shared=True),
        a_pool(shared=True, gpus_per_node=500, cut_milli=500),
        (),
        "its GPUs are cut into parts of 0.5, and the job asks for 0.3 GPUs",
    ),
    (
        "gpus-per-node",
        a_job(gpus=1000, shared=True),
        a_pool(shared=True, gpus_per_node=500, cut_milli=500),
        (),
        "asks for 1 GPU per node; a host there has 0.5",
    ),
    ("together", a_job(nodes=2, together="rack"), a_pool(), (), "no label says which rack its hosts are in"),
    (
        "together",
        a_job(gpus=8, cpus_milli=2000, together="host", ranks_in_one=2),
        a_pool(),
        (),
        "its 2 nodes are to be on one host and ask for 8 GPUs, 2 CPUs and 1GiB",
    ),
    (
        "gang",
        a_job(nodes=3, together="spread"),
        a_pool(),
        (),
        "even empty it holds 2 of the gang's 3 nodes, each on a host of its own",
    ),
    ("gpus-per-node", a_job(gpus=8), a_pool(), (), "a host there has 4"),
    ("cpus-per-node", a_job(cpus_milli=65_000), a_pool(), (), "65 CPUs"),
    ("memory-per-node", a_job(memory_mib=262_145), a_pool(), (), "a host there has 256GiB"),
    (
        "gang",
        a_job(nodes=3, gpus=4),
        a_pool(),
        (),
        "even empty it holds 2 of the gang's 3 nodes; a host there has 4 GPUs and 64 CPUs",
    ),
    ("gang", a_job(nodes=2, gpus=4), a_lease(), BURST, "rented already holds 1 of the gang's 2 nodes"),
    ("spot-policy", a_job(spot_policy="on-demand"), an_offer(market=Market.SPOT), BURST, "it is spot"),
    ("spot-policy", a_job(spot_policy="spot"), an_offer(), BURST, "the job asks for spot"),
    (
        "denied",
        a_job(),
        a_pool(),
        (Filter("eu-only", Effect.DENY, pools=PoolSelector(sites=("home",)), reason="data stays in the EU"),),
        "policy eu-only forbids it: data stays in the EU",
    ),
    ("no-right-to-rent", a_job(may_rent=False), an_offer(), BURST, "its owner has no right to rent in queue"),
    ("no-right-to-rent", a_job(may_rent=False), a_lease(), BURST, "no right to rent"),
    ("no-burst-policy", a_job(), an_offer(), (), "no burst policy lets queue research/vision rent there"),
    ("no-burst-policy", a_job(), an_offer(), (bursting(scope=Scope(queues=("prod",))),), "no burst policy"),
    ("no-burst-policy", a_job(), an_offer(), (bursting(mode=BurstMode.OFF),), "burst is switched off"),
    ("no-burst-policy", a_job(), an_offer(), (bursting(window=Window(days=(5,))),), "outside its hours"),
    ("no-burst-policy", a_job(), a_lease(), (), "no burst policy"),
    ("price-limit", a_job(), an_offer(), (bursting(max_price_usd_h=9.0),), "admits at most 9.00 USD"),
    ("max-duration", a_job(max_duration_s=None), an_offer(), BURST, "the job has no max_duration"),
    ("max-cost", a_job(max_cost_usd=10.0), an_offer(), BURST, "the job's max_cost leaves 10.00 USD"),
    (
        "max-cost",
        a_job(max_cost_usd=10.0, cost_policy="Budget/each"),
        an_offer(),
        BURST,
        "policy Budget/each leaves 10.00 USD",
    ),
    (
        "no-burst-policy",
        a_job(),
        an_offer(),
        (bursting(advisory=True),),
        "burst only advises, and rents nothing",
    ),
    ("max-cost", a_job(max_cost_usd=25.0, spent_usd=10.0), an_offer(), BURST, "leaves 15.00 USD"),
]


@pytest.mark.parametrize(
    ("name", "job", "place", "rules", "says"), CASES, ids=[f"{n}-{c[0]}" for n, c in enumerate(CASES)]
)
def test_each_filter_rejects_what_it_is_for(
    name: str, job: JobView, place: PoolView | OfferView, rules: tuple[Rule, ...], says: str
) -> None:
    found = eligibility(job, place, a_world(rules=rules).snapshot)
    assert found is not None
    assert found.filter == name
    assert says in words(found.reason, NOW).text


def test_every_filter_but_the_switches_has_a_case() -> None:
    assert {test.name for test in FILTERS} == {case[0] for case in CASES} | {"burst-paused", "home-away"}


def test_while_home_is_away_for_a_moment_nothing_is_rented_and_what_is_there_is_used() -> None:
    snapshot = replace(a_world(rules=BURST).snapshot, away=("lab",))
    found = eligibility(a_job(), an_offer(), snapshot)
    assert found is not None
    assert found.filter == "home-away"
    assert "lab" in words(found.reason, NOW).text
    assert eligibility(a_job(), a_lease(), snapshot) is None


def test_a_site_that_the_job_may_not_use_is_not_waited_for() -> None:
    snapshot = replace(a_world(rules=BURST).snapshot, away=("lab",))
    offer = an_offer()
    for job in (a_job(kinds=("cloud",)), a_job(not_sites=("lab",)), a_job(sites=(offer.site, "home"))):
        assert eligibility(job, offer, snapshot) is None
    assert (
        eligibility(a_job(kinds=("cloud", "onprem"), sites=(offer.site, "lab")), offer, snapshot) is not None
    )


def test_a_paused_federation_rents_nothing_and_uses_what_it_has() -> None:
    snapshot = a_world(rules=BURST, burst_paused=True).snapshot
    found = eligibility(a_job(), an_offer(), snapshot)
    assert found is not None
    assert found.filter == "burst-paused"
    assert eligibility(a_job(), a_lease(), snapshot) is None


@pytest.mark.parametrize("place", [a_pool(), an_offer(), a_lease()], ids=["pool", "offer", "lease"])
def test_what_passes_all_filters_has_no_reason(place: PoolView | OfferView) -> None:
    assert eligibility(a_job(), place, a_world(rules=BURST).snapshot) is None


def test_a_site_that_enforces_stop_within_is_for_jobs_that_ask_for_it() -> None:
    place = a_pool(self_fencing=True)
    assert eligibility(a_job(needs_fencing=True), place, a_world().snapshot) is None


LIFTS: list[tuple[JobView, Callable[[JobView], JobView], str]] = [
    (
        a_job(sites=("other",)),
        lambda job: replace(job, sites=(*job.sites, "home")),
        "add home to placement.sites",
    ),
    (
        a_job(kinds=("edge",)),
        lambda job: replace(job, kinds=("edge", "onprem")),
        "add onprem to placement.kinds",
    ),
    (a_job(models=("H100",)), lambda job: replace(job, models=("H100", "A100")), "allow A100"),
    (
        a_job(gpu_memory_mib=100_000),
        lambda job: replace(job, gpu_memory_mib=80 * 1024),
        "ask for 80GiB per GPU",
    ),
    (a_job(gpus=8), lambda job: replace(job, gpus=4), "ask for 4 GPUs per node"),
    (a_job(nodes=3, gpus=4), lambda job: replace(job, nodes=2), "ask for 2 nodes"),
]


@pytest.mark.parametrize(("job", "change", "says"), LIFTS)
def test_the_offered_change_makes_the_place_eligible(
    job: JobView, change: Callable[[JobView], JobView], says: str
) -> None:
    snapshot = a_world().snapshot
    found = eligibility(job, a_pool(), snapshot)
    assert found is not None
    assert says in words(found.reason, NOW).change
    assert eligibility(change(job), a_pool(), snapshot) is None


def test_raising_max_cost_by_what_is_said_is_enough() -> None:
    job, snapshot = a_job(max_cost_usd=10.0), a_world(rules=BURST).snapshot
    found = eligibility(job, an_offer(), snapshot)
    assert found is not None
    assert "raise max_cost by 11.67 USD" in words(found.reason, NOW).change
    assert eligibility(replace(job, max_cost_usd=10.0 + 11.67), an_offer(), snapshot) is None


def test_the_first_filter_in_the_published_order_is_the_reason() -> None:
    job = a_job(not_sites=("home",), models=("H100",), gpus=8)
    found = eligibility(job, a_pool(open=False), a_world().snapshot)
    assert found is not None
    assert found.filter == "closed"
    found = eligibility(job, a_pool(), a_world().snapshot)
    assert found is not None
    assert found.filter == "not-sites"


def test_the_worst_case_has_boot_limit_and_teardown_in_it() -> None:
    enough = 10.0 * (540 + 2 * HOUR + 60) / HOUR
    snapshot = a_world(rules=BURST).snapshot
    assert eligibility(a_job(max_cost_usd=enough), an_offer(), snapshot) is None
    assert eligibility(a_job(max_cost_usd=enough - 0.01), an_offer(), snapshot) is not None


def test_names_are_unique_and_documented() -> None:
    names = [each.name for each in FILTERS] + [each.name for each in SITUATIONS]
    assert len(set(names)) == len(names)
    assert all(
        says.endswith(".") for says in [each.says for each in FILTERS] + [each.says for each in SITUATIONS]
    )
