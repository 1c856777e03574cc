"""The verbs for those who run a federation: lists of the platform, policies, acts on sites."""

import json
from pathlib import Path

import msgspec
import pytest

from federator.cli.schema import SCHEMAS
from federator.model.capacity import Pool
from federator.model.events import LedgerEntry, LedgerKind
from federator.model.identity import Scope
from federator.model.outlook import Proof
from federator.model.rules import PolicySet
from federator.model.sites import AilingGpu, LocalWork
from federator.planning.wording.told import told_plan
from federator.wire.administration import (
    BurstPolicyRow,
    BurstStatus,
    DocumentChange,
    PolicyDiff,
    PolicyVerdict,
    ProposalRow,
)
from federator.wire.decisions import DecisionRow, ToldDecision
from federator.wire.http import (
    BudgetRow,
    LeaseRow,
    OfferRow,
    Overview,
    PoolRow,
    Problem,
    QueueRow,
    SiteRow,
    TokenAnswer,
    TokenRow,
)
from federator.wire.rights import QueueRights, TeamRow
from tests.architecture.sources import text
from tests.support.fake_dispatcher import FakeDispatcher
from tests.support.worlds import a_job, a_plan, a_pool, a_world, placed
from tests.unit.cli.answers import NOW, TIME, row
from tests.unit.cli.conftest import Command

SITE = SiteRow(
    name="north", kind="onprem", status="READY", gpus=8, busy=3, running=2, largest_gang="1x4", age_s=2.0
)
LEASE = LeaseRow(
    id="lease-1", site="cloud", offer="a100-spot", market="spot", status="READY", gpus=4, price_usd_h=3.2, billed_usd=1.5,
    committed_usd=4.0, requested_at=NOW - 600, because="train would miss its deadline",
)  # fmt: skip


def test_a_site_that_drains_says_by_whom_and_why(federator: Command, fake: FakeDispatcher) -> None:
    why = "north is drained by sam: new racks come"
    site = msgspec.structs.replace(SITE, draining=True, because="the site is draining", drain_because=why)
    fake.answer("GET /v1/sites/north", site, headers=TIME)
    assert why in federator("site", "show", "north").out


def test_gpus_that_take_no_new_work_are_named_with_the_reason(
    federator: Command, fake: FakeDispatcher
) -> None:
    ill = AilingGpu("a100", "a100/0", 3, "it is lost from the bus")
    pool = Pool(name="a100", model="A100", gpus_per_node=8, lent_gpus=7)
    pools = (PoolRow(pool, "north-2", (), 0, "1x7", ailing=(ill,)),)
    site = msgspec.structs.replace(SITE, pools=pools)
    fake.answer("GET /v1/sites", [site], headers=TIME)
    fake.answer("GET /v1/sites/north", site, headers=TIME)
    assert "takes no new work on 1 GPU: it is lost" in federator("sites").out
    shown = federator("site", "show", "north").out
    assert shown.splitlines()[-1].split() == ["3", "a100", "north-2", *ill.why.split()]


def test_a_site_says_what_runs_its_work_and_what_of_its_own_is_in_the_way(
    federator: Command, fake: FakeDispatcher
) -> None:
    pool = Pool(name="a100", model="A100", gpus_per_node=8, lent_gpus=8)
    own = (
        LocalWork("a100", 2, 4, ends_at=NOW + 300),
        LocalWork("a100", 1, 8, queued=True),
        LocalWork("a100", 1, 1),
    )
    rows = (PoolRow(pool, "north-2", (), 8, "-", local_work=own),)
    site = msgspec.structs.replace(SITE, pools=rows, runtime="slurm")
    fake.answer("GET /v1/sites", [site], headers=TIME)
    fake.answer("GET /v1/sites/north", site, headers=TIME)
    assert "Slurm" not in federator("sites").out
    assert "Slurm" in federator("sites", "-o", "wide").out
    shown = federator("site", "show", "north").out
    assert "runtime  Slurm" in shown
    assert [line.split(maxsplit=4)[2:] for line in shown.splitlines()[-3:]] == [
        ["2", "4", "runs, to end in 5m"],
        ["1", "8", "waits in the site's own queue"],
        ["1", "1", "runs"],
    ]


