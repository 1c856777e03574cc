"""The verbs: what they send, what they show, and with which code they end."""

import asyncio
import json
import signal
import threading
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from federator.cli import running
from federator.client import jobs as client_jobs
from federator.client.workdir import pack
from federator.kernel.ids import content_hash
from federator.model.capacity import BurstEvidence
from federator.model.events import Event
from federator.model.jobs import Accelerators, Job, JobSpec, JobStatus, Outcome, Resources, TerminalReason
from federator.model.plans import Explanation, SiteReason
from federator.model.rules import PolicyDocument, PolicySet
from federator.wire.http import (
    DecisionRow,
    JobDetail,
    JobPage,
    JobRow,
    LeaseRow,
    Overview,
    PolicyVerdict,
    Preview,
    Problem,
    QueueRow,
    SiteRow,
    SubmitResult,
    Submitted,
    TokenAnswer,
)
from tests.support.fake_dispatcher import FakeDispatcher
from tests.unit.cli.conftest import Command

NOW = 1_760_000_000.0
TIME = {"X-Federator-Time": str(NOW)}


def detail(status: JobStatus = JobStatus.RUNNING, code: int | None = None, **fields: object) -> JobDetail:
    reason = TerminalReason.EXIT_CODE if code else TerminalReason.DONE
    job = Job(
        id="job-1", name="train", owner="ada", queue="research", status=status, spec_hash="0", submitted_at=NOW - 3600,
        placement="pl-1", started_at=NOW - 60, because="running at north",
        outcome=Outcome(reason, exit_code=code) if status in ("SUCCEEDED", "FAILED", "CANCELLED") else None,
    )  # fmt: skip
    spec = JobSpec(
        name="train", run="python train.py", nodes=2, resources=Resources(gpus=Accelerators(4, ("A100",)))
    )
    return JobDetail(msgspec.structs.replace(job, **fields), spec, site="north", pool="a100", market="owned")


def frames(*statuses: str) -> bytes:
    shown = [
        Event(f"ev-{n}", "job-1", NOW, "x", status, f"it is {status}") for n, status in enumerate(statuses)
    ]
    return b"".join(
        b"id: " + each.id.encode() + b"\ndata: " + msgspec.json.encode(each) + b"\n\n" for each in shown
    )


def row(number: int, **fields: object) -> JobRow:
    made = JobRow(
        id=f"job-{number}", name="train", owner="ada", queue="research", status="PENDING", priority=50, nodes=1, gpus=1,
        models="", submitted_at=NOW - 60, because="waits for north",
    )  # fmt: skip
    return msgspec.structs.replace(made, **fields)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_jobs, "POLL_S", 0.01)
    monkeypatch.setattr(running, "LAST_OUTPUT_S", 1.0)


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
    assert federator("submit", str(tmp_path / "none.yaml")).code == 2
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
    assert ran.err == "error: line 30: $.value: too dear\n"
    assert len(fake.of("POST /v1/jobs")[0].body.splitlines()) == 30


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
        "waits",
        "for",
        "north",
    ]
    assert fake.heard[0].query == {"mine": "true", "status": "RUNNING,PENDING", "limit": "7"}
    assert json.loads(federator("list", "-o", "json").out)[0]["because"] == "waits for north"


def test_list_of_all_reads_every_page(federator: Command, fake: FakeDispatcher) -> None:
    fake.answer("GET /v1/jobs", JobPage((row(1),), "x", 2))
    fake.answer("GET /v1/jobs", JobPage((row(2),), None, 2))
    assert len(federator("list", "--limit", "0").out.splitlines()) == 3


def test_show_says_where_it_is_and_what_has_happened(federator: Command, fake: FakeDispatcher) -> None:
    fake.answer(
        "GET /v1/jobs/train", detail(deadline_at=NOW + 7200, gpu_s=7200.0, spent_usd=3.5), headers=TIME
    )
    fake.answer(
        "GET /v1/jobs/job-1/events", [Event("ev-1", "job-1", NOW - 60, "place", "PLACED", "it fits", "north")]
    )
    out = federator("show", "train").out
    for said in (
        "RUNNING", "running at north", "north a100 owned", "2x4 A100 GPUs, 1 CPU per node", "in 2h (2025-10-09T10:53:20Z)",
        "3.50 USD, 2.00 GPU-hours", "it fits",
    ):  # fmt: skip
        assert said in out


def test_explain_says_verdict_times_sites_and_what_would_change_it(
    federator: Command, fake: FakeDispatcher
) -> None:
    fake.answer("GET /v1/jobs/train/explain", explanation(), headers=TIME)
    out = federator("explain", "train").out
    for said in (
        "PENDING  waits for a100 at north", "in 5h (2025-10-09T13:53:20Z)  1h late", "3h to spare", "no free GPUs [capacity]",
        "-> ask for 2 GPUs", "0.25 USD", "- raise max_cost to 5 USD", "research-burst (economic)", "worth 40.00 USD",
        "Decided in dec-1 by cpsat.",
    ):  # fmt: skip
        assert said in out, said


