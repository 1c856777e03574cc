"""Who is locked out at the sign-in provider leaves nothing running for ever, and who signs in needs no token for their series to go on."""

from typing import Any

import pytest
from msgspec.structs import replace

from federator.control.administration.sign_in import USE_S, SignIn
from federator.model.identity import Caller, Role, Token
from federator.model.series import Series, SeriesStatus
from federator.settings import OidcSettings
from federator.wire.jobfile import read_job
from tests.support.dispatch import World, make_world

DAY_S = 86400.0
POLICIES = """
apiVersion: federator/v1
kind: Team
metadata: {name: vision}
spec: {groups: [ml]}
---
apiVersion: federator/v1
kind: Queue
metadata: {name: lab}
spec: {allow: [{teams: [vision]}]}
"""
OIDC = OidcSettings(
    issuer="https://sso.example.org",
    client_id="federator",
    roles={"ml": "user", "staff": "user", "ops": "platform"},
)


class Provider:
    """Whose claims are what the test says."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.groups: tuple[str, ...] = ("ml",)

    def verify(self, _bearer: str) -> dict[str, Any]:
        """A token of this hour."""
        return {
            "iss": OIDC.issuer, "aud": OIDC.client_id, "exp": self._world.clock.now() + 3600,
            "preferred_username": "ada", "groups": list(self.groups),
        }  # fmt: skip


class Scene:
    """Ada, her provider, and her series that is due every day."""

    def __init__(self, world: World) -> None:
        self.world, self.provider = world, Provider(world)
        self.sign_in = SignIn(world.core.admission, OIDC, self.provider)  # type: ignore[arg-type]

    async def comes(self, *groups: str) -> Caller:
        """She asks for anything at all."""
        self.provider.groups = groups
        caller = self.sign_in.authenticate("a.signed.token")
        await self.sign_in.write_uses()
        return caller

    async def submits(self, queue: str = "lab") -> None:
        given = {"name": "nightly", "run": "true", "queue": queue, "every": "1d"}
        request = read_job(given, now=self.world.clock.now())
        await self.world.core.intake.submit(
            await self.comes(*self.provider.groups), request, client_id=None, body_hash="x"
        )

    async def after(self, days: float) -> Series:
        """What has become of the series by then, looked at each day."""
        for _ in range(int(days)):
            self.world.clock.advance(DAY_S)
            for job in list(self.world.core.records.open_jobs.values()):
                await self.world.core.intake.cancel(Caller("root", Role.ADMIN), job.id)
            await self.world.core.series_runs.look()
        return self.series

    @property
    def series(self) -> Series:
        (series,) = self.world.core.records.series.values()
        return series


@pytest.fixture
async def scene() -> Scene:
    world = await make_world(oidc=OIDC)
    await world.policies(POLICIES)
    return Scene(world)


async def test_it_goes_on_for_thirty_days_after_the_last_sign_in_and_says_why_it_stops(scene: Scene) -> None:
    await scene.submits()
    assert (await scene.after(29)).status is SeriesStatus.ACTIVE
    assert scene.series.runs >= 29
    series = await scene.after(2)
    assert (series.status, series.paused_by) == (SeriesStatus.PAUSED, "dispatcher")
    assert "ada has not signed in since" in series.paused_because
    assert "30d (oidc.absent_s)" in series.paused_because
    runs = series.runs
    await scene.comes("ml")
    assert (await scene.after(1)).status is SeriesStatus.ACTIVE
    assert (await scene.after(1)).runs > runs


async def test_an_old_token_that_has_expired_stops_nobody_who_signs_in(scene: Scene) -> None:
    await scene.world.put(
        Token(digest="d", name="ada", role=Role.USER, expires_at=scene.world.clock.now() + 1)
    )
    await scene.submits()
    series = await scene.after(5)
    assert (series.status, series.runs) == (SeriesStatus.ACTIVE, 5)


async def test_a_valid_token_stands_for_who_does_not_sign_in(scene: Scene) -> None:
    await scene.world.put(Token(digest="d", name="ada", role=Role.USER))
    await scene.submits()
    assert (await scene.after(40)).status is SeriesStatus.ACTIVE


async def test_who_has_lost_the_group_has_it_stopped_by_the_next_sign_in_that_shows_it(scene: Scene) -> None:
    await scene.submits()
    await scene.comes("staff")
    series = await scene.after(1)
    assert series.status is SeriesStatus.PAUSED
    assert "ada may not submit to queue lab" in series.paused_because
    await scene.comes("ml")
    assert (await scene.after(1)).status is SeriesStatus.ACTIVE


async def test_the_role_of_a_sign_in_counts_as_long_as_it_does(scene: Scene) -> None:
    """Queue default is open to the role platform alone."""
    scene.provider.groups = ("ops",)
    await scene.submits("default")
    assert (await scene.after(2)).status is SeriesStatus.ACTIVE
    await scene.comes("ml")
    assert (await scene.after(1)).status is SeriesStatus.PAUSED


async def test_a_series_of_an_older_version_has_the_whole_time_from_the_first_look_on(scene: Scene) -> None:
    await scene.submits()
    await scene.after(10)
    await scene.world.put(replace(scene.series, signed_in_at=None))
    assert (await scene.after(29)).status is SeriesStatus.ACTIVE
    assert (await scene.after(3)).status is SeriesStatus.PAUSED


async def test_sign_ins_are_written_to_the_hour_and_only_for_who_has_a_series(scene: Scene) -> None:
    writes: list[int] = []
    scene.world.core.records.subscribe(lambda changes: writes.append(len(changes.rows)))
    for _ in range(50):
        await scene.comes("ml")
    assert writes == []
    await scene.submits()
    writes.clear()
    for _ in range(50):
        await scene.comes("ml")
    assert len(writes) == 1
    scene.world.clock.advance(USE_S + 1)
    await scene.comes("ml")
    assert len(writes) == 2
