"""`policy replay` and the what-if questions of `simulate`: from files and from a dispatcher, on a terminal, as JSON and as a page."""

import json
from pathlib import Path

import pytest

from federator.model.rules import PolicyDocument, PolicySet
from federator.model.sites import SiteKind
from federator.wire.recorded import RecordedJob, RecordedJobs, RecordedPool, RecordedSite, RecordedWorld
from tests.support.fake_dispatcher import FakeDispatcher
from tests.unit.cli.answers import NOW
from tests.unit.cli.conftest import Command

WORLD = """
name: lab
sites:
  - {name: a, price: 0.5 USD, pools: [{model: A100, nodes: 1, gpus_per_node: 4}]}
burst:
  - {name: big, provider: cloud, site: rented, model: A100, gpus: 4, price: 8 USD, delay: 5m}
policies: p
"""
QUEUE = "apiVersion: federator/v1\nkind: Queue\nmetadata: {name: q}\nspec: {max_duration: 1d}\n"
BURST = "apiVersion: federator/v1\nkind: BurstPolicy\nmetadata: {name: rent}\nspec: {when: {mode: always}}\n"
TRACE = "name,submit_s,run_s,gpus,deadline_s,queue,value_usd,max_duration_s\n" + "".join(
    f"j{n},{60 * n},3600,4,{60 * n + 5400},q,90,7200\n" for n in range(3)
)
POOL = RecordedPool(name="main", model="A100", gpu_memory_mib=81920, nodes=1, gpus_per_node=4, cpus_milli_per_node=64_000, memory_mib_per_node=500_000)  # fmt: skip
SITE = RecordedSite(name="lab", kind=SiteKind.ONPREM, price_usd_gpu_h=0.5, pools=(POOL,))


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "q.yaml").write_text(QUEUE)
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "q.yaml").write_text(QUEUE)
    (tmp_path / "new" / "burst.yaml").write_text(BURST)
    (tmp_path / "w.yaml").write_text(WORLD)
    (tmp_path / "t.csv").write_text(TRACE)
    return tmp_path


def given(files: Path) -> tuple[str, ...]:
    return ("--world", str(files / "w.yaml"), "--trace", str(files / "t.csv"))


def jobs(*ran_s: float) -> RecordedJobs:
    found = [
        RecordedJob(id=f"job-{n:06}", name="train", queue="q", owner="ada", ready_at=NOW - 7200 + 60 * n, run_s=run_s, ended=True, gpus=4, deadline_at=NOW)
        for n, run_s in enumerate(ran_s)
    ]  # fmt: skip
    return RecordedJobs(jobs=tuple(found[::-1]), left_out=1)


def live(fake: FakeDispatcher, *ran_s: float) -> None:
    fake.answer("GET /v1/recorded/world", RecordedWorld(taken_at=NOW, sites=(SITE,)))
    fake.answer("GET /v1/recorded/jobs", jobs(*ran_s))
    documents = (PolicyDocument("Queue", "q", QUEUE),)
    fake.answer("GET /v1/policies", PolicySet(version=3, author="pat", reason="x", applied_at=NOW, documents=documents))  # fmt: skip


def rows(text: str) -> dict[str, list[str]]:
    return {line.split("  ")[0]: line.split()[-3:] for line in text.splitlines() if "  " in line}


