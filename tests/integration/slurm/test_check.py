"""`check` beside a real cluster: what is there is said, and what is wrong names its remedy."""

from pathlib import Path

from federator_agent import ownership
from federator_agent.slurm.checks import check
from federator_agent.slurm.settings import Account, SlurmSettings
from federator_agent.spool import Spool
from tests.testbeds.slurm import Slurm


async def test_what_is_well(east: Slurm, tmp_path: Path) -> None:
    settings = SlurmSettings(shared_dir=tmp_path, partitions=("main",), conf=east.configuration)
    lines = await check(settings, {"PATH": east.environment["PATH"]}, tmp_path / "state")
    assert not _wrong(lines), lines
    assert "ok    pool main: 4 hosts, each 8 GPUs A100" in lines
    assert "ok    all others: Slurm takes jobs in partition main" in lines
    assert any(line.startswith("WARN  what jobs use is not gathered") for line in lines)


async def test_switches(east: Slurm, west: Slurm, tmp_path: Path) -> None:
    """Pools of each, where there are some; else that is said."""
    for slurm, said in ((west, "ok    pool main-s1: 2 hosts"), (east, "WARN  Slurm names no switches")):
        settings = SlurmSettings(
            shared_dir=tmp_path, partitions=("main",), conf=slurm.configuration, topology="rack"
        )
        lines = await check(settings, {"PATH": slurm.environment["PATH"]}, tmp_path / "state")
        assert not _wrong(lines), lines
        assert any(line.startswith(said) for line in lines), lines


async def test_what_is_not(east: Slurm, tmp_path: Path) -> None:
    settings = SlurmSettings(
        shared_dir=tmp_path / "none",
        partitions=("main", "mian"),
        queues={"a": Account(partition="nowhere")},
        conf=east.configuration,
    )
    wrong = _wrong(await check(settings, {"PATH": east.environment["PATH"]}, tmp_path / "state"))
    assert len(wrong) == 3, wrong
    assert "shared_dir" in wrong[0]
    assert wrong[1].startswith("partition mian is not in the cluster")
    assert wrong[2].startswith("queue a, partition nowhere: ")


async def test_a_directory_of_another_agents(east: Slurm, tmp_path: Path) -> None:
    state = Spool(tmp_path / "state").directory
    ownership.claim(tmp_path, state, "here", "$.slurm.shared_dir")
    settings = SlurmSettings(shared_dir=tmp_path, conf=east.configuration)
    environment = {"PATH": east.environment["PATH"]}
    [wrong] = _wrong(await check(settings, environment, tmp_path / "another"))
    assert wrong.startswith(f"shared_dir: {tmp_path} belongs to the agent of site here")
    assert not _wrong(await check(settings, environment, state))


async def test_what_is_not_there(tmp_path: Path) -> None:
    [line] = await check(SlurmSettings(shared_dir=tmp_path), {"PATH": str(tmp_path)}, tmp_path / "state")
    assert line.startswith("sbatch, squeue, scontrol, scancel cannot be found")


async def test_a_slurm_that_is_not_found(east: Slurm, tmp_path: Path) -> None:
    environment, conf = {"PATH": east.environment["PATH"]}, tmp_path / "slurm.conf"
    settings = SlurmSettings(shared_dir=tmp_path, conf=conf)
    [wrong] = _wrong(await check(settings, environment, tmp_path / "state"))
    assert wrong == f"conf: {conf} is not there; name this cluster's slurm.conf"
    conf.touch()
    [wrong] = _wrong(await check(settings, environment, tmp_path / "state"))
    assert wrong.startswith("Slurm does not answer")
    assert "name it by conf under slurm" in wrong


def _wrong(lines: list[str]) -> list[str]:
    """What keeps it from working: that jobs run as whoever runs these tests is only warned of."""
    return [line for line in lines if not line.startswith(("ok ", "WARN "))]
