"""The life of a policy: compared by document and by effect, applied with a reason, kept, and put in force again."""

import pytest

from federator.kernel.errors import Forbidden, Invalid, NotFound
from tests.support.dispatch import ADA, ADMIN, World, make_world

FIRST = """# who is owed what
apiVersion: federator/v1
kind: Queue
metadata: {name: paper}
spec: {limit: {gpus: 4}}
"""
SECOND = FIRST.replace("gpus: 4", "gpus: 8")
OTHER = "---\napiVersion: federator/v1\nkind: Queue\nmetadata: {name: other}\nspec: {}\n"


async def a_world() -> World:
    world = await make_world()
    await world.policies(FIRST)
    return world


async def test_a_diff_names_documents_and_what_will_hold() -> None:
    world = await a_world()
    diff = world.core.policy_service.diff(SECOND + OTHER)
    assert diff.version == 1
    assert [(change.document, change.change) for change in diff.documents] == [
        ("Queue/paper", "changed"),
        ("Queue/other", "added"),
    ]
    assert "-spec: {limit: {gpus: 4}}" in diff.documents[0].lines
    assert "Queue/paper: holds queue paper to 8 GPUs at once (everywhere)" in diff.added
    assert diff.removed == ("Queue/paper: holds queue paper to 4 GPUs at once (everywhere)",)
    assert world.core.records.policies.version == 1, "nothing is changed"
    few = world.core.policy_service.diff(SECOND.replace("8", "1"))
    assert "Queue/paper: holds queue paper to 1 GPU at once (everywhere)" in few.added


async def test_a_comment_changes_a_document_and_nothing_else() -> None:
    world = await a_world()
    diff = world.core.policy_service.diff(FIRST.replace("owed what", "owed how much"))
    assert [change.change for change in diff.documents] == ["changed"]
    assert not diff.added
    assert not diff.removed
    assert not world.core.policy_service.diff(FIRST).documents


async def test_a_diff_of_what_is_wrong_says_what_is_wrong() -> None:
    world = await a_world()
    diff = world.core.policy_service.diff(
        FIRST.replace("gpus", "gpu") + OTHER.replace("spec: {}", "spec: {weight: 0}")
    )
    assert len(diff.problems) == 2, "all at once"
    assert not diff.documents


async def test_a_rollback_is_a_new_version_with_the_old_documents() -> None:
    world = await a_world()
    await world.policies(SECOND)
    with pytest.raises(Forbidden):
        await world.core.policy_service.rollback(ADA, 1, "mine")
    verdict = await world.core.policy_service.rollback(ADMIN, 1, "eight were too many")
    assert verdict.version == 3
    newest = world.core.policy_service.current()
    first = world.core.policy_service.history()[0]
    assert (newest.documents, newest.rules) == (first.documents, first.rules)
    assert (newest.author, newest.reason) == ("root", "back to version 1: eight were too many")
    with pytest.raises(NotFound, match="version 9"):
        await world.core.policy_service.rollback(ADMIN, 9, "?")
    with pytest.raises(Invalid, match="in force"):
        await world.core.policy_service.rollback(ADMIN, 3, "?")


async def test_a_rollback_that_would_take_away_a_queue_with_jobs_is_refused() -> None:
    world = await a_world()
    await world.policies(FIRST + OTHER)
    await world.submit(queue="other", resources={"gpus": 1})
    verdict = await world.core.policy_service.rollback(ADMIN, 1, "tidy")
    assert verdict.version is None
    assert "jobs are in it" in verdict.problems[0].detail
    assert world.core.records.policies.version == 2


async def test_what_is_paused_and_which_policies_are_open_is_told() -> None:
    world = await make_world()
    await world.policies(
        'apiVersion: federator/v1\nkind: BurstPolicy\nmetadata: {name: p}\nspec: {when: {advisory: true, window: {first_day: "2099-01-01"}}}\n'
    )
    await world.core.policy_service.pause_burst(ADMIN, on=True)
    status = world.core.views.burst()
    assert (status.paused, status.paused_by) == (True, "root")
    (row,) = status.policies
    assert (row.policy, row.mode, row.open, row.advisory) == ("BurstPolicy/p", "economic", False, True)


async def test_a_default_of_a_queue_is_said_to_be_one() -> None:
    world = await make_world()
    text = "apiVersion: federator/v1\nkind: Queue\nmetadata: {name: night}\nspec: {max_duration: 1h, deadline_budget: 2h}\n"
    (said,) = (line for line in world.core.policy_service.diff(text).added if "queue night" in line)
    assert "a max_duration of 1h for jobs that say none" in said
    assert "a deadline 2h after submission for jobs that say none" in said
