"""How the ranks of a gang find each other: at their own host when all are there, where its rank 0 is when not."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from federator.model.jobs import JobSpec
from federator_agent.core.state import PlacementRecord
from federator_agent.environment import Where, rank_environment
from federator_agent.runtime import Surroundings
from federator_agent.spool import Spool
from tests.unit.agent.worlds import entry, spec

GANG = spec(gpus=2, nodes=3)


def seen(rank: int, rendezvous: str = "") -> dict[str, str]:
    record = PlacementRecord(entry=entry("p", GANG, rendezvous=rendezvous), master_port=29500)
    where = Where(site="here", address="127.0.0.1", checkpoints="/checkpoints")
    return rank_environment(record, GANG, rank, where)


@pytest.mark.parametrize(
    ("rendezvous", "address", "port"),
    [
        ("", "127.0.0.1", "29500"),
        ("10.0.0.5:31234", "10.0.0.5", "31234"),
        ("[fd00::5]:31234", "fd00::5", "31234"),
    ],
)
def test_all_variables_say_the_same_place(rendezvous: str, address: str, port: str) -> None:
    values = seen(2, rendezvous)
    assert (values["MASTER_ADDR"], values["MASTER_PORT"]) == (address, port)
    assert (values["PET_MASTER_ADDR"], values["PET_MASTER_PORT"]) == (address, port)
    assert values["PET_RDZV_ENDPOINT"] == (rendezvous or "127.0.0.1:29500")


def test_ranks_and_sizes_are_those_of_the_whole_gang_wherever_its_ranks_are() -> None:
    values = seen(2, "10.0.0.5:31234")
    names = ("FEDERATOR_NODE_RANK", "PET_NODE_RANK", "FEDERATOR_NUM_NODES", "PET_NNODES", "WORLD_SIZE")
    assert [values[name] for name in names] == ["2", "2", "3", "3", "6"]
    assert (values["FEDERATOR_GPUS_PER_NODE"], values["PET_NPROC_PER_NODE"]) == ("2", "2")


def test_a_gang_has_a_secret_of_its_own_where_all_its_ranks_are_at_one_agent(tmp_path: Path) -> None:
    key = Spool(tmp_path).gang_key()

    def secret(placement: str, ranks: tuple[int, ...] = (), of: JobSpec = GANG, key: bytes = key) -> str:
        """`gang_secret` asks its surroundings for nothing but the key."""
        around = cast("Surroundings", SimpleNamespace(gang_key=key))
        given = {"ranks": ranks} if ranks else {}
        return Surroundings.gang_secret(around, PlacementRecord(entry=entry(placement, of, **given)), of)

    assert secret("p") != secret("q")
    assert secret("p") == secret("p", key=Spool(tmp_path).gang_key()), "also after a restart"
    assert (tmp_path / "gang-key").stat().st_mode & 0o077 == 0
    assert (secret("p", (0, 1)), secret("p", of=spec())) == ("", ""), "a part of a gang, and one rank alone"
    assert "FEDERATOR_GANG_SECRET" not in seen(1)
    where = Where(site="here", address="127.0.0.1", checkpoints="/checkpoints", gang_secret=secret("p"))
    values = rank_environment(PlacementRecord(entry=entry("p", GANG)), GANG, 1, where)
    assert values["FEDERATOR_GANG_SECRET"] == secret("p")