def explanation() -> Explanation:
    return Explanation(
        job="job-1",
        status="PENDING",
        because="waits for a100 at north",
        decision="dec-1",
        winner="cpsat",
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


@pytest.mark.parametrize(
    ("words", "route"),
    [
        (("cancel", "train"), "DELETE /v1/jobs/train"),
        (("hold", "train"), "POST /v1/jobs/train/hold"),
        (("release", "train"), "POST /v1/jobs/train/release"),
        (("requeue", "train"), "POST /v1/jobs/train/requeue"),
        (("update", "train", "--priority", "70", "--deadline", "none"), "PATCH /v1/jobs/train"),
    ],
)
def test_verbs_that_change_a_job(
    words: tuple[str, ...], route: str, federator: Command, fake: FakeDispatcher
) -> None:
    fake.answer(route, detail())
    ran = federator(*words)
    assert (ran.code, ran.out[:14]) == (0, "RUNNING  train")
    assert len(fake.of(route)) == 1


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


def test_run_streams_output_and_passes_the_exit_code_on(federator: Command, fake: FakeDispatcher) -> None:
    fake.answer("POST /v1/jobs", Submitted(("job-1",), "sh"), 201)
    fake.answer("GET /v1/jobs/job-1", detail())
    fake.answer("GET /v1/jobs/job-1", detail(JobStatus.FAILED, 7))
    fake.answer("GET /v1/jobs/job-1/events", frames("PENDING", "RUNNING", "FAILED"))
    fake.answer("GET /v1/jobs/job-1/logs", b"hello\n")
    ran = federator(
        "run", "--gpus", "A100:2", "--env", "A=1", "--name", "x", "--", "sh", "-c", "exit 7", "--name", "y"
    )
    assert (ran.code, ran.out) == (7, "hello\n")
    assert "federator: PENDING: it is PENDING\n" in ran.err
    assert json.loads(fake.of("POST /v1/jobs")[0].body) == {
        "command": ["sh", "-c", "exit 7", "--name", "y"],
        "name": "x",
        "resources": {"gpus": "A100:2"},
        "env": {"A": "1"},
    }


def test_run_of_a_gang_marks_each_line_with_its_rank(federator: Command, fake: FakeDispatcher) -> None:
    async def log(request: web.Request) -> web.StreamResponse:
        return web.Response(text=f"line of {request.query['node']}\nrest")

    fake.answer("POST /v1/jobs", Submitted(("job-1",), "sh"), 201)
    fake.answer("GET /v1/jobs/job-1", detail())
    fake.answer("GET /v1/jobs/job-1", detail())
    fake.answer("GET /v1/jobs/job-1", detail(JobStatus.SUCCEEDED, 0))
    fake.answer("GET /v1/jobs/job-1/events", frames("SUCCEEDED"))
    fake.handle("GET /v1/jobs/job-1/logs", log)
    ran = federator("run", "-q", "--nodes", "2", "--", "hostname")
    assert sorted(ran.out.splitlines()) == ["[0] line of 0", "[0] rest", "[1] line of 1", "[1] rest"]
    assert (ran.code, ran.err) == (0, "")


def test_run_takes_the_folder_along_when_the_command_names_a_file_in_it(
    federator: Command, fake: FakeDispatcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code/train.py").write_text("print(1)")
    monkeypatch.chdir(tmp_path / "code")
    fake.answer("POST /v1/jobs", Submitted(("job-1",), "train"), 201)

    async def accept(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=201)

    fake.handle_any("PUT", accept)
    assert federator("run", "--detach", "--", "python", "train.py").out == "job-1\n"
    assert federator("run", "--detach", "--workdir", "none", "--", "python", "train.py").code == 0
    assert federator("run", "--detach", "--", "hostname").code == 0
    taken = ["workdir" in json.loads(heard.body) for heard in fake.of("POST /v1/jobs")]
    assert taken == [True, False, False]


def test_run_refuses_what_a_job_file_would_not_take(federator: Command, fake: FakeDispatcher) -> None:
    ran = federator("run", "--gpus", "0.5", "--", "x")
    assert ran.code == 2
    assert "$.resources.gpus: parts of a GPU are not supported yet" in ran.err
    assert (
        federator("run", "--env", "A", "--", "x").err
        == "error: --env: 'A' gives no value (write NAME=VALUE)\n"
    )
    assert fake.heard == []


def test_ctrl_c_cancels_the_job_and_the_output_is_read_to_its_end(
    federator: Command, fake: FakeDispatcher
) -> None:
    cancelled = threading.Event()

    async def events(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(frames("RUNNING"))
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        while not cancelled.is_set():
            await asyncio.sleep(0.01)
        await response.write(frames("CANCELLING", "CANCELLED"))
        return response

    async def cancel(_request: web.Request) -> web.StreamResponse:
        cancelled.set()
        return web.Response(body=msgspec.json.encode(detail(JobStatus.CANCELLING)))

    async def show(_request: web.Request) -> web.StreamResponse:
        shown = detail(JobStatus.CANCELLED) if cancelled.is_set() else detail()
        return web.Response(body=msgspec.json.encode(shown))

    fake.answer("POST /v1/jobs", Submitted(("job-1",), "sleep"), 201)
    fake.handle("GET /v1/jobs/job-1", show)
    fake.handle("GET /v1/jobs/job-1/events", events)
    fake.answer("GET /v1/jobs/job-1/logs", b"saving\n")
    fake.handle("DELETE /v1/jobs/job-1", cancel)
    ran = federator("run", "--", "sleep", "100")
    assert ran.code == 130
    assert ran.out == "saving\n"
    assert "press Ctrl-C again to leave at once" in ran.err
    assert len(fake.of("DELETE /v1/jobs/job-1")) == 1


def test_wait_exits_as_the_first_job_that_failed(federator: Command, fake: FakeDispatcher) -> None:
    fake.answer("GET /v1/jobs/a", detail(JobStatus.SUCCEEDED, 0, id="a"))
    fake.answer("GET /v1/jobs/b", detail(JobStatus.FAILED, 3, id="b"))
    assert federator("wait", "a", "b").code == 3
    assert federator("wait", "a").code == 0


def test_wait_gives_up_after_its_timeout(federator: Command, fake: FakeDispatcher) -> None:
    fake.answer("GET /v1/jobs/a", detail(id="a"))
    fake.answer("GET /v1/jobs/a/events", b"")
    assert federator("wait", "a", "--timeout", "100ms").code == 124
    assert federator("wait", "a", "--timeout", "soon").code == 2


def test_logs_of_one_task_of_an_array(federator: Command, fake: FakeDispatcher) -> None:
    fake.answer("GET /v1/jobs/sweep", detail(array="job-0"))
    fake.answer("GET /v1/jobs", JobPage((row(7, array_index=3), row(8, array_index=4)), None, 2))
    fake.answer("GET /v1/jobs/job-8/logs", b"task four\n")
    ran = federator("logs", "sweep", "--index", "4", "--tail", "5", "--node", "0")
    assert (ran.code, ran.out) == (0, "task four\n")
    assert fake.of("GET /v1/jobs")[0].query["array"] == "job-0"
    assert fake.of("GET /v1/jobs/job-8/logs")[0].query == {"node": "0", "tail": "5"}
    assert federator("logs", "sweep", "--index", "9").code == 3


def test_download_unpacks_below_a_folder_with_the_jobs_name(
    federator: Command, fake: FakeDispatcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "made/results").mkdir(parents=True)
    (tmp_path / "made/results/x.txt").write_text("1")
    pack(tmp_path / "made", tmp_path / "archive", limit_mib=1)
    monkeypatch.chdir(tmp_path)
    fake.answer("GET /v1/jobs/train", detail(JobStatus.SUCCEEDED, 0))
    fake.answer("GET /v1/jobs/job-1/outputs", (tmp_path / "archive").read_bytes())
    ran = federator("download", "train")
    assert (ran.code, ran.out) == (0, "train/results/x.txt\n")
    assert federator("download", "train", "--into", "here").out == "here/results/x.txt\n"


SITE = SiteRow(
    name="north", kind="onprem", status="READY", gpus=8, busy=3, running=2, largest_gang="1x4", age_s=2.0
)
LEASE = LeaseRow(
    id="lease-1", site="cloud", offer="a100-spot", market="spot", status="READY", gpus=4, price_usd_h=3.2, billed_usd=1.5,
    committed_usd=4.0, requested_at=NOW - 600, because="train would miss its deadline",
)  # fmt: skip


def test_lists_of_the_platform(federator: Command, fake: FakeDispatcher) -> None:
    fake.answer("GET /v1/sites", [SITE], headers=TIME)
    fake.answer("GET /v1/queues", [QueueRow(queue="research", guaranteed_gpus=4, limit_gpus=8, gpus=3)])
    fake.answer("GET /v1/leases", [LEASE], headers=TIME)
    fake.answer("GET /v1/offers", [])
    fake.answer("GET /v1/budgets", [])
    decision = DecisionRow(
        id="dec-1",
        at=NOW,
        winner="lp",
        objective_usd=1.0,
        actions=2,
        jobs=3,
        stages="greedy, lp",
        size_bytes=9,
    )
    fake.answer("GET /v1/decisions", [decision])
    assert federator("sites").out.splitlines()[1].split() == [
        "north",
        "onprem",
        "READY",
        "8",
        "3",
        "2",
        "1x4",
        "2s",
        "ago",
        "-",
    ]
    assert "research" in federator("queues").out
    assert "train would miss its deadline" in federator("leases").out
    assert federator("offers").err == "no offers: the dispatcher has no provider\n"
    assert federator("budgets").code == 0
    assert "dec-1" in federator("decisions", "list").out


def test_top_draws_once_into_a_pipe(federator: Command, fake: FakeDispatcher) -> None:
    overview = Overview(
        now=NOW, sites=(SITE,), queues=(), leases=(LEASE,), jobs=(row(1, status="SUCCEEDED"), row(2)),
        spent_usd=1.5, committed_usd=4.0, caps=(), turn="greedy",
    )  # fmt: skip
    fake.answer("GET /v1/overview", overview)
    out = federator("top").out
    assert "3/8 GPUs busy  0 running  1 waiting  1.50 USD spent, 4.00 USD committed" in out
    assert out.index("job-2") < out.index("job-1"), "what waits stands above what is over"


def test_policies_are_read_from_files_and_folders_and_applied_with_a_reason(
    federator: Command, fake: FakeDispatcher, tmp_path: Path
) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set/a.yaml").write_text("---\nkind: Queue\n")
    (tmp_path / "set/b.yml").write_text("kind: BurstPolicy\n")
    (tmp_path / "set/notes.txt").write_text("no policy")
    fake.answer("POST /v1/policies", PolicyVerdict(3, ("Queue/a", "BurstPolicy/b"), 2))
    ran = federator("policy", "apply", str(tmp_path / "set"), "-m", "nights")
    assert (ran.code, ran.out) == (0, "version 3 is in force: 2 documents\n")
    assert json.loads(fake.heard[0].body) == {
        "text": "kind: Queue\n---\nkind: BurstPolicy\n",
        "reason": "nights",
    }
    assert "--reason: is missing" in federator("policy", "apply", str(tmp_path / "set")).err
    assert federator("policy", "validate").code == 2


def test_an_invalid_set_is_told_problem_by_problem(
    federator: Command, fake: FakeDispatcher, tmp_path: Path
) -> None:
    (tmp_path / "a.yaml").write_text("kind: Queue\n")
    problem = Problem("about:blank", "x", 400, "is missing", "invalid", "$.spec.limit", "write a number")
    fake.answer("POST /v1/policies/validate", PolicyVerdict(None, problems=(problem,)))
    ran = federator("policy", "validate", str(tmp_path / "a.yaml"))
    assert (ran.code, ran.err) == (1, "error: $.spec.limit: is missing (write a number)\n")


def test_policy_diff_shows_what_would_change(
    federator: Command, fake: FakeDispatcher, tmp_path: Path
) -> None:
    (tmp_path / "a.yaml").write_text("kind: Queue\nlimit: 8\n")
    document = PolicyDocument("Queue", "a", "kind: Queue\nlimit: 4\n")
    fake.answer(
        "GET /v1/policies",
        PolicySet(version=2, author="ada", reason="x", applied_at=NOW, documents=(document,)),
    )
    out = federator("policy", "diff", str(tmp_path / "a.yaml")).out
    assert "-limit: 4\n+limit: 8\n" in out
    (tmp_path / "a.yaml").write_text("kind: Queue\nlimit: 4\n")
    assert federator("policy", "diff", str(tmp_path / "a.yaml")).out == "no difference\n"


def test_acts_of_operators(federator: Command, fake: FakeDispatcher) -> None:
    fake.answer("POST /v1/burst/pause", None, 204)
    fake.answer("POST /v1/sites/north/declare-dead", {"placements": ["pl-1"]})
    fake.answer("POST /v1/decisions/dec-1/replay", {"identical": False, "differences": ["actions"]})
    fake.answer("POST /v1/tokens", TokenAnswer("fed_secret", "ada", "user"), 201)
    assert federator("burst", "pause").code == 0
    assert "--reason" in federator("site", "declare-dead", "north").err
    assert "1 attempts are given up" in federator("site", "declare-dead", "north", "--reason", "burnt").out
    assert federator("decisions", "replay", "dec-1").code == 1
    assert federator("token", "create", "ada", "--role", "user").out == "fed_secret\n"
    assert "--role: is missing" in federator("token", "create", "ada").err


def test_ledger_takes_an_instant(federator: Command, fake: FakeDispatcher) -> None:
    fake.answer("GET /v1/ledger", [])
    federator("ledger", "--since", "2026-01-01T00:00:00Z", "--job", "job-1")
    assert fake.heard[0].query == {"since": "1767225600.0", "job": "job-1", "limit": "100"}
    assert federator("ledger", "--since", "yesterday").code == 2
