"""What ranks really use, as a runtime reads it, added up since the start of their placements.

Added up, so that a message that is lost costs nothing. Why not at the end alone: a job whose GPUs idle is to be told while it runs.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from federator.model.placements import Used
from federator_agent.electricity import FREE, Rates

JOULES_PER_KWH = 3.6e6
IDLE_PERCENT = 5
"""A GPU that is less busy idles."""


class GpuUse(NamedTuple):
    """One GPU now."""

    busy_percent: float | None
    """None: of a MIG instance the driver does not say."""
    memory_mib: int
    power_w: float | None = None
    """Of the part that is the rank's; None: nobody knows."""


class Reading(NamedTuple):
    """Of one rank, or of several that are read together."""

    cpu_s: float
    """Processor time so far."""
    memory_bytes: int
    """Memory now."""
    gpus: tuple[GpuUse, ...] | None = None
    """All that it holds; None: of one of them nothing is known, or it holds none."""


Readings = Mapping[str, Mapping[int, Reading]]
"""By placement and rank. What is left out could not be read this time."""


class UsageTotals:
    """Adds up what placements use."""

    def __init__(self) -> None:
        self._used: dict[str, Used] = {}
        self._cpu_s: dict[tuple[str, int], float] | None = None
        """Processor time of each rank, as it was read last; None: nobody has looked, and what runs already may have been counted by an earlier process."""

    def add(
        self,
        readings: Readings,
        *,
        running: Collection[str],
        passed_s: float,
        real_s: float,
        rates: Rates = FREE,
    ) -> dict[str, Used]:
        """What the placements that were read have used so far. `passed_s` since the last time, by the agent's clock, and `real_s` in truth; what is not `running` is forgotten. `rates`: of electricity, in that time."""
        now_s = {(name, rank): each.cpu_s for name, of in readings.items() for rank, each in of.items()}
        pace = passed_s / real_s if real_s > 0 else 0.0
        before_s = now_s if self._cpu_s is None else self._cpu_s
        # What ended meanwhile has taken its processor time with it where no group counts it.
        grown_s = {key: max(0.0, cpu_s - before_s.get(key, 0.0)) for key, cpu_s in now_s.items()}
        kept = {key: cpu_s for key, cpu_s in before_s.items() if key[0] in running}
        self._cpu_s = kept | {key: max(cpu_s, before_s.get(key, 0.0)) for key, cpu_s in now_s.items()}
        found = {
            name: _after(
                self._used.get(name, Used()),
                ranks,
                passed_s,
                pace * sum(grown_s[name, rank] for rank in ranks),
                rates,
            )
            for name, ranks in readings.items()
        }
        self._used = {name: used for name, used in self._used.items() if name in running} | found
        return found


def _after(before: Used, ranks: Mapping[int, Reading], passed_s: float, cpu_s: float, rates: Rates) -> Used:
    memory_mib = sum(each.memory_bytes for each in ranks.values()) >> 20
    after = replace(
        before,
        sampled_s=before.sampled_s + passed_s,
        cpu_s=before.cpu_s + cpu_s,
        memory_peak_mib=max(before.memory_peak_mib, memory_mib),
    )
    if any(each.gpus is None for each in ranks.values()):
        return after
    gpus = [gpu for each in ranks.values() for gpu in each.gpus or ()]
    if not gpus:
        return after
    busy = [gpu.busy_percent for gpu in gpus if gpu.busy_percent is not None]
    watts = [gpu.power_w for gpu in gpus if gpu.power_w is not None]
    kwh = sum(watts) * passed_s / JOULES_PER_KWH
    return replace(
        after,
        power_sampled_s=before.power_sampled_s + passed_s * len(watts),
        energy_kwh=before.energy_kwh + kwh,
        power_usd=before.power_usd + kwh * rates.usd_per_kwh,
        co2_kg=before.co2_kg + kwh * rates.gco2_per_kwh / 1000,
        gpus_sampled_s=before.gpus_sampled_s + passed_s * len(busy),
        gpus_busy_s=before.gpus_busy_s + passed_s * sum(busy) / 100,
        gpu_memory_peak_mib=max(before.gpu_memory_peak_mib, *(gpu.memory_mib for gpu in gpus)),
        idle_s=before.idle_s + passed_s if busy and max(busy) < IDLE_PERCENT else 0.0,
    )
