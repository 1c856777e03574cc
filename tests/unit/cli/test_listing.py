"""`federator list`: in which order, with which columns, for people and for programs."""

import csv
import io
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast

import duckdb
import pytest
from rich.console import Console

from federator.cli import listing
from federator.cli.app import run_command
from federator.cli.columns import job_columns, short_ids
from federator.cli.layout import table
from federator.cli.phrases import moment_at, plain, when_exactly
from federator.client import JobFilter
from federator.kernel.errors import Invalid
from federator.wire.http import JobPage
from tests.support.fake_dispatcher import FakeDispatcher
from tests.support.waiting import PATIENCE_S
from tests.unit.cli.answers import NOW, TIME, row
from tests.unit.cli.conftest import Command

if TYPE_CHECKING:
    from federator.client import Verbs

ROWS = (
    row(3, name="wide", gpus=8, nodes=2, labels={"team": "vision"}),
    row(2, name="late", priority=90, started_at=NOW - 30.25),
    row(1, name="early", owner="ben"),
)


@pytest.fixture
def jobs(fake: FakeDispatcher) -> FakeDispatcher:
    fake.answer("GET /v1/jobs", JobPage(ROWS, total=3), headers=TIME)
    fake.answer("GET /v1/series", [])
    return fake


def names(said: str) -> list[str]:
    return [line.split()[1] for line in said.splitlines()[1:]]


def test_the_dispatcher_sorts_and_filters(federator: Command, jobs: FakeDispatcher) -> None:
    assert names(federator("list", "--sort", "-gpus", "--owner", "ada", "--text", "wi").out)[0] == "wide"
    federator("list", "--sort", "age", "--reason", "behind", "--at-risk", "--since", "1970-01-01T00:01Z")
    first, second = (heard.query for heard in jobs.of("GET /v1/jobs"))
    assert first == {"sort": "-gpus", "owner": "ada", "text": "wi", "collapse": "true", "limit": "50"}
    assert (second["sort"], second["reason"], second["since"]) == ("-submitted", "behind", "60.0")
    assert second["at_risk"] == "true"
    wrong = federator("list", "--sort", "prioritty")
    assert (wrong.code, wrong.err) == (2, "error: --sort: there is no 'prioritty' (did you mean priority?)\n")


@pytest.mark.usefixtures("jobs")
def test_columns_are_those_that_were_asked_for(federator: Command) -> None:
    lines = federator("list", "--columns", "name,owner,gpus").out.splitlines()
    assert [line.split() for line in lines[:2]] == [["NAME", "OWNER", "GPUS"], ["wide", "ada", "2x8"]]
    wrong = federator("list", "--columns", "name,sise")
    assert (wrong.code, "did you mean site?" in wrong.err) == (2, True)
    assert federator("list", "--columns", "name", "-o", "json").code == 2


@pytest.mark.usefixtures("jobs")
def test_parquet_has_the_fields_of_json_with_types(
    federator_bytes: Callable[..., bytes], tmp_path: Path
) -> None:
    (tmp_path / "jobs.parquet").write_bytes(federator_bytes("list", "-o", "parquet"))
    asked = (
        f"SELECT name, gpus, epoch(submitted_at), started_at IS NULL, labels FROM '{tmp_path}/jobs.parquet'"
    )
    found = duckdb.execute(asked).fetchall()
    assert found[0] == ("wide", 8.0, ROWS[0].submitted_at, True, '{"team":"vision"}')
    (tmp_path / "few.parquet").write_bytes(federator_bytes("list", "-o", "parquet", "--columns", "id,gpus"))
    assert duckdb.execute(f"SELECT * FROM '{tmp_path}/few.parquet' LIMIT 1").fetchall() == [(ROWS[0].id, 8.0)]


@pytest.fixture
def federator_bytes(capsysbinary: pytest.CaptureFixture[bytes]) -> Callable[..., bytes]:
    """Run the command with these words; what it wrote, which is no text."""

    def run(*words: str) -> bytes:
        assert run_command(words) == 0
        return capsysbinary.readouterr().out

    return run


@pytest.mark.usefixtures("jobs")
def test_csv_has_the_fields_of_json(federator: Command) -> None:
    rows = list(csv.DictReader(io.StringIO(federator("list", "-o", "csv").out)))
    assert [each["name"] for each in rows] == ["wide", "late", "early"]
    assert rows[0]["labels"] == '{"team":"vision"}'
    assert rows[1]["started_at"] == "2025-10-09T08:52:49.750Z"
    assert federator("list", "-o", "csv", "--columns", "id,gpus").out.splitlines()[:2] == [
        "id,gpus",
        "job-3,8",
    ]
    assert "did you mean gpus?" in federator("list", "-o", "csv", "--columns", "gpu").err


@pytest.mark.usefixtures("jobs", "berlin")
def test_instants_are_iso_for_programs_and_local_for_people(federator: Command, fake: FakeDispatcher) -> None:
    assert json.loads(federator("list", "-o", "json").out)[0]["submitted_at"] == "2025-10-09T08:52:20Z"
    fake.answer("GET /v1/queues", b"[]")
    assert federator("queues", "-o", "csv").out == "\n"
    assert when_exactly(NOW + 3600, NOW) == "in 1h (2025-10-09 11:53:20 CEST)"


