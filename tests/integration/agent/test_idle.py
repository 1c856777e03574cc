"""What an agent that has nothing to do keeps in memory, judged by what it has imported: megabytes are the machine's."""

import re
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.integration.agent.conftest import AgentProcess
from tests.integration.agent.fake_dispatcher import FakeDispatcher
from tests.support.waiting import until

NEEDED = {
    "aiohappyeyeballs", "aiohttp", "aiosignal", "attr", "cronsim", "frozenlist", "idna", "msgspec", "multidict", "propcache", "tenacity", "typing_extensions",
    "yaml", "yarl",
}  # fmt: skip
"""Other people's packages: with a session, and with a site file."""
OURS = re.compile(
    r"federator_agent\.((kube|slurm|multikueue)\.(runtime|checks|manifests|capacity)|local_socket|data\.(s3|web))"
    r"|federator\.(wire\.jobfile|kube\.(api|library)|planning|client|store|control)\b.*"
)
"""What of ours it has no use for: runtimes of clusters, and whatever reads job files."""
IMPORTED = re.compile(r"^import time: +\d+ \| +\d+ \| +(\S+)$", re.MULTILINE)


async def test_an_idle_agent_has_loaded_only_what_it_needs(
    tmp_path: Path, dispatcher: FakeDispatcher
) -> None:
    """A board at an edge site has no memory to spare: each package here was a megabyte or more."""
    agent = AgentProcess(tmp_path, dispatcher.url)
    agent.environment["PYTHONPROFILEIMPORTTIME"] = "1"
    agent.config.write_text(re.sub(r"pools:.*", "pools: [{name: main, nodes: 1}]", agent.config.read_text(), flags=re.DOTALL))  # fmt: skip
    await agent.join(dispatcher.url)
    await agent.start()
    try:
        await until(lambda: len(dispatcher.reports) >= 2, "two reports")
    finally:
        await agent.end()
    loaded = set(IMPORTED.findall(agent.output.read_text()))
    assert "federator_agent.local.runtime" in loaded
    others = {name.partition(".")[0] for name in loaded} & packages_distributions().keys()
    assert {each for each in others if not each.startswith(("federator", "_"))} <= NEEDED
    assert not [name for name in loaded if OURS.fullmatch(name)]


@pytest.mark.parametrize("spoilt", ["not hex", None])
async def test_a_key_that_cannot_be_used_ends_no_agent(
    dispatcher: FakeDispatcher, agent: AgentProcess, spoilt: str | None
) -> None:
    """Its owner reads why, and once the key is there again a session stands."""
    key = agent.state / "key"
    good = key.read_text()
    if spoilt is None:
        key.unlink()
    else:
        key.write_text(spoilt)
    await dispatcher.cut()
    await agent.has_said(f"the key {key} cannot be used")
    key.write_text(good)
    await until(lambda: dispatcher.sockets, "a session")
