"""What was used, as people and spreadsheets read it."""

import csv
import io
import json
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import duckdb

from federator.wire.usage import UsageReport, UsageRow
from tests.support.fake_dispatcher import FakeDispatcher
from tests.support.waiting import PATIENCE_S
from tests.unit.cli.conftest import Command

REPORT = UsageReport(
    whose="everybody",
    since=0.0,
    until=1.0,
    rows=(
        UsageRow(
            team="speech",
            month="2026-11",
            gpu_s=7200.0,
            owned_usd=1.5,
            usd=1.5,
            jobs=1,
            wait_s=90.0,
            energy_kwh=1.25,
            power_usd=0.4,
            co2_kg=0.06,
        ),
        UsageRow(team="=1+1, x", month="2026-11", rented_usd=0.25, usd=0.25, deadlines=2, deadlines_met=1),
    ),
    total=UsageRow(
        gpu_s=7200.0,
        owned_usd=1.5,
        rented_usd=0.25,
        usd=1.75,
        jobs=1,
        energy_kwh=1.25,
        power_usd=0.4,
        co2_kg=0.06,
    ),
)


def test_rows_and_their_total(federator: Command, fake: FakeDispatcher) -> None:
    fake.answer("GET /v1/usage", REPORT)
    ran = federator("usage", "--by", "team,month", "--everybody", "--since", "2026-11-01T00:00:00Z")
    assert ran.code == 0, ran.err
    lines = [line.split() for line in ran.out.splitlines()]
    assert lines[0][:3] == ["TEAM", "MONTH", "GPU-H"]
    assert lines[1][:3] == ["speech", "2026-11", "2.00"]
    assert lines[-1][0] == "total"
    assert "1.75" in lines[-1]
    assert "1 of 2" in ran.out
    assert {"KWH", "POWER", "CO2"} <= set(lines[0])
    assert {"1.25", "0.40", "0.06"} <= set(lines[1])
    assert "-" in lines[2], "of whom nothing is known"
    assert fake.of("GET /v1/usage")[0].query == {
        "since": "1793491200.0",
        "by": "team,month",
        "everybody": "true",
    }


def test_csv_has_the_keys_that_were_asked_for_and_every_figure(
    federator: Command, fake: FakeDispatcher
) -> None:
    fake.answer("GET /v1/usage", REPORT)
    ran = federator("usage", "--by", "team,month", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(ran.out)))
    assert [row["team"] for row in rows] == ["speech", "=1+1, x"]
    assert "user" not in rows[0]
    assert sum(float(row["usd"]) for row in rows) == REPORT.total.usd


def test_parquet_has_the_same_rows_with_money_to_the_cent(fake: FakeDispatcher, tmp_path: Path) -> None:
    fake.answer("GET /v1/usage", REPORT)
    command = [sys.executable, "-m", "federator", "usage", "--by", "team", "-o", "parquet"]
    environ = {**os.environ, "FEDERATOR_SERVER": fake.url, "HOME": str(tmp_path)}
    made = subprocess.run(command, env=environ, stdout=subprocess.PIPE, check=True, timeout=PATIENCE_S).stdout
    (tmp_path / "usage.parquet").write_bytes(made)
    found = duckdb.execute(f"SELECT team, owned_usd, wait_s, jobs FROM '{tmp_path}/usage.parquet'").fetchall()
    assert found == [("speech", Decimal("1.50"), 90.0, 1), ("=1+1, x", Decimal("0.00"), None, 0)]


def test_json_is_the_whole_answer(federator: Command, fake: FakeDispatcher) -> None:
    fake.answer("GET /v1/usage", REPORT)
    assert json.loads(federator("usage", "-o", "json").out)["total"]["usd"] == 1.75


def test_what_cannot_be_grouped_by_is_refused_before_anybody_is_asked(
    federator: Command, fake: FakeDispatcher
) -> None:
    ran = federator("usage", "--by", "colour")
    assert ran.code == 2
    assert "user, team, queue" in ran.err
    assert not fake.of("GET /v1/usage")
