"""The picture fits a terminal of 100 × 35 with all that the demonstration has to show, and says what matters."""

import pytest
from rich.console import Console

from federator.cli.demo.screen import Frame, LiveScreen, PlainScreen, clock, picture
from federator.wire.http import BudgetRow, JobRow, LeaseRow, Overview, QueueRow, SiteRow

BEGAN = 1_800_000_000.0
MINUTE = 60.0


def job(number: int, **fields: object) -> JobRow:
    given: dict[str, object] = {
        "id": f"job-{number:02}",
        "name": f"job-{number:02}",
        "owner": "ada",
        "queue": "research",
        "status": "PENDING",
        "priority": 50,
        "nodes": 2,
        "gpus": 4,
        "models": "A100|H100",
        "because": "no room now for 2 nodes with 4 GPUs at any of the places that it may use, and so on",
    }
    return JobRow(**(given | fields))  # type: ignore[arg-type]


def frame(jobs: int = 18, outage: str = "") -> Frame:
    lease = LeaseRow(
        id="lease-1", site="cloud", offer="local/a2-highgpu-4g/on-demand", market="on-demand", status="BOOTING",
        gpus=4, price_usd_h=14.69, billed_usd=1.5, committed_usd=22.0, requested_at=BEGAN, because="late at home",
    )  # fmt: skip
    late = job(0, name="review", deadline_at=BEGAN + 50 * MINUTE, home_finish_at=BEGAN + 61 * MINUTE)
    return Frame(
        title="Federator: money is not real",
        phase="Work runs",
        overview=Overview(
            now=BEGAN,
            sites=tuple(
                SiteRow(name=f"site{n}", kind="onprem", status="READY", gpus=8, age_s=3.0) for n in range(4)
            ),
            queues=tuple(QueueRow(queue=f"queue{n}", guaranteed_gpus=8, limit_gpus=24) for n in range(4)),
            leases=(lease,),
            jobs=(late, *(job(number) for number in range(1, jobs))),
            spent_usd=1.5,
            committed_usd=22.0,
            caps=(
                BudgetRow(
                    policy="BurstPolicy/b", period="day", unit="usd", limit=60.0, spent=1.5, committed=22.0
                ),
            ),
        ),
        began_at=BEGAN,
        notes=tuple(f"note {n}" for n in range(10)),
        outage=outage,
    )


def drawn(shown: Frame, width: int = 100, height: int = 35) -> list[str]:
    console = Console(width=width, height=height, force_terminal=False, markup=False)
    with console.capture() as capture:
        console.print(picture(shown, width, height))
    return capture.get().rstrip("\n").split("\n")


@pytest.mark.parametrize(
    ("jobs", "width", "height"), [(18, 100, 35), (200, 100, 35), (18, 160, 50), (1, 80, 24)]
)
def test_it_fits(jobs: int, width: int, height: int) -> None:
    lines = drawn(frame(jobs), width, height)
    assert len(lines) <= height
    assert max(len(line) for line in lines) <= width


def test_all_jobs_of_the_demonstration_are_in_it() -> None:
    text = "\n".join(drawn(frame()))
    for number in range(1, 18):
        assert f"job-{number:02}" in text


def test_the_forecast_at_home_stands_beside_the_deadline() -> None:
    line = next(line for line in drawn(frame()) if line.startswith("review"))
    assert f"~{clock(BEGAN + 61 * MINUTE, BEGAN)}" in line
    assert clock(BEGAN + 50 * MINUTE, BEGAN) in line


def test_money_and_what_boots_are_shown() -> None:
    text = "\n".join(drawn(frame()))
    assert "1.50 USD spent, 22.00 USD committed, capped at 60.00 USD a day" in text
    assert "a2-highgpu-4g" in text
    assert "BOOTING" in text


def test_an_outage_takes_the_place_of_the_phase() -> None:
    lines = drawn(frame(outage="the dispatcher is dead"))
    assert "the dispatcher is dead" in lines[1]


def test_a_pipe_gets_lines_and_no_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    with PlainScreen(Console(width=10_000)) as screen:
        screen.say("something happened")
        screen.draw(frame())
        screen.draw(frame())
    out = capsys.readouterr().out
    assert "something happened\n" in out
    assert out.count("18 pending") == 1, "the second picture came too soon to be worth a line"
    assert "\x1b" not in out


def test_a_terminal_gets_the_picture() -> None:
    console = Console(width=100, height=35, force_terminal=True)
    with console.capture() as capture, LiveScreen(console) as screen:
        screen.draw(frame())
    assert "review" in capture.get()


def test_what_is_days_away_is_not_shown_as_a_time_of_day() -> None:
    assert clock(BEGAN + 3 * 86400, BEGAN) == "+3d"
    assert clock(None, BEGAN) == "-"
