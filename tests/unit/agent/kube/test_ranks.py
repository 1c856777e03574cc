"""Signals and gates, without a cluster: what does not get through is said again, and what a job has written is no trouble of the agent's."""

from types import SimpleNamespace
from typing import Any

import pytest

from federator.kernel.clock import ManualClock
from federator.kernel.errors import FederatorError, Unavailable
from federator_agent.kube import commands, ranks
from federator_agent.kube.ranks import Ranks


class Pods:
    """One pod, which runs."""

    def __init__(self) -> None:
        state = SimpleNamespace(terminated=None)
        pod = SimpleNamespace(metadata=SimpleNamespace(uid="u", name="p-0"), state=lambda _: state)
        self._pod = pod
        self._known: dict[str, Any] = {}
        self.get = self._known.get
        self.deleted: list[Any] = []

    async def synced(self) -> None:
        """Before that, nothing is known: the agent has just started."""
        self._known["p-0"] = self._pod

    def path(self, name: str) -> str:
        return name

    async def delete(self, pod: Any) -> None:
        self.deleted.append(pod)


def _ranks(pods: Pods) -> Ranks:
    around = SimpleNamespace(clock=ManualClock(1000.0))
    return Ranks(None, pods, around)  # type: ignore[arg-type]


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The signals that were tried; each of `failing` fails one, the oldest first."""
    monkeypatch.setattr(ranks, "AGAIN_S", 0.0)
    return []


def _fail(monkeypatch: pytest.MonkeyPatch, said: list[str], *failures: FederatorError) -> None:
    left = list(failures)

    async def done(_api: Any, _path: str, _script: str, _uid: str, word: str) -> str:
        said.append(word)
        if left:
            raise left.pop(0)
        return ""

    monkeypatch.setattr(commands, "done", done)


async def test_the_signal_on_which_a_job_saves_itself_is_sent_until_it_is_taken(
    monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    _fail(monkeypatch, said, Unavailable("away"), Unavailable("away"))
    await _ranks(Pods()).signal("p", 0, "SIGTERM")
    assert said == ["TERM"] * 3


async def test_a_command_that_is_no_more_is_not_asked_again(
    monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    _fail(monkeypatch, said, commands.CommandFailed(1, "no such process"))
    await _ranks(Pods()).signal("p", 0, "TERM")
    assert said == ["TERM"]


async def test_a_kill_that_does_not_get_through_is_the_kubelets(
    monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    _fail(monkeypatch, said, Unavailable("away"))
    pods = Pods()
    await _ranks(pods).signal("p", 0, "KILL")
    assert (said, len(pods.deleted)) == (["KILL"], 1)


@pytest.mark.parametrize(
    ("gate", "at"),
    [
        ("FEDERATOR_OPENED_AT=990.500\nexport X=1", 990.5),
        ("", 1000.0),
        ("go on then", 1000.0),
        ("FEDERATOR_OPENED_AT=nan", 1000.0),
        ("FEDERATOR_OPENED_AT=1e300", 1000.0),
        ("FEDERATOR_OPENED_AT=-5", 1000.0),
    ],
)
def test_a_gate_is_read_whatever_a_set_up_has_written_there(gate: str, at: float) -> None:
    assert ranks.opened_at(gate, 1000.0) == at
