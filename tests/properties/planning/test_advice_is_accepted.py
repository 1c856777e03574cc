"""Advice about a job is something that its owner can submit: the file, changed as advised, is accepted, whatever the job is.

Policies, sites and purchases are other people's; what they are advised to is not tried here. Where all that is asked is the owner's, the place that it is
to open is open then.
"""

import asyncio
from collections import Counter
from functools import partial
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from federator.model.capacity import Pool, Shape
from federator.model.changes import AskFor
from federator.model.plans import Explanation
from federator.planning.rules.feasibility import FILTERS
from federator.wire.jobfile import read_job
from tests.support.dispatch import ADA, World, make_world
from tests.support.examples import examples
from tests.support.following_advice import follow

FILTER_NAMES = {test.name for test in FILTERS}
POLICIES = """
apiVersion: federator/v1
kind: Queue
metadata: {name: research}
spec: {max_value: 50 USD, met_deadline_usd_per_gpu_hour: 1}
---
apiVersion: federator/v1
kind: BurstPolicy
metadata: {name: burst}
spec:
  who: {queues: [default, research]}
  when: {mode: economic}
  limits: {usd: {per_day: 400}}
"""
the_same_jobs = settings(
    max_examples=examples(100), deadline=None, derandomize=True, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)  # fmt: skip
MODELS = st.sampled_from(["", "A100:", "H100:", "A100|L4:", "V100:16GB:"])
COUNTS = st.sampled_from(["1", "2", "4", "8", "16", "0.5", "0.25", "1..4", "2..8", "0.4..1"])


@st.composite
def _sizes(draw: st.DrawFn) -> dict[str, Any]:
    size: dict[str, Any] = {}
    if draw(st.integers(0, 5)):
        text = draw(MODELS) + draw(COUNTS)
        size["gpus"] = _whole(text)
    if not draw(st.integers(0, 3)):
        size["cpus"] = draw(st.sampled_from([0.5, 8, 65, 200]))
    if not draw(st.integers(0, 3)):
        size["memory"] = draw(st.sampled_from(["1GiB", "400GiB", "900GiB"]))
    return size


def _whole(text: str) -> Any:
    """As somebody writes it who writes things out."""
    models, _, count = text.rpartition(":")
    name, _, memory = models.partition(":")
    found: dict[str, Any] = {
        "count": count if ".." in count else float(count) if "." in count else int(count)
    }
    return found | ({"models": name.split("|")} if name else {}) | ({"memory": memory} if memory else {})


WIDTHS: list[dict[str, Any]] = [
    {},
    {"nodes": 2},
    {"nodes": 9},
    {"min_nodes": 2, "max_nodes": 6},
    {"min_nodes": 5, "max_nodes": 40},
]


@st.composite
def jobs_at_random(draw: st.DrawFn) -> dict[str, Any]:
    """A job file of any kind that asks for room and may ask for a place."""
    found: dict[str, Any] = {"run": "python train.py", "name": "job"}
    if draw(st.integers(0, 2)):
        found["resources"] = draw(_sizes())
    else:
        name = draw(st.sampled_from(["any_of", "ordered"]))
        found["resources"] = {name: draw(st.lists(_sizes(), min_size=2, max_size=3, unique_by=str))}
    nodes: dict[str, Any] = draw(st.sampled_from(WIDTHS))
    placement = {
        "together": draw(st.sampled_from([None, None, "host", "spread", "rack"])),
        "kinds": draw(st.sampled_from([None, None, ["edge"], ["cloud"]])),
        "sites": draw(st.sampled_from([None, None, ["lab"], ["shop"]])),
        "not_sites": draw(st.sampled_from([None, None, ["lab"]])),
        "labels": draw(st.sampled_from([None, None, {"region": "eu"}])),
    }
    others = {
        "finish_within": draw(st.sampled_from([None, "30m", "12h"])),
        "max_duration": draw(st.sampled_from([None, "3h"])),
        "max_cost": draw(st.sampled_from([None, "1 USD"])),
        "value": draw(st.sampled_from([None, "2 USD"])),
        "spot_policy": draw(st.sampled_from([None, "spot"])),
        "queue": draw(st.sampled_from([None, "research"])),
        "image": draw(st.sampled_from([None, None, "python:3.11"])),
        "secrets": draw(st.sampled_from([None, None, ["wandb"]])),
        "on_disconnect": draw(st.sampled_from([None, None, {"stop_within": "1h"}])),
    }
    kept = {key: value for key, value in placement.items() if value}
    return (
        found
        | nodes
        | {key: value for key, value in others.items() if value}
        | ({"placement": kept} if kept else {})
    )


