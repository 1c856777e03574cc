"""The verbs about jobs: what they send, what they show, and with which code they end."""

import io
import json
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from federator.cli.app import _with_input
from federator.kernel.ids import content_hash
from federator.model.capacity import BurstEvidence, Market
from federator.model.events import Event
from federator.model.jobs import Checkpoint, JobStatus
from federator.model.placements import Part, PlacementStatus
from federator.model.plans import Explanation, PricePoint, SiteReason
from federator.wire.http import (
    ActedOn,
    JobPage,
    Preview,
    Problem,
    SubmitResult,
    Submitted,
)
from tests.support.fake_dispatcher import FakeDispatcher
from tests.unit.cli.answers import NOW, TIME, detail, row
from tests.unit.cli.conftest import Command


class Keyboard(io.StringIO):
    """A terminal, as far as `isatty` can tell."""

    def isatty(self) -> bool:
        return True


def test_submit_sends_the_file_with_its_folder_relative_to_the_file(
    federator: Command, fake: FakeDispatcher, tmp_path: Path
) -> None:
    (tmp_path / "project/code").mkdir(parents=True)
    (tmp_path / "project/code/train.py").write_text("print(1)")
    file = tmp_path / "project/job.yaml"
    file.write_text("run: python train.py\nworkdir: code\n")
    fake.answer("POST /v1/jobs", Submitted(("job-1", "job-2"), "train"), 201)

    async def accept(request: web.Request) -> web.StreamResponse:
        digests.append(content_hash(await request.read()))
        return web.Response(status=201)

    digests: list[str] = []
    fake.handle_any("PUT", accept)
    ran = federator("submit", "-f", str(file))
    assert (ran.code, ran.out) == (0, "job-1\njob-2\n")
    (post,) = fake.of("POST /v1/jobs")
    assert json.loads(post.body) == {"run": "python train.py", "workdir": f"sha256:{digests[0]}"}


