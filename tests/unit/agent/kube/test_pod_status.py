"""What a pod's status proves, and what it does not."""

from typing import Any

import msgspec
import pytest

from federator.kube.objects import Pod
from federator.model.placements import Cause
from federator_agent.kube.pod_status import end_of, quiet, trouble_of, unscheduled

DISRUPTED = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
"""As `kubectl drain` and Kueue's preemption leave it."""
NOW = 2_000_000_000.0
AT = "2026-11-21T10:00:00Z"


def pod(
    main: dict[str, Any] | None = None, side: dict[str, Any] | None = None, node: str = "n1", **more: Any
) -> Pod:
    states = [{"name": name, "state": state} for name, state in (("main", main), ("side", side)) if state]
    meta = {key: more.pop(key) for key in ("deletionTimestamp", "deletionGracePeriodSeconds") if key in more}
    status = {"containerStatuses": states, **more}
    return msgspec.convert({"metadata": meta, "spec": {"nodeName": node}, "status": status}, Pod)


def ended(code: int, **more: Any) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "finishedAt": AT, **more}}


@pytest.mark.parametrize(
    ("state", "more", "code", "cause"),
    [
        (ended(0), {}, 0, None),
        (ended(3), {}, 3, None),
        (ended(137, reason="OOMKilled"), {}, 137, Cause.OUT_OF_MEMORY),
        (ended(0, reason="OOMKilled"), {}, 137, Cause.OUT_OF_MEMORY),
        (ended(143), {}, 143, None),
        (ended(143), {"deletionTimestamp": AT, "deletionGracePeriodSeconds": 5}, None, Cause.EVICTED),
        (ended(143), {"deletionTimestamp": "2026-11-21T11:00:00Z"}, 143, None),
        (ended(0), {"deletionTimestamp": "2026-11-21T10:00:05Z"}, 0, None),
        (ended(0), {"deletionTimestamp": AT, "deletionGracePeriodSeconds": 30}, None, Cause.EVICTED),
        (ended(0), {"reason": "Evicted", "message": "low on disk"}, None, Cause.EVICTED),
        (ended(0), {"reason": "Terminated", "message": "node shutdown"}, None, Cause.EVICTED),
        (ended(0), {"conditions": [{"type": "DisruptionTarget", "status": "True"}]}, None, Cause.EVICTED),
        (ended(0), {"conditions": [DISRUPTED | {"lastTransitionTime": AT}]}, None, Cause.EVICTED),
        (ended(0), {"conditions": [DISRUPTED | {"lastTransitionTime": "2026-11-21T10:00:09Z"}]}, 0, None),
        (ended(3), {"deletionTimestamp": AT}, None, Cause.EVICTED),
        (ended(3), {"deletionTimestamp": "2026-11-21T10:00:30Z", "deletionGracePeriodSeconds": 29}, 3, None),
        (ended(1), {"conditions": [DISRUPTED | {"lastTransitionTime": AT}]}, None, Cause.EVICTED),
        (ended(137), {"reason": "Evicted", "message": "low on disk"}, None, Cause.EVICTED),
        (ended(137), {"conditions": [{"type": "DisruptionTarget", "status": "True"}]}, None, Cause.EVICTED),
        (ended(137), {"reason": "DeadlineExceeded"}, 137, Cause.MAX_DURATION),
        (ended(137, reason="ContainerStatusUnknown"), {}, None, Cause.NODE_LOST),
        (ended(128, reason="StartError", message="no such file"), {}, 128, None),
        (None, {"phase": "Failed", "reason": "Evicted"}, None, Cause.EVICTED),
        (None, {"phase": "Failed", "reason": "NodeLost"}, None, Cause.NODE_LOST),
        (None, {"phase": "Failed", "deletionTimestamp": AT}, None, Cause.EVICTED),
    ],
)
def test_an_end_has_its_code_and_its_cause(
    state: dict[str, Any] | None, more: dict[str, Any], code: int | None, cause: Cause | None
) -> None:
    end = end_of(pod(state, **more), NOW)
    assert end is not None
    assert (end.exit_code, end.cause) == (code, cause)
    assert end.detail or (code is not None and cause is None)


@pytest.mark.parametrize(
    ("state", "more"),
    [
        ({"running": {}}, {"phase": "Running"}),
        ({"running": {}}, {"phase": "Running", "deletionTimestamp": AT}),
        ({"running": {}}, {"phase": "Running", "reason": "NodeLost"}),
        ({"running": {}}, {"phase": "Unknown"}),
        (None, {"phase": "Pending"}),
    ],
)
def test_silence_and_a_wish_are_no_proof(state: dict[str, Any] | None, more: dict[str, Any]) -> None:
    assert end_of(pod(state, **more), NOW) is None


@pytest.mark.parametrize(
    ("reason", "cause", "lasting"),
    [
        ("ErrImagePull", Cause.IMAGE_PULL, False),
        ("InvalidImageName", Cause.IMAGE_PULL, True),
        ("CreateContainerConfigError", Cause.STAGING, False),
    ],
)
def test_what_keeps_a_container_from_starting_is_told(reason: str, cause: Cause, lasting: bool) -> None:
    waiting = {"waiting": {"reason": reason, "message": "why"}}
    trouble = trouble_of(pod(waiting))
    assert trouble is not None
    assert (trouble.cause, trouble.lasting, trouble.ours) == (cause, lasting, False)
    trouble = trouble_of(pod(None, waiting))
    assert trouble is not None
    assert trouble.ours


def test_a_container_that_is_being_made_is_no_trouble() -> None:
    assert trouble_of(pod({"waiting": {"reason": "ContainerCreating"}})) is None


def test_the_scheduler_is_quoted() -> None:
    condition = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes  are\navailable"}
    assert unscheduled(pod(node="", conditions=[condition])) == "0/3 nodes are available"
    assert unscheduled(pod()) == ""


@pytest.mark.parametrize(
    ("given", "is_quiet"),
    [
        (pod(node=""), True),
        (pod(phase="Succeeded"), True),
        (pod({"running": {}}), False),
        (pod({"running": {}}, deletionTimestamp=AT, deletionGracePeriodSeconds=0), False),
        (pod({"waiting": {}}, deletionTimestamp=AT, deletionGracePeriodSeconds=1), False),
        (pod({"waiting": {}}, deletionTimestamp=AT, deletionGracePeriodSeconds=0), True),
    ],
)
def test_only_what_a_kubelet_has_let_go_of_is_quiet(given: Pod, is_quiet: bool) -> None:
    assert quiet(given) is is_quiet
