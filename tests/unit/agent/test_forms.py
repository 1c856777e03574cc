"""An agent runs a job in the form that its placement names, and refuses one that the job does not have."""

import msgspec
import pytest

from federator.model.jobs import Accelerators, Form, JobSpec, Resources
from federator.model.placements import PlacementStatus
from federator.wire.needs import FORMS, needs_of
from federator_agent.core import events as ev
from federator_agent.core import instructions as do
from tests.unit.agent.worlds import World, entry, only, spec


def forms() -> JobSpec:
    """Two nodes with a GPU each; or one with two, or one without."""
    two = Resources(gpus=Accelerators(count=2), cpus_milli=500)
    other = (Form(1, two, 0.9), Form(1, Resources(cpus_milli=500), 0.1))
    return msgspec.structs.replace(spec(nodes=2, gpus=1), forms=other, elastic=True)


@pytest.mark.parametrize(("form", "nodes", "gpus"), [(0, 2, 1), (1, 1, 2), (2, 1, 0)])
def test_it_is_seated_staged_started_and_collected_in_its_form(form: int, nodes: int, gpus: int) -> None:
    world, of = World(), forms()
    world.connect()
    world.want(entry("p1", of, form=form, ranks=tuple(range(nodes))))
    (stage,) = only(world.bring(of), do.Stage)
    assert (stage.spec.nodes, stage.spec.resources.gpus.count) == (nodes, gpus)
    assert [len(slot.gpus) for slot in stage.record.slots] == [gpus] * nodes
    started = world.tell(ev.Staged("p1", 29500))
    (start,) = only(started, do.StartRanks)
    assert (start.ranks, start.spec.nodes) == (tuple(range(nodes)), nodes)
    for rank in range(nodes):
        world.tell(ev.RankStarted("p1", rank, world.at))
    ends = [instruction for rank in range(nodes) for instruction in world.end("p1", rank)]
    (collect,) = only(ends, do.Collect)
    assert collect.spec.nodes == nodes
    assert world.said[-1].form == form


def test_after_a_restart_it_still_is_what_it_was() -> None:
    world, of = World(), forms()
    world.connect()
    world.want(entry("p1", of, form=1, ranks=(0,)))
    world.bring(of)
    (stage,) = only(world.crash(), do.Stage)
    assert (stage.spec.nodes, stage.spec.resources.gpus.count) == (1, 2)


def test_a_form_that_the_job_does_not_have_is_refused() -> None:
    world, of = World(), forms()
    world.connect()
    world.want(entry("p1", of, form=3, ranks=(0,)))
    world.bring(of)
    assert (world.said[-1].status, world.said[-1].detail) == (
        PlacementStatus.REFUSED,
        "the job has no form 3",
    )


def test_such_work_asks_for_an_agent_that_knows_forms_and_this_one_says_so() -> None:
    assert needs_of(forms()) == (FORMS,)
    assert needs_of(spec()) == ()
    world = World()
    world.connect()
    assert world.state.reported is not None
    assert FORMS in world.state.reported.abilities