def test_a_mistake_in_a_job_file_is_told_with_its_line_and_nothing_is_sent(
    federator: Command, fake: FakeDispatcher, tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("run: x\nresources:\n  gpu: 1\n")
    ran = federator("submit", str(file))
    assert ran.code == 2
    assert ran.err == (
        f"error: $.resources.gpu: {file}, line 3: there is no field 'gpu' (did you mean gpus?)\n"
    )
    file.write_text("run: x\nworkdir: nowhere\n")
    assert "line 2: there is no folder" in federator("submit", str(file)).err
    assert "no job file" in federator("submit").err
    for verb in ("submit", "preview"):
        two = federator(verb, "a.yaml", "-f", "b.yaml")
        assert "two job files" in two.err
        assert f"federator {verb} job.yaml" in two.err
    assert federator("submit", str(tmp_path / "none.yaml")).code == 2
    for words, told in (
        (("decisions", "show"), "DECISION: is missing (see federator decisions show --help)"),
        (("decisions", "nope"), "known are certify, replay, list, show (see federator decisions --help)"),
        (("simulate", "table"), "'table': more words than it takes (see federator simulate --help)"),
        (
            ("submit", "--", "sleep", "30"),
            "'30': more words than it takes; for a command write federator run --detach -- COMMAND (see federator submit --help)",
        ),
        (
            ("submit", "--", "sh", "-c", "true"),
            "there is no option -c; for a command write federator run --detach -- COMMAND (see federator submit --help)",
        ),
        (("submit", "-x"), "there is no option -x (see federator submit --help)"),
        (("nope",), "error: there is no command 'nope' (see federator --help)"),
        (("lsit",), "there is no command 'lsit'; did you mean list? (see federator --help)"),
        (("list", "--limt", "3"), "no option --limt; did you mean --limit? (see federator list --help)"),
        (("list", "--quality", "3"), "there is no option --quality (see federator list --help)"),
    ):
        assert told in federator(*words).err
    assert fake.heard == []


def test_many_jobs_of_a_file_go_as_lines(federator: Command, fake: FakeDispatcher, tmp_path: Path) -> None:
    file = tmp_path / "jobs.ndjson"
    file.write_text("".join(json.dumps({"run": f"echo {n}"}) + "\n" for n in range(30)))
    problem = Problem("about:blank", "Bad Request", 400, "too dear", "invalid", "$.value")
    results = [SubmitResult(n, Submitted((f"job-{n}",), "echo")) for n in range(1, 30)]
    lines = [*results, SubmitResult(30, problem=problem)]
    fake.answer("POST /v1/jobs", b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    ran = federator("submit", str(file))
    assert ran.code == 2
    assert ran.out.splitlines() == [f"job-{n}" for n in range(1, 30)]
    assert (
        ran.err
        == f"error: $.value: {file}, line 30: too dear\n29 of 30 accepted; refused: the job that begins at line 30\n"
    )
    assert len(fake.of("POST /v1/jobs")[0].body.splitlines()) == 30


def test_all_that_is_wrong_with_many_lines_is_told(
    federator: Command, fake: FakeDispatcher, tmp_path: Path
) -> None:
    file = tmp_path / "jobs.ndjson"
    file.write_text('{"run": 3}\nno\n{"run": "x"}\n{"run"}\n')
    told = federator("submit", str(file)).err.splitlines()
    assert [f"{file}, line {line}: " in text for line, text in zip((2, 4, 1), told, strict=True)] == [
        True
    ] * 3
    assert "line 4: this is not JSON: JSON is malformed: expected ':' (byte 6)" in told[1]
    assert fake.heard == []


def test_a_refused_job_is_named_by_its_line_in_the_file(
    federator: Command, fake: FakeDispatcher, tmp_path: Path
) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text("# two jobs\nrun: echo 1\nname: one\n---\nrun: echo 2\nvalue: 9000 USD\n")
    problem = Problem("about:blank", "Bad Request", 400, "too dear", "invalid", "$.value")
    lines = [SubmitResult(1, Submitted(("job-1",), "one")), SubmitResult(2, problem=problem)]
    fake.answer("POST /v1/jobs", b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    ran = federator("submit", str(file))
    assert (
        ran.err
        == f"error: $.value: {file}, line 6: too dear\n1 of 2 accepted; refused: the job that begins at line 5\n"
    )


def test_all_that_is_wrong_with_a_job_file_is_told_at_once(
    federator: Command, fake: FakeDispatcher, tmp_path: Path
) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(
        "run: a\npriorty: 3\nnodes: many\nresources:\n  cpus: x\n  memory: 1GiB\n---\nnodes: 1\n---\nrun: b\nworkdir: nowhere\n"
    )
    ran = federator("submit", str(file))
    assert ran.code == 2
    said = ran.err.splitlines()
    where = [line.partition(f"{file}, line ")[2].split(":")[0] for line in said]
    assert where == ["2", "3", "5", "8", "11"], ran.err
    assert "priority" in said[0]
    assert not fake.heard


def test_list_passes_its_filters_on_and_shows_reasons(federator: Command, fake: FakeDispatcher) -> None:
    fake.answer("GET /v1/jobs", JobPage((row(1),), None, 1), headers=TIME)
    ran = federator("list", "--mine", "--status", "running,pending", "--limit", "7")
    assert ran.code == 0
    assert ran.out.splitlines()[1].split() == [
        "job-1",
        "train",
        "PENDING",
        "1",
        "-",
        "1m",
        "-",
        "-",
        "-",
        "waits",
        "for",
        "north",
    ]
    filters = {"mine": "true", "status": "RUNNING,PENDING", "collapse": "true", "limit": "7"}
    assert fake.heard[0].query == filters
    assert json.loads(federator("list", "-o", "json").out)[0]["because"] == "waits for north"


def test_list_of_all_reads_every_page(federator: Command, fake: FakeDispatcher) -> None:
    fake.answer("GET /v1/jobs", JobPage((row(1),), "x", 2))
    fake.answer("GET /v1/jobs", JobPage((row(2),), None, 2))
    assert len(federator("list", "--limit", "0").out.splitlines()) == 3


@pytest.mark.parametrize(
    ("words", "field"),
    [
        ("list --limit -1", "--limit"),
        ("top --every -1", "--every"),
        ("top --every nan", "--every"),
        ("logs train --node 2", "--node: train has no node 2 (its nodes are 0 to 1)"),
        ("logs train --node -1", "--node"),
    ],
)
def test_a_number_that_makes_no_sense_is_refused(
    words: str, field: str, federator: Command, fake: FakeDispatcher
) -> None:
    fake.answer("GET /v1/jobs/train", detail())
    ran = federator(*words.split())
    assert (ran.code, ran.err.startswith(f"error: {field}")) == (2, True), ran.err
    assert len(fake.heard) <= 1


def test_show_says_how_far_each_host_of_a_gang_is(federator: Command, fake: FakeDispatcher) -> None:
    parts = (
        Part(member="north", status=PlacementStatus.RUNNING),
        Part(member="north-2", status=PlacementStatus.STARTING, detail="not heard for 2m47s"),
    )
    gang = msgspec.structs.replace(detail(), members=("north", "north-2", "north"), parts=parts)
    fake.answer("GET /v1/jobs/train", gang, headers=TIME)
    fake.answer("GET /v1/jobs/job-1/events", [])
    assert (
        "0+2 at north RUNNING, 1 at north-2: not heard for 2m47s, last known STARTING"
        in federator("show", "train").out
    )


def test_show_says_where_it_is_and_what_has_happened(federator: Command, fake: FakeDispatcher) -> None:
    fake.answer(
        "GET /v1/jobs/train", detail(deadline_at=NOW + 7200, gpu_s=7200.0, spent_usd=3.5), headers=TIME
    )
    fake.answer(
        "GET /v1/jobs/job-1/events", [Event("ev-1", "job-1", NOW - 60, "place", "PLACED", "it fits", "north")]
    )
    out = federator("show", "train").out
    for said in (
        "RUNNING", "running at north", "north a100 owned", "2x4 A100 GPUs, 1 CPU per node", "in 2h (2025-10-09 10:53:20 UTC)",
        "3.50 USD, 2.00 GPU-hours", "it fits",
    ):  # fmt: skip
        assert said in out


def test_show_of_a_script_says_how_it_begins(federator: Command, fake: FakeDispatcher) -> None:
    """Joined, its lines would read as one command."""
    job = detail()
    script = msgspec.structs.replace(job.spec, run="set -e\npython train.py\npython report.py\n")
    fake.answer("GET /v1/jobs/train", msgspec.structs.replace(job, spec=script), headers=TIME)
    fake.answer("GET /v1/jobs/job-1/events", [])
    assert "set -e … (and 2 lines more; -o yaml has all)" in federator("show", "train").out


def test_explain_says_verdict_times_sites_and_what_would_change_it(
    federator: Command, fake: FakeDispatcher
) -> None:
    fake.answer("GET /v1/jobs/train/explain", explanation(), headers=TIME)
    out = federator("explain", "train").out
    for said in (
        "PENDING  waits for a100 at north", "in 5h (2025-10-09 13:53:20 UTC)  1h late", "3h to spare", "no free GPUs [capacity]",
        "-> ask for 2 GPUs", "0.25 USD", "- raise max_cost to 5 USD", "research-burst (economic)", "worth 40.00 USD",
        "Decided in dec-1 by lp.",
    ):  # fmt: skip
        assert said in out, said


def test_explain_draws_what_each_earlier_finish_costs_and_where_the_deadline_lies(
    federator: Command, fake: FakeDispatcher
) -> None:
    points = tuple(
        PricePoint(
            site=site, pool=pool, market=market, start_at=NOW, cost_usd=price_usd, in_time=hours <= 4,
            finish_low_at=NOW + (hours - 1) * 3600, finish_at=NOW + hours * 3600, finish_high_at=NOW + (hours + 1) * 3600,
        )
        for site, pool, market, hours, price_usd in (
            ("acme", "h100", Market.ON_DEMAND, 2, 84.0), ("acme", "a100", Market.SPOT, 3, 31.0), ("", "", Market.OWNED, 5, 0.0),
        )
    )  # fmt: skip
    drawn = msgspec.structs.replace(
        explanation(), curve=points, deadline_usd=31.0, finish_low_at=NOW + 1800, finish_high_at=NOW + 7200
    )
    fake.answer("GET /v1/jobs/train/explain", drawn, headers=TIME)
    out = federator("explain", "train").out
    rows = [line for line in out.splitlines() if " USD  █" in line or "deadline" in line or "free  ▏" in line]
    picture = rows[-4:]
    assert [row.split()[:2] for row in picture] == [["in", "2h"], ["in", "3h"], ["in", "4h"], ["in", "5h"]]
    assert picture[0].count("█") > 2 * picture[1].count("█") > 0
    assert "deadline" in picture[2]
    assert "free" in picture[3]
    assert "at home, in its turn" in picture[3]
    assert "acme/a100 (spot)" in picture[1]
    assert "in 2h .. in 4h" in picture[1]
    assert "meeting it" in out
    assert "costs 31.00 USD or more" in out
    assert "between in 30m and in 2h" in out


@pytest.mark.parametrize(
    ("low_h", "said"), [(3, "not sure: in time only if"), (5, "not possible: nothing that")]
)
def test_a_deadline_that_no_plan_meets_may_still_be_met_by_a_run_shorter_than_planned(
    federator: Command, fake: FakeDispatcher, low_h: int, said: str
) -> None:
    point = PricePoint(
        site="acme", pool="h100", market=Market.ON_DEMAND, start_at=NOW, cost_usd=84.0, in_time=False,
        finish_low_at=NOW + low_h * 3600, finish_at=NOW + 6 * 3600, finish_high_at=NOW + 8 * 3600,
    )  # fmt: skip
    fake.answer(
        "GET /v1/jobs/train/explain", msgspec.structs.replace(explanation(), curve=(point,)), headers=TIME
    )
    assert said in federator("explain", "train").out


def explanation() -> Explanation:
    return Explanation(
        job="job-1",
        status="PENDING",
        because="waits for a100 at north",
        decision="dec-1",
        winner="lp",
        sites=(
            SiteReason("north", "a100", "capacity", "no free GPUs", change="ask for 2 GPUs"),
            SiteReason("south", "h100", "", "it fits", 0.25, NOW, NOW + 3600),
        ),
        changes=("raise max_cost to 5 USD",),
        expected_finish_at=NOW + 3600,
        home_finish_at=NOW + 5 * 3600,
        deadline_at=NOW + 4 * 3600,
        burst=BurstEvidence(
            "job-1", "research-burst", "economic", NOW + 18000, NOW + 3600, NOW + 14400, 3.0, 40.0, "dec-1"
        ),
        policies=("research-burst",),
    )


def test_preview_sends_the_job_without_its_folder(
    federator: Command, fake: FakeDispatcher, tmp_path: Path
) -> None:
    (tmp_path / "job.yaml").write_text("run: x\nworkdir: .\n")
    fake.answer("POST /v1/preview", Preview("x", "research", explanation(), 1.5))
    ran = federator("preview", "-f", str(tmp_path / "job.yaml"))
    assert "x in queue research, for about 1.50 USD. Nothing was submitted." in ran.out
    assert [json.loads(heard.body) for heard in fake.heard] == [{"run": "x"}]


@pytest.mark.parametrize("verb", ["cancel", "hold", "release", "requeue"])
def test_verbs_that_change_jobs_are_one_request(verb: str, federator: Command, fake: FakeDispatcher) -> None:
    one = ActedOn("train", "train", 1, 0, {"HELD": 1}, "held by ada")
    many = ActedOn("sweep", "sweep[0-9]", 8, 2, {"HELD": 8, "FAILED": 2}, "held by ada", "sweep[0] has ended")
    fake.answer("POST /v1/jobs/actions", [one, many])
    ran = federator(verb, "train", "sweep", *(["--yes"] if verb in ("hold", "requeue") else []))
    assert ran.code == 0
    assert ran.out.splitlines() == [
        "HELD  train  held by ada",
        "FAILED 2, HELD 8  sweep[0-9]  held by ada; 2 left as they are, the first because sweep[0] has ended",
    ]
    (heard,) = fake.heard
    assert json.loads(heard.body) == {"verb": verb, "jobs": ["train", "sweep"]}


def test_a_verb_that_suits_none_of_the_jobs_fails(federator: Command, fake: FakeDispatcher) -> None:
    said = "train has ended: SUCCEEDED (submit it again to run it again)"
    fake.answer("POST /v1/jobs/actions", [ActedOn("train", "train", 0, 1, {"SUCCEEDED": 1}, "done", said)])
    ran = federator("requeue", "train", "--yes")
    assert (ran.code, ran.out, ran.err) == (6, "", f"error: {said}\n")


@pytest.mark.parametrize("verb", ["hold", "requeue"])
def test_work_without_a_checkpoint_is_not_stopped_unasked(
    verb: str, federator: Command, fake: FakeDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.answer("GET /v1/jobs/train", detail(), headers=TIME)
    fake.answer("POST /v1/jobs/actions", [ActedOn("train", "train", 1, 0, {"HELD": 1}, "held by ada")])
    ran = federator(verb, "train")
    lost = "train has run for 1m without a checkpoint, and would start from the beginning"
    assert (ran.code, ran.err) == (6, f"error: {lost} (write --yes to do it all the same)\n")
    for answer, code in (("n\n", 1), ("\n", 1), ("y\n", 0)):
        monkeypatch.setattr("sys.stdin", Keyboard(answer))
        monkeypatch.setattr("sys.stderr", Keyboard())
        assert federator(verb, "train").code == code
    assert len(fake.of("POST /v1/jobs/actions")) == 1


@pytest.mark.parametrize("fields", [{"status": JobStatus.PENDING}, {}])
def test_what_loses_nothing_is_stopped_unasked(
    fields: dict[str, JobStatus], federator: Command, fake: FakeDispatcher
) -> None:
    found = detail(fields.get("status", JobStatus.RUNNING))
    spec = msgspec.structs.replace(found.spec, checkpoint=Checkpoint()) if not fields else found.spec
    fake.answer("GET /v1/jobs/train", msgspec.structs.replace(found, spec=spec), headers=TIME)
    fake.answer("POST /v1/jobs/actions", [ActedOn("train", "train", 1, 0, {"HELD": 1}, "held by ada")])
    assert federator("hold", "train").code == 0


def test_an_arrays_tasks_that_run_are_counted(federator: Command, fake: FakeDispatcher) -> None:
    fake.answer("GET /v1/jobs/sweep", detail(name="sweep", array="arr-1", array_index=3), headers=TIME)
    running = tuple(row(n, array="arr-1", array_index=n) for n in range(40))
    fake.answer("GET /v1/jobs", JobPage(running, total=40))
    fake.answer("POST /v1/jobs/actions", [ActedOn("sweep", "sweep", 1, 0, {"HELD": 1}, "held by ada")])
    assert "40 tasks of sweep run without a checkpoint" in federator("hold", "sweep").err
    assert "2 tasks of sweep run without a checkpoint" in federator("hold", "sweep[38-50]").err
    assert federator("hold", "sweep[50-60]").code == 0


def test_update_says_what_would_become_of_a_job(federator: Command, fake: FakeDispatcher) -> None:
    would = Explanation(job="job-1", status="would wait", because="no room before 18:00")
    fake.answer("POST /v1/jobs/train/preview", Preview("train", "research", would, 12.5), headers=TIME)
    ran = federator("update", "train", "--priority", "70", "--dry-run")
    assert "for about 12.50 USD. Nothing was changed." in ran.out
    assert "would wait  no room before 18:00" in ran.out
    (asked,) = fake.of("POST /v1/jobs/train/preview")
    assert json.loads(asked.body) == {"priority": 70}
    assert federator("update", "--priority", "70", "--dry-run").code == 2


def test_update_sends_what_is_given(federator: Command, fake: FakeDispatcher) -> None:
    fake.answer("POST /v1/jobs/actions", [ActedOn("train", "train", 1, 0, {"RUNNING": 1}, "it fits")])
    ran = federator("update", "train", "--priority", "70", "--deadline", "none")
    assert (ran.code, ran.out) == (0, "RUNNING  train  now has priority 70, deadline none\n")
    asked = json.loads(fake.heard[0].body)
    assert (asked["verb"], asked["jobs"]) == ("update", ["train"])
    given = {key: value for key, value in asked["patch"].items() if value is not None}
    assert given == {"priority": 70, "deadline": "none"}
    assert "nothing to change" in federator("update", "train").err


@pytest.mark.parametrize(
    ("status", "code", "exit_code"),
    [(404, "not-found", 3), (403, "forbidden", 5), (401, "unauthenticated", 5), (409, "conflict", 6), (503, "unavailable", 4),
     (400, "invalid", 2), (500, "bug", 1)],
)  # fmt: skip
def test_each_family_of_errors_has_its_exit_code(
    status: int, code: str, exit_code: int, federator: Command, fake: FakeDispatcher
) -> None:
    fake.answer(
        "GET /v1/sites", Problem("about:blank", "x", status, "it went wrong", code, remedy="do this"), status
    )
    ran = federator("sites")
    assert (ran.code, ran.out, ran.err) == (exit_code, "", "error: it went wrong (do this)\n")


def test_wrong_words_are_a_usage_error(federator: Command, fake: FakeDispatcher) -> None:
    assert federator("list", "--bogus").code == 2
    assert federator("sbmit").code == 2
    assert federator("cancel").code == 2
    assert federator("run").err.startswith("error: COMMAND: nothing to run")


def test_a_server_that_is_not_there_is_named(federator: Command, fake: FakeDispatcher) -> None:
    ran = federator("sites", "--server", "http://127.0.0.1:9")
    assert ran.code == 4
    assert "cannot reach the dispatcher at http://127.0.0.1:9" in ran.err


@pytest.mark.parametrize(
    "words", [("submit", "-"), ("submit", "-f", "-"), ("submit", "--file=-"), ("preview", "-")]
)
def test_a_job_file_may_come_from_standard_input(
    federator: Command, fake: FakeDispatcher, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("run: echo from-here\n"))
    fake.answer("POST /v1/jobs", Submitted(("job-1",), "echo"), 201)
    fake.answer("POST /v1/preview", Problem("about:blank", "No", 422, "heard", "invalid"), 422)
    ran = federator(*words)
    assert (ran.code, ran.err) == (0, "") or "heard" in ran.err
    assert b"echo from-here" in fake.heard[-1].body
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert "standard input holds no job" in federator(*words).err


def test_policies_may_come_from_standard_input(
    federator: Command, fake: FakeDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("kind: Queue\n"))
    fake.answer(
        "POST /v1/policies/validate", Problem("about:blank", "No", 422, "line 1: heard", "invalid"), 422
    )
    federator("policy", "validate", "-")
    assert b"kind: Queue" in fake.heard[-1].body


def test_an_option_that_there_is_not_is_said_to_be_one(federator: Command) -> None:
    assert "there is no option --outputt" in federator("submit", "--outputt", "json").err


def test_a_lone_hyphen_of_what_a_job_runs_is_left_to_it() -> None:
    assert _with_input(["run", "--", "cat", "-"]) == ["run", "--", "cat", "-"]
