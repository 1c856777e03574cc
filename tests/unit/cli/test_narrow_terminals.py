"""On eighty columns a table says what it has no room for, and no two lines of it look alike."""

import io

import pytest
from rich.console import Console

from federator.cli.columns import job_columns, lease_columns, pool_columns
from federator.cli.explain import drawn
from federator.cli.layout import table
from federator.cli.money_columns import budget_columns
from federator.model.capacity import Market, Pool, Shape
from federator.model.plans import Explanation, PricePoint, SiteReason
from federator.wire.http import BudgetRow, JobRow, LeaseRow, PoolRow

NOW = 1_760_000_000.0


def printed(*parts: object, width: int = 80) -> str:
    """As a terminal of that width shows it."""
    out = Console(file=io.StringIO(), width=width)
    for part in parts:
        out.print(part)
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


def test_two_pools_of_one_site_are_told_apart_in_an_explanation() -> None:
    sites = tuple(
        SiteReason("cloud-local", pool, "gpu-model", "the job asks for H100; it has A100")
        for pool in ("local/a2-highgpu-1g/on-demand", "local/a2-highgpu-1g/spot")
    )
    text = printed(
        *drawn(Explanation(job="job-1", status="PENDING", because="nowhere to run", sites=sites), NOW, 80)
    )
    assert [line.split()[0] for line in text.splitlines()[3:]] == [
        "cloud-local", "local/a2-highgpu-1g/", "on-demand", "cloud-local", "local/a2-highgpu-1g/spot",
    ]  # fmt: skip
    assert "EXTRA" not in text, "a column without content has no room here"
    assert "no room for" not in text, "and nobody misses it"


def test_a_pool_says_on_which_hosts_its_free_gpus_are() -> None:
    def free(nodes: int, *shapes: Shape) -> str:
        pool = Pool(name="a100", model="A100", nodes=nodes, gpus_per_node=4, free=shapes, lent_gpus=4 * nodes)
        row = PoolRow(pool=pool, member="farm-1", free=shapes, busy_gpus=0, largest_gang="")
        return " ".join(printed(table([row], pool_columns(), width=200), width=200).split())

    assert free(1, Shape(4, 16000, 65536)).endswith("0 4 -")
    assert "4 on each of 2 hosts, 1 on 1 host" in free(3, Shape(1, 16000, 65536), Shape(4, 16000, 65536, 2))
    assert "HOSTS GPUS/HOST" in free(1)


def test_long_names_of_pools_leave_room_for_the_reason() -> None:
    pool = "local-shopping-district/n1-highmem-96-nvidia-tesla-v100-8"
    sites = (
        SiteReason("cloud-of-the-shopping-district", pool, "gpu-model", "the job asks for H100; it has V100"),
    )
    text = printed(
        *drawn(Explanation(job="job-1", status="PENDING", because="nowhere to run", sites=sites), NOW, 80)
    )
    assert "the job asks for H100; it has V100 [gpu-model]" in text
    narrow = [line[:24].strip() for line in text.splitlines()]
    assert pool in "".join(narrow), "a name is wrapped, not cut"


def test_figures_stand_above_a_reason_where_they_would_leave_it_no_room() -> None:
    site = SiteReason(
        "north", "a100", "", "1 node with 4 GPUs (A100) fits there now, beside what runs", 0.0,
        start_at=NOW - 8, finish_at=NOW + 3600,
    )  # fmt: skip

    def lines(status: str, width: int) -> list[str]:
        told = Explanation(job="job-1", status=status, because="it starts", sites=(site,))
        return printed(*drawn(told, NOW, width), width=width).splitlines()

    narrow = lines("PENDING", 80)
    assert narrow[-3].split() == ["SITE,", "POOL", "REASON"]
    assert narrow[-2].split() == [
        "north",
        "yes",
        "start",
        "now",
        "finish",
        "in",
        "1h",
        "extra",
        "0.00",
        "USD",
    ]
    assert narrow[-1].split() == ["a100", *site.text.split()]
    assert "now" in lines("PENDING", 120)[-1], "a plan is some seconds old"
    assert "8s ago" in lines("RUNNING", 120)[-1]


def test_a_curve_is_whole_on_a_narrow_terminal() -> None:
    def point(finish_s: float, cost_usd: float) -> PricePoint:
        at = NOW + finish_s
        return PricePoint(
            site="cloud-of-the-district", pool="local/a2-highgpu-1g/on-demand", market=Market.ON_DEMAND, start_at=NOW,
            finish_low_at=at - 600, finish_at=at, finish_high_at=at + 600, cost_usd=cost_usd,
        )  # fmt: skip

    told = Explanation(
        job="job-1", status="PENDING", because="it waits", curve=(point(1500, 15.75), point(5400, 1.58)),
    )  # fmt: skip
    text = printed(*drawn(told, NOW, 80))
    assert "…" not in text
    assert text.count("█") == 8 + 1
    assert printed(*drawn(told, NOW, 120), width=120).count("█") == 24 + 2


LEASE = LeaseRow(
    id="lease-01m7y3s7tdr9f6p6y33mb1cjfs", site="cloud-local", offer="local/a2-highgpu-8g-eu-central/on-demand",
    market="on-demand", status="TERMINATING", gpus=16, price_usd_h=1029.44, billed_usd=12345.67, committed_usd=23456.78,
    requested_at=NOW - 90_000, because="at home it would finish too late",
)  # fmt: skip
BUDGET = BudgetRow(
    policy="research-vision-quarterly-budget", period="quarter", unit="usd", limit=1_250_000, spent=1_123_456.78,
    committed=12_345.67, share="research/vision/segmentation-of-buildings", forecast=2_345_678.9, ends_at=NOW + 40 * 86400.0,
)  # fmt: skip


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160])
def test_figures_are_never_cut(width: int) -> None:
    """A column that has no room is left out, and that is said."""
    for made, figures in (
        (
            table([LEASE], lease_columns(NOW), width=width),
            ("16", "1029.44", "12,345.67 USD", "23,456.78 USD", "1d1h"),
        ),
        (
            table([BUDGET], budget_columns(NOW), width=width),
            ("1,123,456.78", "12,345.67", "114,197.55", "2,345,678.90", "91%", "in 40d"),
        ),
    ):
        text = printed(made, width=width)
        shown, _, missing = text.partition("(no room for")
        assert max(map(len, text.splitlines())) <= width
        for figure in figures:
            titles = ("USD/H", "COMMITTED", "AGE", "BILLED", "FORECAST", "ENDS", "USED", "LEFT")
            assert figure in shown or any(title in missing for title in titles), (figure, text)
        assert "…" not in "".join(line.split("  ")[0] for line in shown.splitlines())
        cut = [word for word in shown.split() if "…" in word and any(letter.isdigit() for letter in word)]
        assert not cut, text


def test_what_is_narrow_stays_where_only_something_wider_has_no_room() -> None:
    row = JobRow(
        id="job-01m7y3s7tdr9f6p6y33mb1cjfs", name="train-big-vision-model", owner="ada", queue="q", status="PENDING",
        priority=50, nodes=1, gpus=1, models="A100", site="shopping-district-edge", submitted_at=NOW - 60, because="b" * 90,
    )  # fmt: skip
    text = printed(table([row], job_columns(NOW), width=80), width=80)
    assert text.split("\n")[0].split() == ["ID", "NAME", "STATUS", "AGE", "BECAUSE"]
    assert "(no room for GPUS, SITE;" in text
