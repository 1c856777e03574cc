"""Whether what a pod's job has saved is away: by its side container's marks, its last words, or their want."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from federator.kernel.errors import FederatorError, Unavailable
from federator.kube.objects import Pod
from federator_agent.kube import commands
from federator_agent.kube.checkpoint_push import UNKNOWN, pushed
from federator_agent.kube.manifests import DATA_NOTE

SAVES = {DATA_NOTE: "s3://team/saved"}


def _pod(side: dict[str, Any], notes: dict[str, str] = SAVES, **status: Any) -> Pod:
    statuses = [{"name": "side", "state": side}]
    meta = {"name": "p1-0", "uid": "u", "annotations": notes}
    return msgspec.convert({"metadata": meta, "status": {"containerStatuses": statuses, **status}}, Pod)


class Pods:
    """What the API server has of one pod, look by look; the last stays."""

    def __init__(self, *looks: Pod | FederatorError | None) -> None:
        self._looks = list(looks)

    async def look(self, name: str) -> Pod | None:
        found = self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]
        if isinstance(found, FederatorError):
            raise found
        return found

    async def wait(self, placement: str, limit_s: float) -> None:
        """At once."""

    def path(self, name: str) -> str:
        return name


async def _said(*looks: Pod | FederatorError | None) -> str:
    return await pushed(SimpleNamespace(), Pods(*looks), "p1", 0)  # type: ignore[arg-type]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the side container answers, one after another, while it runs."""
    found: list[str] = []

    async def done(*_: Any) -> str:
        return found.pop(0)

    monkeypatch.setattr(commands, "done", done)
    return found


async def test_it_is_asked_until_it_knows(answers: list[str]) -> None:
    answers += ["", "", "saved\n"]
    assert await _said(Unavailable("away"), _pod({"running": {}})) == ""
    assert not answers


async def test_what_could_not_be_pushed_is_told(answers: list[str]) -> None:
    answers.append("saved\nits last checkpoint could not be pushed: no room")
    assert await _said(_pod({"running": {}})) == "its last checkpoint could not be pushed: no room"


@pytest.mark.parametrize(
    ("look", "said"),
    [
        (_pod({"terminated": {"exitCode": 0, "message": "saved\n"}}), ""),
        (_pod({"terminated": {"exitCode": 137}}), f"{UNKNOWN}: what moves its data was ended before"),
        (_pod({"waiting": {}}, phase="Failed"), f"{UNKNOWN}: what moves its data was ended before"),
        (None, f"{UNKNOWN}: its pod is gone"),
        (_pod({"running": {}}, notes={}), ""),
    ],
)
async def test_of_a_pod_that_is_over_its_last_words_count(look: Pod | None, said: str) -> None:
    assert await _said(look) == said