def test_the_list_of_teams(federator: Command, fake: FakeDispatcher) -> None:
    rights = QueueRights(queue="research", max_priority=60, rent=False, teams=("vision",))
    team = TeamRow(
        team="vision", members=("ada",), groups=("ml",), admins=("tess",), yours=True, queues=(rights,)
    )
    fake.answer("GET /v1/teams", [team])
    said = federator("teams", "-o", "wide").out
    for word in (
        "vision",
        "member",
        "ada, group ml",
        "tess",
        "research: priority to 60, no renting, as vision",
    ):
        assert word in said


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
    assert federator("offers").err.startswith(
        "no offers: the dispatcher has no provider, or none that answers"
    )
    assert federator("budgets").code == 0
    assert "dec-1" in federator("decisions", "list").out


def test_wide_offers_say_how_often_they_are_taken_back_and_how_that_is_known(
    federator: Command, fake: FakeDispatcher
) -> None:
    sure = OfferRow(
        provider="acme", name="eu/sure", site="acme-eu", model="A100", gpus=1, market="on-demand", price_usd_h=4.0, delay_s=60.0, available=1
    )  # fmt: skip
    spot = msgspec.structs.replace(
        sure, name="eu/spot", market="spot", interruptions_h=0.027, interruptions=1, watched_h=50.2
    )
    zoned = msgspec.structs.replace(spot, zones_interruptions_h={"eu-b": 0.09, "eu-a": 0.01})
    fake.answer("GET /v1/offers", [sure, spot, zoned], headers=TIME)
    first, second, third = federator("offers", "-o", "wide").out.splitlines()[1:]
    assert "0.027/h (1 in 50 h)" in second
    assert "/h" not in first
    assert "0.027/h (1 in 50 h; eu-a 0.01/h, eu-b 0.09/h)" in third
    fake.answer("GET /v1/leases", [msgspec.structs.replace(LEASE, zone="eu-a")], headers=TIME)
    assert "eu-a" in federator("leases", "-o", "wide").out


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


@pytest.mark.parametrize("verb", [("validate",), ("diff",), ("apply", "-m", "why"), ("replay",)])
def test_what_is_no_yaml_is_a_bad_input_and_never_a_refused_set(
    federator: Command, fake: FakeDispatcher, tmp_path: Path, verb: tuple[str, ...]
) -> None:
    (tmp_path / "a.yaml").write_text("---\nkind: Queue\n")
    (tmp_path / "b.yaml").write_text("kind: Queue\nspec: {limit: 1\n")
    ran = federator("policy", *verb, str(tmp_path))
    assert ran.code == 2
    assert f"{tmp_path}/b.yaml, line 3: this is not YAML" in ran.err
    assert "close the bracket" in ran.err
    assert not fake.heard


def test_a_fault_is_told_with_its_file_and_the_line_there(
    federator: Command, fake: FakeDispatcher, tmp_path: Path
) -> None:
    (tmp_path / "a.yaml").write_text("---\nkind: Queue\n")
    (tmp_path / "b.yaml").write_text("---\nkind: Queue\nspec: 1\n")
    (tmp_path / "c.yaml").write_text("kind: Queue\nspec: 2\n")
    problems = tuple(
        Problem("about:blank", "x", 400, f"Queue/x, line {line}: is wrong", "invalid") for line in (1, 4, 7)
    )
    fake.answer("POST /v1/policies/validate", PolicyVerdict(None, problems=problems))
    ran = federator("policy", "validate", str(tmp_path))
    assert json.loads(fake.heard[0].body)["text"].splitlines()[::3] == [
        "kind: Queue",
        "spec: 1",
        "spec: 2",
    ]
    where = [line.partition(f"{tmp_path}/")[2] for line in ran.err.splitlines()]
    assert where == [f"{file}.yaml, line {line}: is wrong" for file, line in (("a", 2), ("b", 3), ("c", 2))]


