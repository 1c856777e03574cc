"""When to stop waiting for home and rent, compiled: some fifteen moments are looked at for each rental that there could be, each by three chances."""
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from federator.planning.kernels.chances import SLIDE_LEAST_S, late_share
from federator.planning.kernels.compiled import compiled, kernel

SOON = 0.4
"""Of the time that a job is still expected to wait, so large a share passes, and so large a share of such jobs has begun: of forecasts in a simulation of itp02 on 96 A100 one in ten had begun after a
quarter of the time."""
FAR_S = 86_400.0
"""A wait of which nobody knows when it ends counts as a day."""
STOPS, HALVINGS = 12, 8
"""So many moments are looked at, and the time before the first that will do is halved so often."""
STEP_S = 60.0
"""Of waiting so much longer its cost is asked."""


@compiled
def late(job, start_at, run_s):
    """The chance that it ends after its deadline, if it begins then; what is rented waits for nobody."""
    return late_share(job[0], start_at, run_s, 0.0, job[1], job[2])


@compiled
def stops(after_s, now, job, home, rented, value_usd):
    """Whether waiting longer than that saves less than it puts at risk."""
    (ahead_s, home_run_s), (start_at, run_s, rent_usd) = home, rented
    risk = late(job, start_at + after_s, run_s)
    grows_usd = value_usd * (late(job, start_at + after_s + STEP_S, run_s) - risk)
    left_s = max(SLIDE_LEAST_S, min(ahead_s, FAR_S + after_s) - after_s)
    at_home = late(job, now + after_s, home_run_s)
    saves_usd = max(0.0, rent_usd + value_usd * (risk - at_home))
    return grows_usd > SOON * STEP_S / left_s * saves_usd


@compiled
def put_off_s(now, job, home, rented, value_usd, spare_s):
    """The first moment at which it stops, near enough; `spare_s` where there is none before. `job`: deadline, typical share and steepness of its run time; `home` and `rented` as in `rentals.optimal_stopping`."""
    before_s = 0.0
    for stop in range(STOPS):
        after_s = spare_s * stop / STOPS
        if stops(after_s, now, job, home, rented, value_usd):
            for _ in range(HALVINGS):
                middle_s = (before_s + after_s) / 2.0
                if stops(middle_s, now, job, home, rented, value_usd):
                    after_s = middle_s
                else:
                    before_s = middle_s
            return after_s
        before_s = after_s
    return spare_s


@kernel
def all_put_off_s(  # noqa: PLR0917 - numbers alone, as compiled code wants them
    now, deadline, typical, steep, ahead_s, home_run_s, start_at, run_s, rent_usd, value_usd, spare_s, waits_s
):
    """The same of whole arrays, all of the same length, into the last one."""
    for index in range(len(waits_s)):
        job = deadline[index], typical[index], steep[index]
        home, rented = (ahead_s[index], home_run_s[index]), (start_at[index], run_s[index], rent_usd[index])
        waits_s[index] = put_off_s(now, job, home, rented, value_usd[index], spare_s[index])