def test_a_proposed_set_is_run_beside_the_one_of_the_world(federator: Command, files: Path) -> None:
    page, figures = files / "r.html", files / "r.json"
    ran = federator(
        "policy", "replay", "-f", str(files / "new"), *given(files), "--report", str(page), "--json", str(figures)
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert "proposed: BurstPolicy/rent is new" in ran.out
    assert "turns are a minute apart here" in ran.out
    assert "turns are a minute apart here" in page.read_text()
    told = rows(ran.out)
    assert told["deadlines met"] == ["1", "3", "+2"]
    assert told["rent, USD"][0] == "0.00"
    assert "2 of 3 jobs run elsewhere" in ran.out
    assert "a → rented (on-demand)" in ran.out
    assert "in force, seed 0: 3 of 3 jobs done" in ran.err
    contrast = json.loads(figures.read_text())["contrast"]
    assert (contrast["newly_met"], contrast["newly_missed"]) == (2, 0)
    assert float(told["rent, USD"][1]) == pytest.approx(contrast["total"]["after"]["rented_usd"], abs=0.01)
    text = page.read_text()
    assert "BurstPolicy/rent is new" in text
    assert "https://" not in text
    assert text.count("<table") >= 2


def test_a_set_is_replayed_on_the_load_of_a_dispatcher(
    federator: Command, fake: FakeDispatcher, files: Path
) -> None:
    live(fake, 600.0, 600.0)
    ran = federator("policy", "replay", str(files / "new"), "--since", "2h")
    assert ran.code == 0, ran.err
    assert fake.of("GET /v1/recorded/jobs")[0].query == {"since": str(NOW - 7200.0)}
    assert "without 1 jobs that never ran or asked for part of a GPU" in ran.out
    assert "0 of 2 jobs run elsewhere" in ran.out


def test_a_set_that_is_wrong_is_refused_before_anything_is_run(
    federator: Command, fake: FakeDispatcher, files: Path
) -> None:
    (files / "new" / "q.yaml").write_text(QUEUE.replace("max_duration: 1d", "max_durations: 1d"))
    ran = federator("policy", "replay", str(files / "new"))
    assert ran.code == 1
    assert "max_duration" in ran.err
    assert not fake.heard
    assert "name one or more YAML files" in federator("policy", "replay").err
    one = federator("policy", "replay", str(files / "p"), "--world", str(files / "w.yaml"))
    assert "--trace: is missing" in one.err


def test_jobs_that_the_proposed_set_refuses_are_told(federator: Command, files: Path) -> None:
    (files / "new" / "q.yaml").write_text(QUEUE.replace("name: q", "name: other"))
    ran = federator("policy", "replay", str(files / "new"), *given(files))
    assert ran.code == 0, ran.err
    assert rows(ran.out)["jobs refused"] == ["0", "3", "+3"]
    assert "3 jobs are refused:" in ran.out


TEAMS = """---
apiVersion: federator/v1
kind: Team
metadata: {name: them}
spec: {members: [MEMBER]}
"""


def test_a_set_with_teams_says_who_could_no_longer_submit(federator: Command, files: Path) -> None:
    closed = QUEUE.replace("max_duration: 1d", "max_duration: 1d, allow: [{teams: [them]}]") + TEAMS
    (files / "new" / "q.yaml").write_text(closed.replace("MEMBER", "eve"))
    ran = federator("policy", "replay", str(files / "new"), *given(files))
    assert ran.code == 0, ran.err
    assert "Team/them is new" in ran.out
    assert "user could no longer submit to q (3 jobs of this load)" in ran.out
    assert "judged by name alone" in ran.out
    (files / "new" / "q.yaml").write_text(closed.replace("MEMBER", "user"))
    assert (
        "could no longer submit" not in federator("policy", "replay", str(files / "new"), *given(files)).out
    )


def test_what_if_is_run_beside_what_is(federator: Command, files: Path) -> None:
    schedule = files / "s.csv"
    ran = federator(
        "simulate", *given(files), "--add-pool", "b=4xA100x2", "--price", "b=0.1", "--schedule-out", str(schedule)
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert "what if: a new site b with 2 hosts of 4 A100" in ran.out
    assert "what if: b costs 0.1 USD per GPU-hour (was 0)" in ran.out
    assert rows(ran.out)["deadlines met"] == ["1", "3", "+2"]
    assert "AS IT IS" in ran.out
    assert {path.name for path in files.glob("s-*.csv")} >= {"s-as-it-is-0.csv", "s-what-if-0.csv"}


def test_bad_questions_are_answered_with_what_could_be_asked(federator: Command, files: Path) -> None:
    for words, told in (
        (("--add-pool", "a=8xH100"), "lab=8xH100x4"),
        (("--drain", "a"), "the only site"),
        (("--drain", "mars"), "there are a, rented"),
        (("--price", "big"), "lab=0.30"),
        (("--add-pool", "b=1xL4x1", "--seed", "1", "2"), "one scheduler and one seed"),
        (("--from-live",), "leave out --world and --trace"),
    ):
        ran = federator("simulate", *given(files), *words)
        assert ran.code == 2, words
        assert told in ran.err
    assert "--world: is missing" in federator("simulate").err
    assert "--since" in federator("simulate", "--from-live", "--since", "a week").err


def test_a_live_world_is_simulated_and_kept(federator: Command, fake: FakeDispatcher, files: Path) -> None:
    live(fake, 3600.0, 3600.0, 3600.0)
    world, trace = files / "kept.yaml", files / "kept.csv"
    ran = federator(
        "simulate", "--from-live", "--since", "7d", "--save-world", str(world), "--save-trace", str(trace), "--scheduler", "fifo"
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert "without 1 jobs that never ran or asked for part of a GPU" in ran.err
    assert (files / "kept.policies.yaml").read_text() == QUEUE
    again = federator("simulate", "--world", str(world), "--trace", str(trace), "--scheduler", "fifo")
    assert again.code == 0, again.err
    assert again.out == ran.out


def test_all_that_is_wrong_with_a_proposed_set_is_told_by_file_and_line(
    federator: Command, files: Path
) -> None:
    good, bad = files / "good.yaml", files / "bad.yaml"
    good.write_text(QUEUE)
    bad.write_text(
        BURST.replace("always", "maybe") + "---\n" + QUEUE.replace("1d", "soon").replace("name: q", "name: r")
    )
    ran = federator("policy", "replay", "-f", str(good), str(bad), *given(files))
    assert ran.code == 1
    told = ran.err.splitlines()
    assert len(told) == 2
    assert f"{bad}, line 4: " in told[0]
    assert f"{bad}, line 9: " in told[1]


def test_a_proposed_file_that_is_not_there_is_named(federator: Command, files: Path) -> None:
    ran = federator("policy", "replay", "-f", str(files / "nosuch.yaml"), *given(files))
    assert (ran.code, ran.err) == (
        2,
        f"error: {files / 'nosuch.yaml'} cannot be read: No such file or directory\n",
    )