def test_a_set_without_policies_is_refused_unless_it_is_meant(
    federator: Command, fake: FakeDispatcher, tmp_path: Path
) -> None:
    (tmp_path / "a.yaml").write_text("# nothing\n---\n")
    fake.answer("POST /v1/policies", PolicyVerdict(3))
    for verb in (["validate"], ["apply", "-m", "x"]):
        ran = federator("policy", *verb, str(tmp_path / "a.yaml"))
        assert (ran.code, "--allow-empty" in ran.err) == (2, True)
    assert not fake.heard
    told = federator("policy", "apply", "-m", "x", "--allow-empty", str(tmp_path / "a.yaml")).out
    assert told == "version 3 is in force: 0 documents\n"
    fake.answer("GET /v1/policies", PolicySet(version=0, author="", reason="", applied_at=0))
    assert federator("policy", "show").out == "# no policies are in force\n"


def test_policy_diff_shows_documents_and_effect(
    federator: Command, fake: FakeDispatcher, tmp_path: Path
) -> None:
    (tmp_path / "a.yaml").write_text("kind: Queue\nlimit: 8\n")
    change = DocumentChange("Queue/a", "changed", ("@@ -1 +1 @@", "-limit: 4", "+limit: 8"))
    for answer in (
        PolicyDiff(2, (change,), ("Queue/a: 8",), ("Queue/a: 4",)),
        PolicyDiff(2, (change,)),
        PolicyDiff(2),
        PolicyDiff(2, problems=(Problem("", "", 422, "line 1: no", "invalid"),)),
    ):
        fake.answer("POST /v1/policies/diff", answer)
    ran = [federator("policy", "diff", str(tmp_path / "a.yaml")) for _ in range(4)]
    assert "changed: Queue/a\n  @@ -1 +1 @@\n  -limit: 4\n  +limit: 8\n" in ran[0].out
    assert "effect:\n- Queue/a: 4\n+ Queue/a: 8\n" in ran[0].out
    assert "the effect is the same" in ran[1].out
    assert ran[2].out == "no difference from version 2\n"
    assert (ran[3].code, "a.yaml, line 1: no" in ran[3].err) == (1, True)


def test_policy_rollback_wants_a_version_and_a_reason(federator: Command, fake: FakeDispatcher) -> None:
    assert "--reason" in federator("policy", "rollback", "3").err
    fake.answer("POST /v1/policies/rollback", PolicyVerdict(7, ("Queue/a",), 1))
    told = federator("policy", "rollback", "3", "-m", "too strict").out
    assert told == "version 7 is in force: the documents of version 3\n"
    assert msgspec.json.decode(fake.heard[-1].body) == {"version": 3, "reason": "too strict"}


@pytest.mark.parametrize("file", SCHEMAS)
def test_schemas_are_printed_as_they_are_published(
    federator: Command, fake: FakeDispatcher, file: str
) -> None:
    printed = msgspec.json.decode(federator("schema", file).out)
    assert printed == msgspec.json.decode(text(f"docs/reference/{file}.schema.json"))
    assert not fake.heard


def test_budgets_are_shown_with_a_bar(federator: Command, fake: FakeDispatcher) -> None:
    row = BudgetRow(
        policy="Budget/b", period="day", unit="usd", limit=100, spent=50, committed=25, share="ada",
        forecast=130.0, ends_at=NOW + 3600,
    )  # fmt: skip
    fake.answer("GET /v1/budgets", [row])
    out = federator("budgets", "-o", "wide").out
    assert "[######+++...] 75%" in out
    assert "130.00" in out
    assert "ada" in out
    assert msgspec.json.decode(federator("budgets", "-o", "json").out)[0]["forecast"] == 130.0


