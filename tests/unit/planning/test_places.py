"""Which pools are one place, what the place is called, and what of it is open."""

from typing import Any

import pytest

from federator.model.capacity import Market
from federator.model.plans import Place
from federator.planning.explanations.explain import explain_waiting
from federator.planning.places.candidates import of_pools
from federator.planning.plans.greedy import plan_greedily
from federator.planning.wording.told import because_of
from federator.planning.world.problem import World
from tests.support.worlds import a_job, a_lease, a_plan, a_pool, a_world, busy


def test_members_whose_pools_are_alike_are_one_place() -> None:
    pools = [a_pool(member=f"n{n}", session=f"s{n}") for n in (2, 1, 3)]
    (place,) = of_pools(pools)
    assert [view.member for view in place.views] == ["n1", "n2", "n3"]
    assert (place.key, place.shown, place.nodes, place.shut) == ("home/gpu", "home/gpu", 6, ())


@pytest.mark.parametrize(
    "other",
    [
        {"site": "edge"},
        {"pool": "big"},
        {"model": "H100"},
        {"gpu_memory_mib": 40960},
        {"gpus_per_node": 8},
        {"cpus_milli_per_node": 32_000},
        {"memory_mib_per_node": 1 << 20},
        {"labels": {"rack": "2"}},
        {"price_usd_gpu_h": 0.5},
        {"lends_to": ("research",)},
        {"self_fencing": True},
        {"region": "us"},
        {"market": Market.ON_DEMAND, "lease": "lease-1"},
    ],
)
def test_members_that_differ_are_places_of_their_own(other: dict[str, Any]) -> None:
    places = of_pools([a_pool(member="n1"), a_pool(**{"member": "n2", **other})])
    assert [len(place.views) for place in places] == [1, 1]
    assert len({place.key for place in places}) == 2


def test_leases_are_never_merged() -> None:
    places = of_pools([a_lease("lease-1"), a_lease("lease-2")])
    assert [place.key for place in places] == ["acme-eu/lease-1-0/gpu", "acme-eu/lease-2-0/gpu"]


def test_one_member_keeps_its_name_and_two_places_of_one_name_have_names_of_their_own() -> None:
    assert of_pools([a_pool()])[0].key == "home/home-1/gpu"
    assert of_pools([a_pool(member="home")])[0].shown == "home/gpu"
    pools = [a_pool(member=f"n{n}", model="A100" if n < 3 else "H100") for n in range(5)]
    assert [place.key for place in of_pools(pools)] == ["home/n0+2/gpu", "home/n3+1/gpu"]


def test_a_place_is_closed_only_when_all_its_members_are() -> None:
    (place,) = of_pools([a_pool(member="n1", open=False), a_pool(member="n2")])
    assert ([v.member for v in place.views], [v.member for v in place.shut]) == (["n2"], ["n1"])
    assert place.standing is not None
    assert place.standing.open
    assert place.nodes == 2
    (place,) = of_pools([a_pool(member="n1", open=False), a_pool(member="n2", open=False)])
    assert place.standing is not None
    assert not place.standing.open
    assert (len(place.views), place.shut) == (2, ())


def test_nodes_are_at_members() -> None:
    (place,) = of_pools([a_pool(member=f"n{n}") for n in range(3)])
    assert place.members_of(["n1/gpu-7", "n2/gpu-7", "elsewhere/n0"]) == {1, 2}


def test_a_plan_names_member_and_session_of_each_rank() -> None:
    pools = [a_pool(member=f"n{n}", session=f"s{n}", nodes=1) for n in range(3)]
    (action,) = plan_greedily(a_world([a_job("gang", nodes=3, gpus=4)], pools)).actions
    assert isinstance(action, Place)
    assert action.members == ("n0", "n1", "n2")
    assert action.sessions == ("s0", "s1", "s2")
    assert "(on n0, n1 and n2)" in because_of(action, action.expected_start_at)
    pools.append(a_pool(member="n3", session="s3", nodes=1))
    (action,) = plan_greedily(a_world([a_job("gang", nodes=4, gpus=4)], pools)).actions
    assert isinstance(action, Place)
    assert "(on 4 members)" in because_of(action, action.expected_start_at)


def test_an_explanation_has_one_line_for_a_place() -> None:
    pools = [a_pool(member=f"n{n}", nodes=1) for n in range(3)]
    problem = a_world([a_job("gang", nodes=4, gpus=4), a_job("other", nodes=2, gpus=4)], pools)
    found = explain_waiting(problem, plan_greedily(problem), "gang")
    (line,) = found.sites
    assert (line.site, line.pool, line.filter) == ("home", "gpu", "gang")
    assert "even empty it holds 3 of the gang's 4 nodes" in line.text


def test_what_an_explanation_calls_free_is_what_the_plan_left_over_all_members() -> None:
    pools = [a_pool(member=f"n{n}", nodes=1) for n in range(3)]
    problem = a_world([a_job("gang", nodes=3, gpus=4), a_job("first", gpus=3, priority=90)], pools)
    found = explain_waiting(problem, plan_greedily(problem), "gang")
    assert "9 GPUs free, on hosts that hold 2 of its 3 nodes" in found.sites[0].text


def test_an_explanation_survives_a_plan_of_before_members_had_sessions() -> None:
    problem = a_world([a_job("a")], [a_pool()])
    assert explain_waiting(problem, a_plan(waiting=["a"]), "a").because == "nothing is free"


def test_a_running_gang_over_members_is_one_job_with_all_its_ranks() -> None:
    parts = [busy("p", "j", gpus=4), busy("p", "j", gpus=4, nodes=2, leads=False)]
    world = World(a_world([], [a_pool(member=f"n{n}", busy=(part,)) for n, part in enumerate(parts)]))
    assert world.running["p"].nodes == 3
    assert {key: has.gpus for key, has in world.running_amounts.items()} == {("batch", "A100"): 12}