@pytest.mark.usefixtures("jobs")
def test_watching_needs_a_terminal_and_tables(federator: Command) -> None:
    assert "needs a terminal" in federator("list", "--watch").err
    assert "shows tables only" in federator("list", "--watch", "-o", "json").err


async def test_watching_asks_for_as_many_as_the_terminal_has_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    class Client:
        async def jobs(self, _: JobFilter, *, limit: int) -> JobPage:
            asked.append(limit)
            return JobPage(ROWS, total=3)

        def now(self) -> float:
            return NOW

    monkeypatch.setattr(listing, "console", lambda: Console(width=80, height=20))
    for limit in (50, 5, 0):
        await listing.AS_IT_COMES.drawn(cast("Verbs", Client()), JobFilter(), limit, "table")
    assert asked == [20 - listing.FRAME_LINES, 5, 20 - listing.FRAME_LINES]


def test_an_id_is_as_short_as_tells_it_from_the_others() -> None:
    ids = [
        "job-01jd3v0000aaaaaaaaaaaaaaaa",
        "job-01jd3v0000aaaaaaaaaaaaaaab",
        "job-01jd3v0001zzzzzzzzzzzzzzzz",
    ]
    short = short_ids(ids)
    assert short[ids[2]] == "job-01jd3v0001zz"
    assert short[ids[0]] == ids[0]
    assert short_ids([]) == {}


def test_eighty_columns_keep_state_gpus_age_and_reason() -> None:
    made = row(
        1,
        id="job-01jd3v0000aaaaaaaaaaaaaaaa",
        name="a-name-of-many-letters",
        models="A100",
        gpus=4,
        site="north",
    )
    out = Console(file=io.StringIO(), width=80)
    out.print(table([made], job_columns(NOW, [made]), width=80))
    assert isinstance(out.file, io.StringIO)
    titles = out.file.getvalue().splitlines()[0].split()
    assert {"ID", "STATUS", "GPUS", "AGE", "BECAUSE"} <= set(titles)


def test_completion_is_installed_and_completes(
    federator: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for shell in ("bash", "zsh", "fish"):
        ran = federator("completion", shell)
        assert ran.code == 0, ran.err
        assert Path(ran.out.strip()).expanduser().stat().st_size > 1000
    script = "source ~/.bashrc; f=$(complete -p federator | sed 's/.*-F \\([^ ]*\\).*/\\1/'); COMP_WORDS=(federator list --so); COMP_CWORD=2; $f; echo $COMPREPLY"
    completed = subprocess.run(["bash", "-c", script], env=dict(os.environ), capture_output=True, text=True, timeout=PATIENCE_S, check=False)  # fmt: skip
    assert completed.stdout.strip() == "--sort", completed.stderr


def test_a_zsh_that_loads_no_completions_is_set_up_and_another_is_left_alone(
    federator: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for _ in range(2):
        assert federator("completion", "--shell", "zsh").code == 0
    lines = (tmp_path / ".zshrc").read_text().splitlines()
    assert lines[-1] == "autoload -Uz compinit && compinit"
    assert sum("compinit" in line for line in lines) == 1
    assert lines.index(next(line for line in lines if line.startswith("fpath="))) < len(lines) - 1
    (tmp_path / ".zshrc").write_text("source $ZSH/oh-my-zsh.sh\n")
    assert federator("completion", "--shell", "zsh").code == 0
    assert "compinit" not in (tmp_path / ".zshrc").read_text()


@pytest.mark.usefixtures("berlin")
def test_instants_are_written_in_the_same_forms_everywhere() -> None:
    """It is 10:53:20 in Berlin."""
    assert moment_at("2h", "--since", NOW) == NOW - 7200
    assert moment_at("2h ago", "--since", NOW) == NOW - 7200
    assert moment_at("2h", "--deadline", NOW, ahead=True) == NOW + 7200
    assert moment_at("2h from now", "--deadline", NOW, ahead=True) == NOW + 7200
    assert moment_at("10:00", "--since", NOW) == NOW - 3200
    assert moment_at("11:00", "--since", NOW) == NOW + 400 - 86_400
    assert moment_at("11:00", "--deadline", NOW, ahead=True) == NOW + 400
    assert moment_at("2025-10-09T10:53:20", "--since", NOW) == NOW
    assert moment_at("2025-10-09T08:53:20Z", "--since", NOW) == NOW
    with pytest.raises(Invalid, match="or how long ago, such as 2h"):
        moment_at("last week", "--since", NOW)
    assert moment_at("today", "--since", NOW) == NOW - 39_200
    assert moment_at("yesterday", "--since", NOW) == NOW - 39_200 - 86_400


@pytest.mark.usefixtures("berlin")
def test_moments_in_the_dispatchers_sentences_are_told_by_the_local_clock() -> None:
    assert (
        plain("starts at about 2026-07-01 22:30 UTC, or so") == "starts at about 2026-07-02 00:30 CEST, or so"
    )
    assert plain("starts at 2026-01-31 23:30:05 UTC") == "starts at 2026-02-01 00:30:05 CET"
    assert plain("at 14:02 UTC") in ("at 15:02 CET", "at 16:02 CEST")
    assert plain("at 99:99 UTC") == "at 99:99 UTC"
