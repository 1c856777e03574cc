"""Series while processes die, clocks jump and leaders change: each time has one run or a word why it has none, and never two runs at once."""

import re

import pytest
from msgspec.structs import replace

from federator.kernel.quantities import parse_instant
from federator.model.series import Series
from tests.lab.faults import running
from tests.lab.faults.drawing import draw
from tests.lab.faults.plan import JobPlan, SeriesPlan
from tests.lab.faults.world import World

EVERY_S, TIMES = 1800.0, 16
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def play(seed: int, overlap: str, monkeypatch: pytest.MonkeyPatch) -> World:
    """The seed's world with a series in it, played to its end."""
    worlds: list[World] = []

    class Seen(World):
        def __init__(self, *given: object) -> None:
            super().__init__(*given)  # type: ignore[arg-type]
            worlds.append(self)

    monkeypatch.setattr(running, "World", Seen)
    job = JobPlan(name="again", submit_s=400.0, run_s=2700.0, max_duration_s=7200.0)
    series = SeriesPlan(job=job, every_s=EVERY_S, times=TIMES, overlap=overlap)
    plan = draw(seed)
    outcome = running.play_plan(replace(plan, jobs=plan.jobs[:8], series=(series,)))
    assert not outcome.findings, "\n".join([*(f.what for f in outcome.findings), *outcome.last])
    return worlds[0]


def told(series: Series, due_at: float) -> bool:
    """Whether it is said why that time has no run."""
    for note in series.notes:
        times = [parse_instant(found) for found in INSTANT.findall(note.text)]
        if note.text.startswith("no dispatcher was running"):
            if times[0] - 1.0 <= due_at < times[1] + 1.0:
                return True
        elif abs(times[0] - due_at) < 1.0:
            return True
    return False


@pytest.mark.parametrize(
    ("seed", "overlap"), [(9100, "skip"), (9101, "queue"), (9102, "replace"), (9104, "skip")]
)
def test_each_time_has_one_run_or_a_word_why_it_has_none(
    seed: int, overlap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = play(seed, overlap, monkeypatch).truth.rows
    (series,) = rows.series.values()
    had = {job.due_at for job in rows.jobs.values() if job.series == "again"}
    due = [(series.every.start_at or 0.0) + number * EVERY_S for number in range(TIMES)]
    assert had <= set(due)
    due = [at for at in due if at >= series.created_at]
    assert len(had) == series.runs > 1
    assert [at for at in due if at not in had and not told(series, at)] == []
