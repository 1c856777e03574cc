"""The corpus, tiny: two builds are told apart by what their decisions are worth, and by nothing that they say of them."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from federator.model.snapshot import Problem
from tests.bench.corpus import decide, judge
from tests.bench.corpus.make import Corpus, spread
from tests.support.worlds import HOUR, NOW, a_job, a_pool, a_world, an_offer, bursting

Action = dict[str, Any]


def _rushed() -> Problem:
    """Home takes one of two jobs, and a rental pays for the other."""
    jobs = [
        a_job(f"job-{n}", gpus=8, run_s=HOUR, max_duration_s=2 * HOUR, deadline_at=NOW + 1.5 * HOUR, value_usd=900.0)
        for n in range(2)
    ]  # fmt: skip
    return a_world(jobs, [a_pool(nodes=1)], [an_offer(gpus=8)], rules=[bursting()])


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    made = Corpus(tmp_path / "corpus")
    made.put("tiny", "rushed", _rushed())
    made.put("tiny", "idle", a_world([a_job()], [a_pool()]))
    return tmp_path / "corpus"


def _decide(monkeypatch: pytest.MonkeyPatch, corpus: Path, plans: Path, *options: str) -> None:
    monkeypatch.setattr(sys, "argv", ["decide.py", str(corpus), str(plans), *options])
    decide.main()


def _judge(monkeypatch: pytest.MonkeyPatch, corpus: Path, *plans: Path) -> int:
    monkeypatch.setattr(sys, "argv", ["judge.py", str(corpus), *map(str, plans)])
    return judge.main()


def _changed(plan: Path, change: Callable[[list[Action]], list[Action]]) -> None:
    """A plan has these actions instead."""
    told = msgspec.msgpack.decode(plan.read_bytes())
    told["plan"]["actions"] = change(told["plan"]["actions"])
    plan.write_bytes(msgspec.msgpack.encode(told))


def _each_with(**fields: Any) -> Callable[[list[Action]], list[Action]]:
    return lambda actions: [{**each, **fields} for each in actions]


def _without_rentals(actions: list[Action]) -> list[Action]:
    return [each for each in actions if each["type"] != "rent"]


def test_the_same_decisions_come_to_the_same_whatever_is_said_of_them(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _decide(monkeypatch, corpus, tmp_path / "old")
    _decide(monkeypatch, corpus, tmp_path / "new", "--stages", "greedy", "--only", "tiny/")
    _changed(tmp_path / "new/tiny/idle.plan", _each_with(because={"kind": "unheard-of"}, unknown=1))
    assert _judge(monkeypatch, corpus, tmp_path / "old", tmp_path / "new") == 0
    shown = capsys.readouterr().out
    assert "| all | 2 |" in shown
    assert "dearer by more than 1 %: 0" in shown


@pytest.mark.parametrize(
    ("name", "change", "named"),
    [
        ("rushed", _without_rentals, ("dearer by more than 1 %: 1", "tiny/rushed: ")),
        ("idle", _each_with(members=["nowhere"]), ("invalid: tiny/idle: job-a",)),
        ("rushed", None, ("not decided by the new one: tiny/rushed",)),
    ],
    ids=["dearer", "invalid", "missing"],
)
def test_a_worse_decision_is_named(
    name: str,
    change: Callable[[list[Action]], list[Action]] | None,
    named: tuple[str, ...],
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for build in ("old", "new"):
        _decide(monkeypatch, corpus, tmp_path / build)
    plan = tmp_path / f"new/tiny/{name}.plan"
    if change is None:
        plan.unlink()
    else:
        _changed(plan, change)
    assert _judge(monkeypatch, corpus, tmp_path / "old", tmp_path / "new") == 1
    shown = capsys.readouterr().out
    assert all(line in shown for line in named), shown


def test_a_long_line_is_decided_as_a_turn_sees_it_and_judged_whole(tmp_path: Path) -> None:
    made = Corpus(tmp_path)
    for name in ("long", "long.seen", "long.blind", "short"):
        made.put("bench", name, a_world([a_job()]))
    for variant, file in (("seen", "long.seen"), ("blind", "long.blind"), ("whole", "long")):
        found = decide.problems_of(tmp_path, variant, "")
        assert [(name, path.stem) for name, path in found] == [("bench/long", file), ("bench/short", "short")]


def test_problems_are_kept_equally_far_apart() -> None:
    problems = [a_world([a_job(f"job-{number}")]) for number in range(10)]
    kept = [problem.snapshot.jobs[0].id for problem in spread(problems, 3)]
    assert kept == ["job-1", "job-4", "job-7"]
