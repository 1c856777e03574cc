"""What is said to people, made when somebody looks: reasons are values until then.

- here: the few phrases that all is made of, so that the same thing is always said in the same words.
- `told`: reasons, plans, jobs and events in words: what everybody else calls.
- `words`: the table of renderers; `starts`, `waits` and `rejections` enter one for each kind of `model.reasons`.
"""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache

from federator.kernel.quantities import format_duration, format_mib
from federator.model.reasons import OwedGuarantee
from federator.model.rules import GuaranteeRow

DAY_S = 86400.0
HOUR_S = 3600.0
MINUTE_S = 60.0
LAST_AT = 253_402_300_799.0
"""The end of the year 9999: what comes to be later is told as then."""


@lru_cache(4096)
def moment(at: float, now: float) -> str:
    """A time of day with its zone, UTC; with the date when it is not within twelve hours, to the second when it is close. The command writes it by the clock of whoever reads it."""
    instant = datetime.fromtimestamp(min(at, LAST_AT), UTC)
    if abs(at - now) > DAY_S / 2:
        return instant.strftime("%Y-%m-%d %H:%M UTC")
    return instant.strftime("%H:%M:%S UTC" if abs(at - now) < 600 else "%H:%M UTC")


def money(usd: float) -> str:
    """Dollars to the cent."""
    return f"{usd:.2f} USD"


def gpus(count: float) -> str:
    """`1 GPU`, `8 GPUs`."""
    return f"{count:g} GPU{'' if count == 1 else 's'}"


def guaranteed(row: GuaranteeRow | OwedGuarantee) -> str:
    """`8 GPUs`, `4 H100 GPUs, 64 CPUs and 512GiB`."""
    said = (
        [f"{row.gpus} {row.model} GPU{'' if row.gpus == 1 else 's'}".replace("  ", " ")] if row.gpus else []
    )
    said += [f"{row.cpus_milli / 1000:g} CPUs"] if row.cpus_milli else []
    said += [format_mib(row.memory_mib)] if row.memory_mib else []
    return " and ".join(filter(None, (", ".join(said[:-1]), *said[-1:])))


def met_by(finish_at: float, deadline: float) -> float:
    """The deadline to ask for instead, where a job is done only then: so many whole minutes later, or hours, that nothing is left out in words."""
    step_s = MINUTE_S if finish_at - deadline < DAY_S - MINUTE_S else HOUR_S
    return deadline + max(0.0, math.ceil((finish_at - deadline) / step_s) * step_s)


def later_deadline(finish_at: float, deadline: float) -> str:
    """The same in words."""
    return f"a deadline {format_duration(met_by(finish_at, deadline) - deadline)} later"


def higher_priority(
    priority: int, jobs: int, start_at: float, delays: Sequence[tuple[str, float]], more: int, now: float
) -> str:
    """What a higher priority does: when the job would start then, or the last of so many tasks, and by how much others later; `more` are not named."""
    which = "it" if jobs == 1 else f"the last of its next {jobs} tasks"
    text = f"priority {priority}: {which} would start {'now' if start_at <= now else f'at {moment(start_at, now)}'}"
    said = [f"{name} {format_duration(round(by_s / MINUTE_S) * MINUTE_S)} later" for name, by_s in delays]
    said += [f"{more} more jobs later" if more > 1 else "another job later"] if more else []
    if not said:
        return f"{text}, and nobody later"
    return f"{text}, and {' and '.join(filter(None, (', '.join(said[:-1]), said[-1])))}"
