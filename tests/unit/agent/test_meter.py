"""What ranks use is added up, whatever their processes do and whoever counts."""

import os
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from federator.model.placements import Used
from federator.wire.mig import Mig
from federator_agent.core.lent_capacity import Slot
from federator_agent.electricity import Rates
from federator_agent.gpus import Gpu
from federator_agent.local import cgroups
from federator_agent.local.meter import Rank, readings
from federator_agent.local.traces import MARK
from federator_agent.usage import Reading, UsageTotals


def rank(folder: Path, *gpus: int) -> Rank:
    return Rank(Slot(rank=0, pool="p", host="h", gpus=gpus, cpus_milli=1000, memory_mib=0), folder)


def gpu(index: int, percent: int | None, used_mib: int = 0, power_w: int | None = None) -> Gpu:
    return Gpu(index, name="A100", used_mib=used_mib, utilisation_percent=percent, power_w=power_w)


class Meter:
    """Readings of this host, added up."""

    def __init__(self) -> None:
        self._totals = UsageTotals()

    def look(
        self, running: dict[str, list[Rank]], gpus: dict[int, Gpu], passed_s: float, real_s: float
    ) -> dict[str, Used]:
        found = readings(running, gpus)
        return self._totals.add(found, running=running, passed_s=passed_s, real_s=real_s)


def meter() -> Meter:
    """One that has looked already."""
    made = Meter()
    made.look({}, {}, 0.0, 0.0)
    return made


def test_gpus_are_added_up_and_idle_time_begins_anew_with_each_work(tmp_path: Path) -> None:
    made, running = Meter(), {"p": [rank(tmp_path, 0, 2)]}
    gpus = {0: gpu(0, 100, 500), 1: gpu(1, 70, 9000), 2: gpu(2, 0, 900)}
    assert made.look(running, gpus, 10.0, 10.0)["p"].gpus_busy == pytest.approx(0.5)
    idle = {0: gpu(0, 1), 2: gpu(2, 4)}
    used = made.look(running, idle, 10.0, 10.0)["p"]
    used = made.look(running, idle, 10.0, 10.0)["p"]
    assert (used.idle_s, used.gpus_sampled_s, used.gpu_memory_peak_mib) == (20.0, 60.0, 900)
    assert made.look(running, gpus, 10.0, 10.0)["p"].idle_s == 0.0
    assert made.look({}, gpus, 10.0, 10.0) == {}
    assert made.look(running, gpus, 10.0, 10.0)["p"].sampled_s == 10.0, "what is over is forgotten"


def test_energy_is_added_up_at_the_rates_of_its_time(tmp_path: Path) -> None:
    totals, held = UsageTotals(), {"p": [rank(tmp_path, 0, 1)]}
    found = readings(held, {0: gpu(0, 90, power_w=300), 1: gpu(1, 0, power_w=60)})
    used = Used()
    for rates in (Rates(0.3, 400.0), Rates(0.1, 0.0)):
        used = totals.add(found, running=held, passed_s=3600.0, real_s=3600.0, rates=rates)["p"]
    assert used.energy_kwh == pytest.approx(0.72)
    assert used.power_usd == pytest.approx(0.36 * 0.3 + 0.36 * 0.1)
    assert used.co2_kg == pytest.approx(0.36 * 0.4)
    assert used.power_sampled_s == 4 * 3600.0


def test_who_has_a_part_of_a_gpu_has_that_part_of_its_power(tmp_path: Path) -> None:
    slot = Slot(rank=0, pool="p", host="h", gpus=(0,), cpus_milli=1000, memory_mib=0, share_milli=250)
    used = Meter().look({"p": [Rank(slot, tmp_path)]}, {0: gpu(0, 50, power_w=400)}, 3600.0, 3600.0)["p"]
    assert used.energy_kwh == pytest.approx(0.1)


def test_of_an_instance_power_and_memory_are_known_and_not_how_busy_it_is(tmp_path: Path) -> None:
    slot = Slot(rank=0, pool="p", host="h", gpus=(10_007,), cpus_milli=1000, memory_mib=0, share_milli=143)
    of = replace(gpu(10_007, None, 900, power_w=50), mig=Mig("1g.10gb", 143, 0.125))
    used = Meter().look({"p": [Rank(slot, tmp_path)]}, {10_007: of}, 3600.0, 3600.0)["p"]
    assert used.energy_kwh == pytest.approx(0.05)
    assert used.gpu_memory_peak_mib == 900
    assert (used.gpus_busy, used.idle_s) == (None, 0.0)