def test_a_budget_says_whom_it_is_for(federator: Command, fake: FakeDispatcher) -> None:
    row = BudgetRow(policy="b", period="day", unit="usd", limit=1_250_000, spent=50, committed=25)
    named = msgspec.structs.replace(row, who="queue research or paper")
    fake.answer("GET /v1/budgets", [row, named, msgspec.structs.replace(named, share="ada")])
    lines = federator("budgets").out.splitlines()
    assert [line[3:].split("  day")[0].strip() for line in lines[1:]] == [
        "all",
        "queue research or paper",
        "ada",
    ]
    assert "1,250,000  " in lines[1]


def test_burst_shows_policies_and_what_waits_for_approval(federator: Command, fake: FakeDispatcher) -> None:
    policy = BurstPolicyRow(
        policy="BurstPolicy/p", mode="always", who="everybody", where="everywhere", open=True
    )
    proposal = ProposalRow(
        kind="approval", job="job-1", name="train", owner="ada", queue="q", policy="BurstPolicy/p",
        offer="cloudy/x", cost_usd=1.0, worst_usd=2.0, because="it is dear",
    )  # fmt: skip
    status = BurstStatus(
        paused=True, paused_by="root", paused_at=NOW, policies=(policy,), proposals=(proposal,)
    )
    fake.answer("GET /v1/burst", status)
    out = federator("burst").out
    assert "paused by root" in out
    (line,) = (each for each in out.splitlines() if each.startswith("BurstPolicy/p"))
    assert line.split()[:3] == ["BurstPolicy/p", "always", "paused"], "its hours hold, and nothing is rented"
    assert "it is dear" in out
    fake.answer("POST /v1/burst/approve", None, 204)
    assert federator("burst", "approve", "train", "--up-to", "40", "-m", "due").code == 0
    assert msgspec.json.decode(fake.heard[-1].body) == {"job": "train", "usd": 40.0, "reason": "due"}


def test_acts_of_operators(federator: Command, fake: FakeDispatcher) -> None:
    fake.answer("POST /v1/burst/pause", None, 204)
    fake.answer("POST /v1/sites/north/declare-dead", {"placements": ["pl-1"]})
    fake.answer("POST /v1/tokens", TokenAnswer("fed_secret", "ada", "user"), 201)
    assert federator("burst", "pause").code == 0
    assert "--reason" in federator("site", "declare-dead", "north").err
    assert "1 attempts are given up" in federator("site", "declare-dead", "north", "--reason", "burnt").out
    told = federator("site", "declare-dead", "north", "--reason", "burnt", "--member", "north-2").out
    assert "north-2 is declared dead" in told
    assert federator("token", "create", "ada", "--role", "user").out == "fed_secret\n"
    assert "--role: is missing" in federator("token", "create", "ada").err


def test_one_token_is_asked_for_many_sites(federator: Command, fake: FakeDispatcher) -> None:
    fake.answer("POST /v1/tokens", TokenAnswer("join_secret", "", site="store-*", most=200), 201)
    made = federator("token", "create", "--site", "store-*", "--kind", "edge", "--most", "200")
    assert made.out == "join_secret\n"
    assert json.loads(fake.of("POST /v1/tokens")[-1].body)["most"] == 200


def test_ledger_takes_an_instant(federator: Command, fake: FakeDispatcher) -> None:
    fake.answer("GET /v1/ledger", [])
    federator("ledger", "--since", "2026-01-01T00:00:00Z", "--job", "job-1")
    assert fake.heard[0].query == {"since": "1767225600.0", "job": "job-1", "limit": "101"}
    assert federator("ledger", "--since", "last week").code == 2


def test_the_ledger_says_when_it_is_cut(federator: Command, fake: FakeDispatcher) -> None:
    lines = [
        LedgerEntry(id=f"le-{n:04}", at=NOW, kind=LedgerKind.ACT, who="user:ada", what=f"act {n}")
        for n in range(1000)
    ]
    for answer in (lines[:3], lines[:2], lines, lines[:5]):
        fake.answer("GET /v1/ledger", answer)
    ran = federator("ledger", "--limit", "2")
    assert "act 1" in ran.out
    assert "act 2" not in ran.out
    assert "oldest 2" in ran.err
    assert "--after le-0001" in ran.err
    assert fake.of("GET /v1/ledger")[-1].query["limit"] == "3"
    assert federator("ledger", "--limit", "2").err == ""
    ran = federator("ledger", "--all")
    assert len(ran.out.splitlines()) == 1006
    assert ran.err == ""
    assert fake.of("GET /v1/ledger")[-1].query["after"] == "le-0999"


