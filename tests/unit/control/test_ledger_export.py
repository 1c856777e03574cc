"""The sealed ledger is taken outside in order, once for certain and at most one seal twice, whatever fails in between; and a rollback is told of."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from federator.control.maintenance.ledger_export import PATIENCE_S, LedgerExport
from federator.control.messages.alerts import Alerts
from federator.control.messages.platform_alerts import PlatformAlerts
from federator.control.record.signer import HEAD_FILE, Signer, is_signed
from federator.control.reports.measurements import Measurements
from federator.kernel.errors import Unavailable
from federator.model.events import Alert, AlertKind
from federator.model.ledger import Head, Part, Verified, Verifier
from federator.settings import AlertSettings
from federator.telemetry import METRICS
from tests.support.dispatch import World, make_world


class Shelf:
    """A target that keeps lines in order. `fails`: how often it still fails, after so many lines of the seal were taken."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.names: list[str] = []
        self.fails, self.after = 0, 0

    async def append(self, name: str, lines: Sequence[bytes]) -> None:
        """Keep them, or some of them."""
        self.names.append(name)
        if self.fails:
            self.fails -= 1
            self.lines += lines[: self.after]
            raise Unavailable("the shelf is full")
        self.lines += lines


@pytest.fixture
async def world(tmp_path: Path) -> World:
    """With two lines from before there was a chain, and two seals."""
    world = await make_world()
    await world.submit()
    await world.submit()
    world.core.chain.signer = Signer(tmp_path)
    await world.core.chain.begin()
    await submit(world, 3)
    await submit(world, 2)
    return world


async def submit(world: World, number: int) -> None:
    for _ in range(number):
        world.clock.advance(1.0)
        await world.submit()
    await world.core.chain.seal()


def export_of(world: World, shelf: Shelf) -> LedgerExport:
    core = world.core
    return LedgerExport(core.records, core.chain, core.clock, "file:///shelf", shelf)


def verified(lines: Sequence[bytes], **options: Any) -> Verified:
    verifier = Verifier(is_signed, **options)
    for part in msgspec.json.Decoder(Part).decode_lines(b"\n".join(lines)):
        verifier.take(part)
    return verifier.end()


def whole(lines: Sequence[bytes], seals: int, count: int) -> None:
    found = verified(lines)
    assert ([each.text for each in found.findings], found.seals, found.lines) == ([], seals, count)
    assert found.unsealed == 0


async def test_what_is_exported_verifies_and_goes_on_where_it_was(world: World) -> None:
    shelf = Shelf()
    assert await export_of(world, shelf).catch_up()
    whole(shelf.lines, 2, 5)
    await submit(world, 2)
    after_a_restart = export_of(world, shelf)
    assert await after_a_restart.catch_up()
    assert await after_a_restart.catch_up(), "and there is no more"
    whole(shelf.lines, 3, 7)
    assert len(shelf.names) == 3


@pytest.mark.parametrize("after", [0, 2, 5])
async def test_what_was_taken_and_not_noted_comes_twice_and_is_no_finding(world: World, after: int) -> None:
    shelf = Shelf()
    export = export_of(world, shelf)
    shelf.fails, shelf.after = 2, after
    before = METRICS.value("federator_ledger_export_failures_total", target=export.name) or 0.0
    assert not await export.catch_up()
    assert not await export.catch_up()
    assert METRICS.value("federator_ledger_export_failures_total", target=export.name) == before + 2
    assert METRICS.value("federator_ledger_export_behind_seals", target=export.name) == 2
    assert await export.catch_up()
    whole(shelf.lines, 2, 5)
    assert METRICS.value("federator_ledger_export_behind_seals", target=export.name) == 0


async def test_a_repeat_hides_nothing(world: World) -> None:
    """A line that is changed in the repeat, or a seal of the same number that is another, is found."""
    shelf = Shelf()
    await export_of(world, shelf).catch_up()
    again = shelf.lines[-3:]
    assert not verified([*shelf.lines, *again]).findings
    changed = [again[0].replace(b'"who":"user:', b'"who":"user:not-'), *again[1:]]
    assert changed != again
    assert "was changed" in verified([*shelf.lines, *changed]).findings[0].text
    other = again[-1].replace(b'"number":2', b'"number":1')
    assert verified([*shelf.lines, *again[:-1], other]).findings
    assert "is missing" in verified([*shelf.lines[:-3], *again[1:]]).findings[0].text


async def test_lines_that_retention_dropped_are_named_as_dropped(world: World) -> None:
    """An export that begins later verifies from there on."""
    retention = world.core.sweeper.retention
    retention.configure(type(retention.settings)(ledger_lines=3, promised_s=0.0))
    world.clock.advance(86400.0)
    await retention.sweep()
    assert world.core.chain.state.first == 2
    shelf = Shelf()
    await export_of(world, shelf).catch_up()
    assert not verified(shelf.lines).findings


async def test_a_target_that_stays_behind_is_told_of_and_nothing_waits(world: World) -> None:
    shelf = Shelf()
    shelf.fails = 100
    export = export_of(world, shelf)
    assert not await export.catch_up()
    assert await told(world, export) == []
    await submit(world, 1)
    world.clock.advance(PATIENCE_S)
    assert not await export.catch_up()
    (alert,) = await told(world, export)
    assert "is not exported since" in alert.text
    assert "the shelf is full" in alert.text
    shelf.fails = 0
    await export.catch_up()
    assert not export.is_late()


async def test_a_target_that_is_slow_and_gets_on_is_not_late(world: World) -> None:
    class Slow(Shelf):
        async def append(self, name: str, lines: Sequence[bytes]) -> None:
            world.clock.advance(PATIENCE_S - 1)
            assert not export.is_late()
            await super().append(name, lines)

    export = export_of(world, Slow())
    assert await export.catch_up()


async def test_a_ledger_that_was_rolled_back_is_told_of_at_the_start_and_after(
    world: World, tmp_path: Path
) -> None:
    """Until a person has removed what was put aside; a dispatcher that died before it told, tells at its next start."""
    Signer(tmp_path).keep(Head(7, "f" * 64))
    again = world
    for _ in range(2):
        again = await make_world(world.core.records.store, world.clock)  # type: ignore[arg-type]
        again.core.chain.signer = Signer(tmp_path)
        await again.core.chain.begin()
        assert [head.number for head in again.core.chain.missing] == [7]
    (alert,) = await told(again)
    assert alert.kind is AlertKind.LEDGER
    assert f"{HEAD_FILE}.7" in alert.text
    assert await told(again) == [], "once"


async def test_what_is_sealed_and_exported_is_no_occasion_for_a_turn(world: World) -> None:
    await world.submit()
    await world.core.turn.once()
    occasion = world.core.turn.occasion
    world.core.records.subscribe(occasion.note)
    occasion.woken = False
    await world.core.chain.seal()
    await export_of(world, Shelf()).catch_up()
    assert not occasion.woken


async def told(world: World, *exports: LedgerExport) -> list[Alert]:
    core = world.core
    alerts = Alerts(
        records=core.records,
        event_writer=core.turn.event_writer,
        turn=core.turn,
        settings=AlertSettings(),
        chain=core.chain,
        measurements=Measurements(core.records),
        exports=exports,
        platform=PlatformAlerts(
            core.records, core.inventory, AlertSettings(), core.turn.observer.jobs.eligible
        ),
    )
    return [alert for alert in await alerts.look() if alert.kind is AlertKind.LEDGER]
