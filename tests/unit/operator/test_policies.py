"""Policies as objects: what set they make, what is said of each, and that the same again changes nothing."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from federator.api.problems import problem_of
from federator.kernel.errors import NotFound
from federator.kube.api import decoded
from federator.operator import policies
from federator.operator.policies import FederatedPolicy, PolicyKeeper, text_of
from federator.operator.settings import Policies
from federator.wire.administration import DocumentChange, PolicyDiff, PolicyVerdict
from federator_policies.documents import compile_set, load
from tests.support.waiting import until


def policy(called: str, kind: str = "Queue", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": called, "uid": f"uid-{called}", "generation": 1},
        "spec": {"kind": kind, "spec": spec},
    }


class World:
    """An API server with policies only, and a dispatcher that keeps one set of them."""

    def __init__(self, *, apply: bool = True) -> None:
        self.stored: dict[str, dict[str, Any]] = {}
        self.texts: list[str] = []
        self.reasons: list[str] = []
        self.writes = 0
        self.listed = b""
        double: Any = self
        self.keeper = PolicyKeeper(Policies(token_file=Path("/t"), apply=apply), double, double, 0.0)

    async def look(self, *objects: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """The objects as they are now; what is said of each."""
        before = self.stored
        self.stored = {each["metadata"]["name"]: each for each in objects}
        for name, each in self.stored.items():
            each["status"] = before.get(name, {}).get("status", {})
        for name, each in self.stored.items():
            self.keeper.objects.put(name, decoded(json.dumps(each).encode(), FederatedPolicy))
        for name in before.keys() - self.stored.keys():
            self.keeper.objects.put(name, None)
        await self.keeper.look()
        return {name: each["status"] for name, each in self.stored.items()}

    async def ask(self, method: str, path: str, *, body: Any = None, **_: Any) -> bytes:
        if method == "GET":
            return self.listed
        assert method == "PATCH"
        name = path.split("/")[-2]
        if name not in self.stored:
            raise NotFound(path)
        assert body[0]["value"] == self.stored[name]["metadata"]["uid"]
        self.stored[name]["status"] = body[1]["value"]
        self.writes += 1
        return b"{}"

    async def diff_policies(self, text: str) -> PolicyDiff:
        version = len(self.texts)
        try:
            after = load(text)
            compile_set(after)
        except ExceptionGroup as group:
            return PolicyDiff(version=version, problems=tuple(map(problem_of, group.exceptions)))
        except Exception as error:  # noqa: BLE001 - as the dispatcher answers it
            return PolicyDiff(version=version, problems=(problem_of(error),))
        before = {each.policy: each.text for each in load(self.texts[-1])} if self.texts else {}
        now = {each.policy: each.text for each in after}
        names = {name for name in before.keys() | now.keys() if before.get(name) != now.get(name)}
        changes = tuple(
            DocumentChange(name, "changed" if name in now else "removed") for name in sorted(names)
        )
        return PolicyDiff(version=version, documents=changes)

    async def apply_policies(self, text: str, reason: str, *, instead_of: int) -> PolicyVerdict:
        self.texts.append(text)
        self.reasons.append(reason)
        return PolicyVerdict(version=len(self.texts))


async def test_all_objects_are_the_set_and_the_same_again_changes_nothing() -> None:
    world = World()
    said = await world.look(policy("research", max_duration="60m"), policy("default"))
    assert [each["phase"] for each in said.values()] == ["InForce", "InForce"]
    assert said["research"]["version"] == 1
    assert [each.policy for each in load(world.texts[0])] == ["Queue/default", "Queue/research"]
    assert "Queue/research" in world.reasons[0]
    writes = world.writes
    await world.look(policy("default"), policy("research", max_duration="60m"))
    assert (len(world.texts), world.writes) == (1, writes)
    said = await world.look(policy("default"))
    assert (len(world.texts), said["default"]["version"]) == (2, 2)
    await world.look()
    assert len(world.texts) == 2, "without any object nothing is applied"


def by_hand(world: World, *objects: dict[str, Any]) -> None:
    """Those documents are in force, and no object of theirs is known."""
    world.texts.append(text_of([decoded(json.dumps(each).encode(), FederatedPolicy) for each in objects]))


async def test_what_is_in_force_and_has_no_object_is_not_ended() -> None:
    world = World()
    by_hand(world, policy("default"), policy("research"))
    said = await world.look(policy("default", weight=2))
    assert (len(world.texts), said["default"]["phase"]) == (1, "Waits")
    assert "Queue/research" in said["default"]["message"]
    assert "make an object of each" in said["default"]["message"]
    said = await world.look(policy("default", weight=2), policy("research"))
    assert (len(world.texts), said["default"]["phase"]) == (2, "InForce")


async def test_after_all_objects_are_gone_the_first_ones_anew_end_nothing() -> None:
    world = World()
    await world.look(policy("default"), policy("research"))
    await world.look()
    said = await world.look(policy("default"))
    assert (len(world.texts), said["default"]["phase"]) == (1, "Waits")


async def test_a_document_that_is_in_force_again_by_hand_is_not_ended_for_an_older_deletion() -> None:
    world = World()
    await world.look(policy("default"), policy("research"))
    await world.look(policy("default"))
    by_hand(world, policy("default"), policy("research"))
    await world.look(policy("default"))
    assert len(world.texts) == 3


async def test_objects_made_one_after_the_other_are_one_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies, "SETTLED_S", 0.2)
    world = World()

    async def listed() -> None:
        world.keeper.objects.synced.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(world.keeper.objects, "run", listed)
    keeping = asyncio.ensure_future(world.keeper.run())
    await world.keeper.objects.synced.wait()
    for name in ("a", "b", "c"):
        world.stored[name] = policy(name) | {"status": {}}
        world.keeper.objects.put(name, decoded(json.dumps(world.stored[name]).encode(), FederatedPolicy))
        await asyncio.sleep(0.02)
    await until(lambda: world.texts, "a version")
    assert [each.policy for each in load(world.texts[0])] == ["Queue/a", "Queue/b", "Queue/c"]
    keeping.cancel()


async def test_what_is_wrong_is_said_by_field_and_keeps_the_set_as_it_is() -> None:
    world = World()
    await world.look(policy("default"))
    said = await world.look(
        policy("default", weight=2), policy("research", max_duration="60x"), policy("odd", kind="Nope")
    )
    assert len(world.texts) == 1
    assert said["research"]["phase"] == said["odd"]["phase"] == "Refused"
    assert said["research"]["message"].startswith("$.spec.max_duration: Queue/research, line")
    assert said["default"]["phase"] == "Waits"
    assert "Nope/odd, Queue/research" in said["default"]["message"]
    said = await world.look(policy("default", weight=2))
    assert (said["default"]["phase"], len(world.texts)) == ("InForce", 2)
    assert "message" not in said["default"]


async def test_two_objects_of_one_document_are_both_refused() -> None:
    world = World()
    twice = policy("other")
    twice["spec"]["name"] = "research"
    said = await world.look(policy("research"), twice)
    assert [each["phase"] for each in said.values()] == ["Refused", "Refused"]
    assert world.texts == []


async def test_where_nothing_is_to_be_applied_it_is_compared() -> None:
    world = World(apply=False)
    world.texts.append(text_of([decoded(json.dumps(policy("default")).encode(), FederatedPolicy)]))
    said = await world.look(policy("default"), policy("research"))
    assert (said["default"]["phase"], said["research"]["phase"]) == ("InForce", "NotInForce")
    assert len(world.texts) == 1


async def test_a_set_of_which_an_object_cannot_be_read_is_left_alone() -> None:
    world = World()
    await world.look(policy("a"), policy("b"))
    listed = json.dumps({"items": [policy("a"), {"metadata": {"name": "b"}, "spec": "?"}], "metadata": {}})
    world.listed = listed.encode()
    watching = asyncio.ensure_future(world.keeper.objects.run())
    while not world.keeper.objects.trouble:
        await asyncio.sleep(0)
    await world.look(policy("a"))
    assert len(world.texts) == 1
    watching.cancel()


@pytest.mark.parametrize("name", ["Research_2", ""])
def test_a_document_may_be_called_otherwise_than_its_object(name: str) -> None:
    document = policy("research-vision")
    document["spec"]["name"] = name
    (found,) = load(text_of([decoded(json.dumps(document).encode(), FederatedPolicy)]))
    assert found.name == (name or "research-vision")
