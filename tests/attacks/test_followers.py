"""What is remembered for those who follow changes is bounded by its bytes: an agent whose report is long, and another each second, fills no memory."""

import msgspec
import pytest

from federator.api import live
from federator.api.live import LiveRows
from federator.wire.changes import SiteLine
from tests.support.dispatch import make_world


def line(number: int) -> SiteLine:
    models = tuple(f"{number}-{each}-{'x' * 500}" for each in range(20))
    return SiteLine(name="north", kind="onprem", status="READY", models=models)


async def test_long_rows_that_change_all_the_time_are_forgotten_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live, "REMEMBERED_BYTES", 100_000)
    rows = LiveRows((await make_world()).core, lambda: 0.0)
    for number in range(100):
        rows.note("sites", {"north": line(number)})
    held = sum(len(msgspec.json.encode(each.patch)) for each in rows.remembered)
    assert 0 < held <= 100_000
    assert held == rows.remembered_bytes
    assert b'"reset":true' not in rows.news(("sites",), "", rows.number - 1), (
        "who keeps up has the news alone"
    )
    assert b'"reset":true' in rows.news(("sites",), "", 1), "who was away for too long has all rows anew"
    rows.note("sites", {"north": line(100)} | {f"s{n}": line(n) for n in range(20)})
    assert rows.remembered_bytes <= 100_000
    assert b"s19" in rows.news(("sites",), "", rows.number - 1), "a change that is larger than all of it, too"
    rows.close()
