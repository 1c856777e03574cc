"""Sites as objects: what is said of each, what is carried out, and that neither people's objects nor their sites are touched unasked."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from federator.kernel.errors import Conflict, Forbidden, Unavailable
from federator.kube.api import decoded
from federator.model.sites import LinkState
from federator.operator import sites
from federator.operator.settings import Sites
from federator.operator.sites import FederatedSite, SiteKeeper
from federator.wire.fields import instant
from federator.wire.http import MemberRow, SiteRow

BY = "2030-01-01T00:00:00Z"


def row(name: str = "north", **how: Any) -> SiteRow:
    fields: dict[str, Any] = {"kind": "onprem", "status": "READY", "gpus": 8, "busy": 2, "members": 1}
    return SiteRow(name=name, **(fields | how))


class World:
    """An API server with objects of sites only, and a dispatcher with sites that can be drained."""

    def __init__(self, *rows: SiteRow, apply: bool = True, quiet_s: float = 60.0) -> None:
        self.rows = {each.name: each for each in rows}
        self.stored: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []
        """What the dispatcher was asked to do."""
        self.writes = 0
        self.refuses: Exception | None = None
        double: Any = self
        self.keeper = SiteKeeper(Sites(token_file=Path("/t"), apply=apply), double, double, 0.0, quiet_s)

    def apply(self, name: str, /, **spec: Any) -> None:
        """Somebody applies an object."""
        meta = self.stored.get(name, {"metadata": {"name": name, "uid": f"uid-{name}"}})["metadata"]
        self._put(name, {**self.stored.get(name, {}), "metadata": meta, "spec": spec})

    def delete(self, name: str) -> None:
        del self.stored[name]
        self.keeper.objects.put(name, None)

    def _put(self, name: str, stored: dict[str, Any]) -> None:
        meta = stored["metadata"]
        meta["generation"] = meta["resourceVersion"] = meta.get("generation", 0) + 1
        self.stored[name] = stored
        seen = stored | {"metadata": meta | {"resourceVersion": str(meta["resourceVersion"])}}
        self.keeper.objects.put(name, decoded(json.dumps(seen).encode(), FederatedSite))

    async def look(self) -> dict[str, dict[str, Any]]:
        """What is said of each object after another look."""
        await self.keeper.look()
        return {name: each.get("status", {}) for name, each in self.stored.items()}

    async def ask(self, method: str, path: str, *, body: Any = None, **_: Any) -> bytes:
        name = path.removeprefix(f"{sites.ALL}/").partition("/")[0]
        if method == "POST":
            name = body["metadata"]["name"]
            if name in self.stored:
                raise Conflict("it exists")
            body["metadata"]["uid"] = f"uid-{name}"
            self._put(name, body)
        elif method == "DELETE":
            assert body["preconditions"]["uid"] == self.stored[name]["metadata"]["uid"]
            self.delete(name)
        else:
            assert (method, body[0]["value"]) == ("PATCH", self.stored[name]["metadata"]["uid"])
            self.writes += 1
            self.stored[name]["metadata"]["generation"] -= 1  # a status is no other spec
            self._put(name, self.stored[name] | {"status": body[1]["value"]})
        return b"{}"

    async def sites(self) -> list[SiteRow]:
        return list(self.rows.values())

    async def site(self, name: str) -> SiteRow:
        return self.rows[name]

    async def drain(self, name: str, *, by: str, why: str) -> None:
        self.asked.append(f"drain {name}")
        if self.refuses is not None:
            raise self.refuses
        self.drained_by_hand(name, by=by, why=why)

    async def undrain(self, name: str) -> None:
        self.asked.append(f"undrain {name}")
        self.rows[name] = replace(
            self.rows[name], status="READY", draining=False, drain_by_at=None, drain_because=""
        )

    def drained_by_hand(self, name: str, *, by: str = "", why: str = "") -> None:
        because = f"{name} is drained by ada" + (f": {why}" if why else "")
        by_at = instant(by, "$.by") if by else None
        self.rows[name] = replace(
            self.rows[name], status="DRAINING", draining=True, drain_by_at=by_at, drain_because=because
        )


def conditions(status: dict[str, Any]) -> dict[str, str]:
    return {each["type"]: each["status"] for each in status["conditions"]}


async def test_each_site_has_an_object_that_says_how_it_is_and_asks_for_nothing() -> None:
    host = MemberRow(name="h", status="READY", version="1.2.0", link=LinkState(round_trip_s=0.0234))
    world = World(row(hosts=(host,), running=3), row("south", status="UNREACHABLE", age_s=3600.0))
    await world.look()
    said = await world.look()
    north = said["north"]
    assert (north["phase"], north["gpus"], north["free"], north["running"]) == ("Ready", 8, 6, 3)
    assert (north["version"], north["link"], north["drained"]) == ("1.2.0", "20 ms", False)
    assert conditions(north) == {"Ready": "True", "SpecInForce": "True"}
    assert (said["south"]["phase"], conditions(said["south"])["Ready"]) == ("Unreachable", "False")
    assert said["south"]["lastReport"]
    assert world.stored["north"]["spec"] == {}
    assert "" not in said["south"].values(), "the API server of 1.20 reads an empty text in a patch as null"
    world.drained_by_hand("north")
    assert (await world.look())["north"]["phase"] == "Draining"
    assert world.asked == []


async def test_a_site_is_drained_and_taken_back_as_its_object_says_and_the_same_again_asks_nothing() -> None:
    world = World(row())
    world.apply("north", drained=True, why="new racks", by=BY)
    said = await world.look()
    assert (said["north"]["phase"], said["north"]["drainedBy"]) == ("Draining", BY)
    assert said["north"]["message"] == "north is drained by ada: new racks"
    writes = world.writes
    await world.look()
    assert (world.asked, world.writes) == (["drain north"], writes)
    await world.undrain("north")
    await world.look()
    assert world.asked.count("drain north") == 2, "what is done by hand is not what the object says"
    world.apply("north", drained=True, why="new racks")
    assert "drainedBy" not in (await world.look())["north"]
    world.apply("north", drained=False)
    assert (await world.look())["north"]["phase"] == "Ready"
    world.drained_by_hand("north")
    world.apply("north")
    assert (await world.look())["north"]["drained"] is True, "without `drained` it stays as people have it"


async def test_once_its_moment_has_passed_a_site_is_still_drained_as_its_object_says() -> None:
    """The dispatcher refuses moments that have passed."""
    world = World(row())
    world.apply("north", drained=True, why="new racks", by="2020-01-01T00:00:00Z")
    for _ in range(2):
        said = await world.look()
        assert conditions(said["north"])["SpecInForce"] == "True"
    assert world.asked == ["drain north"]
    assert world.rows["north"].drain_by_at is None


async def test_where_nothing_is_to_be_applied_it_is_compared() -> None:
    world = World(row(), apply=False)
    world.apply("north", drained=True)
    said = await world.look()
    assert (conditions(said["north"])["SpecInForce"], world.asked) == ("False", [])
    world.drained_by_hand("north")
    assert conditions((await world.look())["north"])["SpecInForce"] == "True"


async def test_a_refusal_is_said_and_not_asked_for_again_at_once() -> None:
    world = World(row())
    world.refuses = Forbidden("carol may not drain north")
    world.apply("north", drained=True)
    for _ in range(2):
        said = await world.look()
        (judged,) = [each for each in said["north"]["conditions"] if each["type"] == "SpecInForce"]
        assert (judged["status"], judged["message"]) == ("False", "carol may not drain north")
    assert world.asked == ["drain north"]
    world.apply("north", drained=True, by="tomorrow")
    said = await world.look()
    assert "$.spec.by" in str(said["north"]["conditions"])
    assert world.asked == ["drain north"], "what is no instant is not asked for"


async def test_an_object_goes_with_its_site_unless_it_says_something() -> None:
    world = World(row(), row("south"))
    world.apply("later", drained=False)
    await world.look()
    world.apply("south", drained=True)
    world.rows.clear()
    said = await world.look()
    assert said.keys() == {"later", "south"}
    assert {each["phase"] for each in said.values()} == {"NotJoined"}
    assert world.asked == []


async def test_an_object_that_is_deleted_is_made_anew_and_its_site_stays_as_it_is() -> None:
    world = World(row())
    world.apply("north", drained=True)
    await world.look()
    world.delete("north")
    await world.look()
    said = await world.look()
    assert (said["north"]["phase"], world.stored["north"]["spec"]) == ("Draining", {})


async def test_names_that_kubernetes_does_not_take_or_that_are_taken_have_objects_too() -> None:
    world = World(row("North_2"), row("south"))
    world.apply("south", name="elsewhere")
    await world.look()
    said = await world.look()
    of = {each["spec"].get("name", name): name for name, each in world.stored.items()}
    assert of["North_2"].startswith("north-2-")
    assert of["south"].startswith("south-")
    assert said[of["North_2"]]["phase"] == said[of["south"]]["phase"] == "Ready"


async def test_of_two_objects_of_one_site_one_speaks_for_it() -> None:
    world = World(row())
    world.apply("a", name="north", drained=True)
    world.apply("north", drained=False)
    await world.look()
    said = await world.look()
    assert world.asked == ["drain north"]
    assert conditions(said["a"])["SpecInForce"] == "True"
    assert "object a is of the same site" in str(said["north"]["conditions"])


async def test_use_that_moves_is_written_once_in_a_while_and_all_else_at_once() -> None:
    for quiet_s, free in ((60.0, 6), (0.0, 3)):
        world = World(row(), quiet_s=quiet_s)
        await world.look()
        await world.look()
        world.rows["north"] = row(busy=5, running=4)
        assert (await world.look())["north"]["free"] == free
        world.rows["north"] = row(busy=5, status="PAUSED")
        assert (await world.look())["north"]["phase"] == "Paused"


async def test_what_cannot_be_done_for_one_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(row(), row("south"))
    world.apply("north", drained=True)
    world.refuses = Unavailable("busy")
    await world.look()
    assert (await world.look())["south"]["phase"] == "Ready"
    monkeypatch.setattr(sites, "MOST", 1)
    world.rows["west"] = row("west")
    assert "west" not in await world.look()