def test_where_no_power_is_told_nothing_is_known_of_energy(tmp_path: Path) -> None:
    used = Meter().look({"p": [rank(tmp_path, 0)]}, {0: gpu(0, 50)}, 3600.0, 3600.0)["p"]
    assert (used.energy_kwh, used.power_sampled_s) == (0.0, 0.0)


def test_where_the_driver_says_nothing_of_a_gpu_nothing_is_known_of_any(tmp_path: Path) -> None:
    used = Meter().look({"p": [rank(tmp_path, 0, 1)]}, {0: gpu(0, 0), 1: gpu(1, None)}, 10.0, 10.0)["p"]
    assert (used.gpus_busy, used.idle_s) == (None, 0.0)
    assert used.sampled_s == 10.0


@pytest.mark.parametrize("grouped", [False, True])
def test_processor_time_and_memory_of_real_processes(tmp_path: Path, grouped: bool) -> None:
    """With control groups of the old hierarchy that count no processor time, too."""
    program = (
        "import sys; kept = bytearray(30 * 2**20); sum(range(10**7)); print(flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        ["python3", "-c", program],
        env={**os.environ, MARK: str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        if grouped:
            group = tmp_path / "group"
            group.mkdir()
            (group / "cgroup.procs").write_text(f"{process.pid}\n")
            (group / "memory.stat").write_text("cache 5\nrss 33554432\n")
            (tmp_path / cgroups.MARK).write_text(f"{group}\n")
        used = meter().look({"p": [rank(tmp_path)]}, {}, 10.0, 10.0)["p"]
    finally:
        process.kill()
        process.communicate()
    assert used.cpu_s > 0.0
    assert used.memory_peak_mib >= 30


def test_a_unified_group_counts_for_itself(tmp_path: Path) -> None:
    group = tmp_path / "group"
    group.mkdir()
    (group / "cpu.stat").write_text("usage_usec 5000000\nuser_usec 1\n")
    (group / "memory.stat").write_text("anon 1048576\nfile 99\n")
    (tmp_path / cgroups.MARK).write_text(f"{group}\n")
    made, running = meter(), {"p": [rank(tmp_path)]}
    assert made.look(running, {}, 10.0, 10.0)["p"] == Used(sampled_s=10.0, cpu_s=5.0, memory_peak_mib=1)
    (group / "cpu.stat").write_text("usage_usec 11000000\n")
    assert made.look(running, {}, 10.0, 10.0)["p"].cpu_s == 11.0
    assert made.look(running, {}, 100.0, 10.0)["p"].sampled_s == 120.0
    (group / "cpu.stat").write_text("usage_usec 12000000\n")
    assert made.look(running, {}, 100.0, 10.0)["p"].cpu_s == 21.0, "a clock ten times as fast"


def test_an_agent_that_starts_again_does_not_count_what_ran_before(tmp_path: Path) -> None:
    group = tmp_path / "group"
    group.mkdir()
    (group / "cpu.stat").write_text("usage_usec 36000000000\n")
    (tmp_path / cgroups.MARK).write_text(f"{group}\n")
    made, running = Meter(), {"p": [rank(tmp_path)]}
    assert made.look(running, {}, 10.0, 10.0)["p"].cpus == 0.0
    (group / "cpu.stat").write_text("usage_usec 36040000000\n")
    assert made.look(running, {}, 10.0, 10.0)["p"].cpu_s == 40.0


def test_what_could_not_be_read_once_is_neither_lost_nor_counted_twice() -> None:
    totals = UsageTotals()
    totals.add({}, running=(), passed_s=0.0, real_s=0.0)

    def used(cpu_s: float) -> Used:
        found = {"p": {0: Reading(cpu_s, 2**20)}}
        return totals.add(found, running=["p"], passed_s=10.0, real_s=10.0)["p"]

    assert used(4.0).cpu_s == 4.0
    assert totals.add({}, running=["p"], passed_s=10.0, real_s=10.0) == {}
    assert used(9.0) == Used(sampled_s=20.0, cpu_s=9.0, memory_peak_mib=1)
    assert used(2.0).cpu_s == 9.0, "a step that is over has taken its time with it"