def test_tokens_are_listed_without_secrets(federator: Command, fake: FakeDispatcher) -> None:
    tokens = [
        TokenRow(
            name="ada",
            role="user",
            default_queue="research",
            created_at=NOW - 60,
            status="revoked",
            id="5e1f",
            scopes=(Scope.READ,),
            last_used_at=NOW - 7200,
        ),
        TokenRow(name="", site="north", created_at=NOW, expires_at=NOW + 3600, status="valid"),
        TokenRow(name="", site="edge-*", created_at=NOW, status="valid", most=9, used=2),
    ]
    fake.answer("GET /v1/tokens", tokens, headers=TIME)
    lines = [line.split() for line in federator("token", "list").out.splitlines()[1:]]
    assert lines == [
        ["5e1f", "ada", "user", "research", "1m", "ago", "-", "2h", "ago", "read", "revoked"],
        ["-", "-", "an", "agent", "of", "north", "-", "now", "in", "1h", "-", "-", "valid"],
        ["-", "-", "2", "of", "9", "sites", "edge-*", "-", "now", "-", "-", "-", "valid"],
    ]


def test_a_gone_site_is_removed(federator: Command, fake: FakeDispatcher) -> None:
    fake.answer("DELETE /v1/sites/north", None)
    assert "north is removed" in federator("site", "remove", "north").out


def test_a_decision_is_shown_for_people_and_whole_for_programs(
    federator: Command, fake: FakeDispatcher
) -> None:
    problem = a_world([a_job("job-a"), a_job("job-b")], [a_pool()])
    start = placed(problem.snapshot.jobs[0], problem.snapshot.pools[0])
    plan = msgspec.structs.replace(a_plan(start, waiting=["job-b"]), taken_at=NOW)
    row = DecisionRow(
        id="dec-1", at=NOW, winner="greedy", objective_usd=1.0, actions=1, jobs=2, stages="greedy", size_bytes=9, waiting=3
    )  # fmt: skip
    told = ToldDecision(
        row=row, plan=told_plan(plan), names={"job-a": "train"}, pools=1, offers=0, policy_version=7
    )
    fake.answer("GET /v1/decisions/dec-1/told", told, headers=TIME)
    shown = federator("decisions", "show", "dec-1").out
    assert "2 waiting jobs, 1 pool, 0 offers, policies version 7" in shown
    does, waits = shown.split("Lets wait")
    assert "start" in does
    assert "train" in does
    assert "home/gpu" in does
    assert "job-b" in waits
    assert "nothing is free" in waits
    assert "and 2 more jobs" in waits
    proof = Proof(bound_usd=12.5, gap=0.0123)
    certified = msgspec.structs.replace(told, row=msgspec.structs.replace(row, proof=proof))
    fake.answer("GET /v1/decisions/dec-2/told", certified, headers=TIME)
    assert "decision gap" not in shown
    assert (
        "1.23 % above the model's bound; no plan costs less than 12.50 USD"
        in federator("decisions", "show", "dec-2").out
    )
    fake.answer("GET /v1/decisions/dec-1", {"problem": problem, "plan": plan}, headers=TIME)
    for words in (["--json"], ["-o", "json"]):
        answer = json.loads(federator("decisions", "show", "dec-1", *words).out)
        assert set(answer) == {"problem", "plan"}


def test_top_says_how_many_jobs_there_are(federator: Command, fake: FakeDispatcher) -> None:
    overview = Overview(
        now=NOW, sites=(), queues=(), leases=(), jobs=(row(1), row(2)), spent_usd=0, committed_usd=0, caps=(), jobs_total=7000
    )  # fmt: skip
    fake.answer("GET /v1/overview", overview)
    assert "Jobs (2 of 7000)" in federator("top", "--once").out
