"""`federator plan`: a line for each piece of work, drawn where it is in time, and the plan of another moment."""

import json

import pytest

from federator.model.timetable import Bar, BarState, Lane
from federator.wire.decisions import DecisionRow
from federator.wire.timetable import PlanPage
from tests.support.fake_dispatcher import FakeDispatcher
from tests.unit.cli.answers import NOW, TIME
from tests.unit.cli.conftest import Command

HOUR = 3600.0


def bar(name: str, state: BarState, start_h: float, end_h: float, **fields: object) -> Bar:
    made: dict[str, object] = {"job": f"job-{name}", "gpus": 4.0, "owner": "ada", "queue": "default"} | fields
    times = {"start_at": NOW + start_h * HOUR, "end_at": NOW + end_h * HOUR}
    return Bar(id=name, lane="hall/main", state=state, name=name, **times, **made)  # type: ignore[arg-type]


def page(*bars: Bar, **fields: object) -> PlanPage:
    given: dict[str, object] = {
        "decision": "dec-9", "taken_at": NOW, "recorded": True, "winner": "lp: 3.20 USD lower than greedy", "since_at": NOW - HOUR,
        "until_at": NOW + 7 * HOUR, "lanes": (Lane(key="hall/main", site="hall", pool="main"),), "bars": bars, "total": len(bars),
    }  # fmt: skip
    return PlanPage(**(given | fields))  # type: ignore[arg-type]


@pytest.fixture
def plan(fake: FakeDispatcher) -> FakeDispatcher:
    bars = (
        bar("next", BarState.PLANNED, 2.0, 5.0, tasks=3), bar("now", BarState.RUNNING, -0.5, 2.0),
        bar("before", BarState.ENDED, -1.0, -0.5),
    )  # fmt: skip
    fake.answer("GET /v1/plan", page(*bars, unplanned=2, outside=7), headers=TIME)
    return fake


@pytest.mark.usefixtures("plan")
def test_each_piece_of_work_is_drawn_in_its_time(federator: Command) -> None:
    said = federator("plan").out
    lines = {line.split()[1]: line for line in said.splitlines() if line.startswith("hall/main")}
    assert list(lines) == ["before", "now", "next"]
    drawn = {
        name: [line.index(glyph), line.rindex(glyph)]
        for (name, line), glyph in zip(lines.items(), "─█░", strict=True)
    }
    assert drawn["before"][1] < drawn["now"][0] < drawn["now"][1] < drawn["next"][0]
    assert max(map(len, said.splitlines())) < 200, "also in a pipe, which takes any width"
    assert "next ×3" in lines["next"]
    assert (
        "and 2 waiting jobs without a start that can be foreseen, 7 more jobs waiting for others, or for a turn to be looked at"
        in said
    )


@pytest.mark.usefixtures("plan")
def test_programs_get_what_the_dispatcher_answers(federator: Command) -> None:
    found = json.loads(federator("plan", "-o", "json").out)
    assert [each["state"] for each in found["bars"]] == ["planned", "running", "ended"]
    assert found["bars"][0]["start_at"] == "2025-10-09T10:53:20Z"
    assert federator("plan", "-o", "csv").out.startswith("id,lane,state,")


def test_one_lane_does_not_fill_the_screen(federator: Command, fake: FakeDispatcher) -> None:
    bars = [bar(f"job{number}", BarState.PLANNED, number, number + 1) for number in range(40)]
    fake.answer("GET /v1/plan", page(*bars, total=90), headers=TIME)
    said = federator("plan").out
    assert "and 28 more" in said
    assert "and 50 more bars" in said


def test_the_plan_of_then_is_that_of_the_last_decision_before(
    federator: Command, fake: FakeDispatcher
) -> None:
    fake.answer("GET /v1/plan", page(), headers=TIME)
    rows = [
        DecisionRow(
            id=f"dec-{n}",
            at=n,
            winner="lp",
            objective_usd=0.0,
            actions=1,
            jobs=1,
            stages=stages,
            size_bytes=1,
        )
        for n, stages in ((1, "greedy, lp"), (2, "quick"))
    ]
    fake.answer("GET /v1/decisions", rows, headers=TIME)
    fake.answer("GET /v1/decisions/dec-1/plan", page(bar("now", BarState.RUNNING, -0.5, 2.0)), headers=TIME)
    assert "now" in federator("plan", "--at", "1h").out
    assert len(fake.of("GET /v1/decisions/dec-1/plan")) == 2
    wrong = federator("plan", "--at", "1969-12-31T00:00:00Z")
    assert (wrong.code != 0, "no decision of then is recorded" in wrong.err) == (True, True)


@pytest.mark.parametrize(
    ("words", "span_s"),
    [
        ((), (3600, 12 * 3600)),
        (("--ahead", "90m", "--back", "0s"), (0, 5400)),
        (("--hours", "2"), (3600, 7200)),
        (("--ahead", "1.5", "--back", "30m"), (1800, 5400)),
    ],
)
def test_how_far_it_looks_is_a_duration(
    federator: Command, fake: FakeDispatcher, words: tuple[str, ...], span_s: tuple[float, float]
) -> None:
    fake.answer("GET /v1/plan", page(), headers=TIME)
    assert federator("plan", *words).code == 0
    asked = fake.of("GET /v1/plan")[-1].query
    assert (NOW - float(asked["since"]), float(asked["until"]) - NOW) == span_s


@pytest.mark.parametrize(("option", "text"), [("--ahead", "31d"), ("--back", "25h"), ("--ahead", "soon")])
def test_how_far_it_cannot_look_is_said(
    federator: Command, fake: FakeDispatcher, option: str, text: str
) -> None:
    ran = federator("plan", option, text)
    assert (ran.code, option in ran.err) == (2, True)
    assert not fake.heard