async def _world() -> World:
    world = await make_world()
    await world.policies(POLICIES)
    await world.add_site("lab", nodes=2, gpus=4)
    await world.add_site("shop", nodes=3, gpus=1, model="L4")
    site = await world.add_site("den", nodes=4, gpus=8, model="V100")
    site.report(lends_to=("research",))
    parts = await world.add_site("parts", nodes=2, gpus=1, model="A100")
    free = (Shape(1000, 32000, 100_000, 2),)
    shared = Pool(
        name="main", model="A100", gpu_memory_mib=81920, nodes=2, gpus_per_node=1000, cpus_milli_per_node=32000,
        memory_mib_per_node=100_000, free=free, lent_gpus=2000, shared=True,
    )  # fmt: skip
    parts.report(pools=(shared,))
    await world.core.executor.poll()
    return world


async def _explained(world: World, document: dict[str, Any]) -> Explanation:
    request = read_job(document, now=world.clock.now())
    return (await world.core.views.preview(ADA, request)).explanation


async def _try_one(world: World, tried: Counter[str], document: dict[str, Any]) -> None:
    """Follow every remedy of it, and see what it opens; `tried` counts the fields."""
    try:
        spec = read_job(document, now=world.clock.now()).spec
    except Exception:  # noqa: BLE001 - no job: nothing to advise
        return
    found = await _explained(world, document)
    for remedy in found.remedies:
        asks = [
            change
            for change in remedy.changes
            if isinstance(change, AskFor) and change.field != "approved_usd"
        ]
        if not asks:
            continue
        followed = document
        for change in asks:
            followed = follow(followed, spec, change)
            tried[change.field] += 1
        try:
            again = await _explained(world, followed)
        except Exception as error:
            raise AssertionError(f"{document}\n{remedy.text}\n{followed}") from error
        if remedy.certain and len(asks) == len(remedy.changes):
            open_ = {f"{each.site}/{each.pool}" for each in again.sites if each.filter not in FILTER_NAMES}
            assert open_ >= set(remedy.places), (document, remedy.text, followed, remedy.places)


def test_what_is_advised_would_be_accepted_and_opens_what_it_says() -> None:
    tried: Counter[str] = Counter()
    loop = asyncio.new_event_loop()
    try_one = partial(_try_one, loop.run_until_complete(_world()), tried)

    @the_same_jobs
    @given(jobs_at_random())
    def all_of_them(document: dict[str, Any]) -> None:
        loop.run_until_complete(try_one(document))

    try:
        all_of_them()
    finally:
        loop.close()
    assert sum(tried.values()) > 500, tried
    assert len(tried) > 10, tried


def test_advice_that_widens_a_range_beside_a_list_is_accepted() -> None:
    """To ask for fewer nodes than a file's fewest adds a size to each entry of its list."""
    document = {
        "run": "python train.py",
        "name": "job",
        "resources": {
            "any_of": [
                {"gpus": {"count": 2, "models": ["H100"]}},
                {"gpus": {"count": 8, "models": ["A100"]}, "cpus": 65},
                {"gpus": {"count": 4, "models": ["V100"], "memory": "16GiB"}},
            ]
        },
        "min_nodes": 5,
        "max_nodes": 40,
        "placement": {"sites": ["shop"]},
    }
    tried: Counter[str] = Counter()
    loop = asyncio.new_event_loop()
    try:
        world = loop.run_until_complete(_world())
        loop.run_until_complete(_try_one(world, tried, document))
    finally:
        loop.close()
    assert tried["nodes"]
