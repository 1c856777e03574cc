"""A site that has refused a gang again and again is left alone until its time is over, and not an instant longer."""

from typing import Any

import pytest

from federator.model.plans import Severity
from federator.planning.checks import check
from tests.support.worlds import NOW, a_job, a_plan, a_pool, a_world, placed


@pytest.mark.parametrize(("until_at", "found"), [(NOW + 1.0, {("job-a", 0)}), (NOW, set())])
def test_a_gang_is_not_started_at_a_site_that_is_left_alone_for_refusing_it(
    until_at: float, found: Any
) -> None:
    pool = a_pool()
    job = a_job(nodes=2, gpus=4, refused=((pool.site, until_at), ("elsewhere", NOW + 60.0)))
    faults = check(a_world([job], [pool]), a_plan(placed(job, pool)))
    assert {(f.subject, f.promise) for f in faults if f.severity is Severity.FATAL} == found
