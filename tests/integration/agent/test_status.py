"""What `federator-agent status` and `check` say of the dispatcher and of GPUs that cannot be counted."""

from pathlib import Path

import pytest

from federator_agent import commands, gpus, nvml
from federator_agent.config import parse
from tests.integration.agent.conftest import AgentProcess
from tests.integration.agent.fake_dispatcher import FakeDispatcher


async def test_status_says_whether_work_can_come(dispatcher: FakeDispatcher, agent: AgentProcess) -> None:
    code, said = await agent.run("status")
    assert (code, "agent       running, not paused" in said) == (0, True)
    assert "dispatcher  answers\n" in said
    await dispatcher.stop()
    code, said = await agent.run("status")
    assert (code, "agent       running, not paused" in said) == (0, True)
    assert "dispatcher  answers" not in said
    assert "no new work comes from it" in said
    assert dispatcher.url in said


@pytest.mark.parametrize("present", [True, False])
def test_gpus_that_cannot_be_counted_are_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, present: bool
) -> None:
    """A site file without GPUs, on a host that has some: `check` goes through, and names the package."""

    def read(_: gpus.Driver) -> gpus.Reading:
        raise gpus.NoDriver("no module named pynvml")

    monkeypatch.setattr(gpus.Driver, "read", read)
    monkeypatch.setattr(nvml, "present", lambda: present)
    text = f"site: here\nstate_dir: {tmp_path}/state\npools: [{{name: main}}]\n"
    settings = parse(text, "site.yaml", {})
    assert ["nvidia-ml-py" in line for line in commands.check_gpus(settings) if line.startswith("WARN")] == [
        True
    ] * present
