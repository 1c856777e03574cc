"""`federator decisions replay` and `certify`: recorded problems decided, checked and proven again on this machine, from a dispatcher's records or from files."""

import json
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from federator.model.plans import Place, Plan
from federator.solving.decide import decide
from federator.wire.decisions import DecisionRow
from tests.support.fake_dispatcher import FakeDispatcher
from tests.support.worlds import a_job, a_pool, a_world
from tests.unit.cli.answers import NOW, TIME
from tests.unit.cli.conftest import Command

PROBLEM = a_world([a_job(f"job-{n}", gpus=4) for n in range(4)], [a_pool()])
PLAN = decide(PROBLEM)
FIRST = PLAN.actions[0]
assert isinstance(FIRST, Place)
OTHER = replace(PLAN, actions=(replace(FIRST, site="far"), *PLAN.actions[1:]))


def _recorded(fake: FakeDispatcher, name: str, plan: Plan = PLAN, times: int = 1) -> None:
    answer = {"problem": msgspec.to_builtins(PROBLEM), "plan": msgspec.to_builtins(plan)}
    for _ in range(times):
        fake.answer(f"GET /v1/decisions/{name}", answer, headers=TIME)


def _row(name: str) -> DecisionRow:
    fields: dict[str, Any] = {
        "winner": "lp",
        "objective_usd": 1.0,
        "actions": 2,
        "jobs": 4,
        "stages": "greedy, lp",
    }
    return DecisionRow(id=name, at=NOW, size_bytes=9, **fields)  # fmt: skip


def test_one_that_comes_out_the_same(federator: Command, fake: FakeDispatcher) -> None:
    _recorded(fake, "dec-1")
    ran = federator("decisions", "replay", "dec-1")
    assert (ran.code, ran.out) == (0, "identical\n")


def test_one_that_does_not_says_which_job_and_what_of_it(federator: Command, fake: FakeDispatcher) -> None:
    _recorded(fake, "dec-1", OTHER, times=2)
    ran = federator("decisions", "replay", "dec-1")
    assert ran.code == 1
    assert f'{FIRST.job} ({FIRST.job}): starts at far/gpu: site: recorded "far", now "home"' in ran.out
    ran = federator("decisions", "replay", "dec-1", "-o", "json")
    assert ran.code == 1
    [told] = json.loads(ran.out)
    assert (told["identical"], len(told["differences"])) == (False, 1)


def test_the_last_few(federator: Command, fake: FakeDispatcher) -> None:
    fake.answer("GET /v1/decisions", [_row("dec-1"), _row("dec-2")])
    _recorded(fake, "dec-1", OTHER)
    _recorded(fake, "dec-2")
    ran = federator("decisions", "replay", "--last", "2")
    assert ran.code == 1
    assert fake.of("GET /v1/decisions")[-1].query == {"last": "2"}
    assert [line.split()[:2] for line in ran.out.splitlines()[1:3]] == [
        ["dec-1", "different"],
        ["dec-2", "identical"],
    ]
    assert "dec-1 is different:" in ran.out
    assert "dec-2 is different:" not in ran.out


def test_from_a_file_that_show_has_written(federator: Command, fake: FakeDispatcher, tmp_path: Path) -> None:
    _recorded(fake, "dec-1", times=2)
    packed, plain = tmp_path / "problem.json.gz", tmp_path / "whole.json"
    assert federator("decisions", "show", "dec-1", "--problem", str(packed)).code == 0
    plain.write_text(federator("decisions", "show", "dec-1", "--json").out)
    told = json.loads(plain.read_text()) | {"proof": {"bound_usd": 1.0, "gap": 0.0}}
    plain.write_text(json.dumps(told))
    ran = federator("decisions", "replay", str(packed), str(plain))
    assert ran.code == 0
    assert [line.split()[1] for line in ran.out.splitlines()[1:]] == ["identical", "identical"]
    assert len(fake.heard) == 2, "files need no dispatcher"


def test_the_dispatcher_may_decide_itself(federator: Command, fake: FakeDispatcher) -> None:
    _recorded(fake, "dec-1")
    fake.answer("POST /v1/decisions/dec-1/replay", {"identical": False, "differences": ["term rent: …"]})
    ran = federator("decisions", "replay", "dec-1", "--at-dispatcher")
    assert ran.code == 1
    assert "term rent: …" in ran.out


def test_what_cannot_be_replayed_says_why(federator: Command, fake: FakeDispatcher, tmp_path: Path) -> None:
    assert "--last 20" in federator("decisions", "replay").err
    bare, none = tmp_path / "bare.json", tmp_path / "none.json"
    _recorded(fake, "dec-1")
    federator("decisions", "show", "dec-1", "--problem", str(bare))
    told = json.loads(bare.read_bytes())
    del told["recorded"]
    bare.write_text(json.dumps(told))
    ran = federator("decisions", "replay", str(bare))
    assert ran.code == 2
    assert "no recorded plan" in ran.err
    assert "--problem FILE" in ran.err
    bare.write_text('{"format": 1}')
    assert f"$.format: {bare}: must be federator-problem/1" in federator("decisions", "replay", str(bare)).err
    none.write_text("[]")
    assert federator("decisions", "replay", str(none)).code == 2
    none.write_text("no")
    assert "this is not JSON" in federator("decisions", "replay", str(none)).err


def test_certified_is_what_the_checker_and_a_bound_say_of_it(
    federator: Command, fake: FakeDispatcher
) -> None:
    _recorded(fake, "dec-1", times=2)
    ran = federator("decisions", "certify", "dec-1")
    assert ran.code == 0
    assert ran.out.splitlines()[1].split()[:3] == ["dec-1", "0", "0"]
    [told] = json.loads(federator("decisions", "certify", "dec-1", "-o", "json").out)
    assert told["proof"]["gap"] >= 0
    assert told["findings"] == []


def test_one_that_breaks_a_promise_is_no_certificate(federator: Command, fake: FakeDispatcher) -> None:
    _recorded(fake, "dec-1", OTHER)
    ran = federator("decisions", "certify", "dec-1")
    assert ran.code == 1
    assert f"dec-1: fatal: {FIRST.job}: " in ran.out
    assert "certify --last 20" in federator("decisions", "certify").err
