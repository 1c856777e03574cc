"""On eighty columns a table says what it has no room for, and no two lines of it look alike."""

import io

from rich.console import Console

from federator.cli.columns import pool_columns
from federator.cli.explaining import drawn
from federator.cli.output import table
from federator.model.capacity import Pool, Shape
from federator.model.plans import Explanation, SiteReason
from federator.wire.http import PoolRow

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
    assert "local/a2-highgpu-1g/on-demand" in text
    assert "local/a2-highgpu-1g/spot" in text
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
