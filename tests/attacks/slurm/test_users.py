"""Jobs of two users at a real Slurm: each is its own user, comes to its end as jobs do, and gets at nothing of the other's or of the agent's."""

import io
import tarfile
from typing import Any

import pytest

from federator.model.jobs import Checkpoint
from federator.model.placements import PlacementStatus
from tests.attacks.slurm.conftest import ALICE, BOB, UsersAgent
from tests.support.waiting import until

WAITS = "echo up; while [ ! -e go ]; do sleep 0.1; done; echo $SECRET_OF_ALICE >kept; echo done"


def _outputs(agent: UsersAgent, placement: str) -> dict[str, bytes]:
    packed = agent.dispatcher.outputs.get(agent.id(placement))
    if packed is None:
        return {}
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive if member.isfile()}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("fields", "user"),
    [
        ({"queue": "alices/text"}, ALICE),
        ({"queue": "bobs"}, BOB),
        ({"queue": "alices", "owner": "bob@example.org"}, BOB),
    ],
    ids=["by queue", "by another queue", "by owner"],
)
async def test_a_job_is_the_user_that_the_site_names(
    agent: UsersAgent, fields: dict[str, Any], user: str
) -> None:
    run = "id -un; umask 077; mkdir of; echo mine >of/it; echo saved >$FEDERATOR_CHECKPOINT_DIR/step; exit 3"
    await agent.run_job(run, outputs=("of/*",), checkpoint=Checkpoint(), **fields)
    end = await agent.ended()
    assert (end.status, end.exit_code) == (PlacementStatus.FAILED, 3), end
    assert agent.log() == f"{user}\n"
    assert _outputs(agent, "p1") == {"of/it": b"mine\n"}


@pytest.mark.parametrize(
    "fields", [{"queue": "elsewhere"}, {"owner": "carol@example.org"}], ids=["queue", "owner"]
)
async def test_nobodys_job_does_not_run_as_root(agent: UsersAgent, fields: dict[str, Any]) -> None:
    await agent.run_job("id -un", **fields)
    end = await agent.ended()
    assert end.status is PlacementStatus.REFUSED
    assert "names no user" in end.detail


async def test_a_stop_lets_a_users_job_save_itself(agent: UsersAgent) -> None:
    run = "trap 'echo saving; exit 9' TERM; echo up; while :; do sleep 0.1; done"
    await agent.run_job(run, queue="alices", grace_s=20.0)
    await until(lambda: "up\n" in agent.log(), "it to run")
    await agent.stop()
    end = await agent.ended()
    assert (end.status, end.exit_code) == (PlacementStatus.STOPPED, 9), end
    assert agent.log().endswith("saving\n")


async def test_neither_gets_at_the_others_work_nor_at_the_agents_key(agent: UsersAgent) -> None:
    await agent.run_job(
        WAITS, placement="hers", queue="alices", outputs=("kept",), env={"SECRET_OF_ALICE": "hush"}
    )
    await until(lambda: "up\n" in agent.log("hers"), "hers to run")
    hers, job = agent.shared / "placements" / agent.id("hers"), await agent.job("hers")
    go = hers / "work" / "go"
    tries = f"""
reach() {{ "$@" >/dev/null 2>&1 && echo "reached: $*"; }}
reach ls {agent.state}
reach cat {agent.state}/key
reach cat {agent.state}/identity.json
reach ls {agent.shared}/placements
reach ls {agent.shared}/blobs
reach ls {hers}
reach cat {hers}/command-0
reach cat {hers}/rank-0/log
reach touch {go}
reach sh -c 'echo 1 0 >{hers}/exit-0'
reach ln -s /etc/passwd {agent.shared}/placements/x
reach scancel {job}
reach scontrol hold {job}
for each in /proc/[0-9]*; do grep -z SECRET_OF_ALICE $each/environ 2>/dev/null && echo "environment of $each"; done
for pid in $(ps -o pid= -u {ALICE}); do kill -0 $pid 2>/dev/null && echo "may signal $pid"; done
echo tried
"""
    await agent.run_job(tries, placement="his", queue="bobs")
    his = await agent.ended("his")
    assert his.exit_code == 0, his
    assert agent.log("his") == "tried\n"
    go.touch()
    end = await agent.ended("hers")
    assert (end.status, end.exit_code) == (PlacementStatus.SUCCEEDED, 0), end
    assert _outputs(agent, "hers") == {"kept": b"hush\n"}


async def test_what_a_job_puts_in_place_of_its_folders_leads_nowhere(agent: UsersAgent) -> None:
    """The agent, which is root, packs outputs and reads logs and marks there."""
    state = agent.state
    for placement, tricks in (
        ("links", f"ln -s {state}/key key; ln -s {state} state; ln {state}/key hard; echo true"),
        ("work", f"cd ..; mv work gone; ln -s {state} work; echo true"),
        ("log", f"echo true; cd ..; mv rank-0 gone; mkdir rank-0; ln -s {state}/key rank-0/log"),
        ("marks", f"echo true; cd ..; ln -s {state}/key exit-0"),
    ):
        await agent.run_job(tricks, placement=placement, queue="bobs", outputs=("**",))
        await agent.ended(placement)
        key = (state / "key").read_bytes()
        stolen = [name for name, content in _outputs(agent, placement).items() if content and content in key]
        assert not stolen, placement
        assert key.decode(errors="replace")[:20] not in agent.log(placement), placement
