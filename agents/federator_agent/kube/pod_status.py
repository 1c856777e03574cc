"""What a pod's status means for its rank. Pure: the same pod gives the same answer.

Only what a kubelet has said, or the want of the node itself, is proof of an end. A pod that is merely being deleted, or whose node is silent, may run.
"""

import re
from typing import NamedTuple

from federator.kube.objects import Pod, Terminated, instant_at
from federator.model.placements import Cause
from federator_agent.kube.manifests import FINALIZER, MAIN, SIDE

NO_IMAGE = ("ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "ImageInspectError")
NEVER_AN_IMAGE = ("InvalidImageName", "ErrImageNeverPull")
CANNOT_RUN = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
TAKEN_OFF = ("Evicted", "Preempting", "Preempted", "Terminated", "Shutdown", "NodeShutdown")
DISRUPTED = "DisruptionTarget"
MAX_DETAIL = 500
_KILLED = (137, 143)


class End(NamedTuple):
    """How a rank ended. `exit_code` None: it was lost, or taken off."""

    at: float
    exit_code: int | None
    detail: str = ""
    cause: Cause | None = None


class Trouble(NamedTuple):
    """Why a pod does not come to its gate. `lasting`: waiting does not help."""

    cause: Cause
    message: str
    lasting: bool
    ours: bool = False
    """The site's side container is at fault, not the job."""


def end_of(pod: Pod, now: float) -> End | None:
    """How a rank whose gate was opened has ended; None: it may run. `now` stands in for times that nobody wrote down."""
    terminated = pod.state(MAIN).terminated
    if terminated is not None:
        return _judged(pod, terminated, now)
    if pod.over and pod.metadata.deletion_timestamp and not _taken(pod):
        # A kubelet may let go of the containers of a pod that is deleted before it has said how they ended.
        return End(now, None, "its pod was deleted at the cluster", Cause.EVICTED)
    if pod.over:
        return End(now, None, _why(pod) or "its pod failed", _taken(pod) or Cause.NODE_LOST)
    return None


def _judged(pod: Pod, terminated: Terminated, now: float) -> End:
    at = instant_at(terminated.finished_at or "") or now
    code = terminated.exit_code
    if terminated.reason == "OOMKilled":
        return End(at, code or 137, "the kernel killed it: out of memory", Cause.OUT_OF_MEMORY)
    if terminated.reason == "ContainerStatusUnknown":
        return End(at, None, terminated.message or "its node does not know how it ended", Cause.NODE_LOST)
    if code == 0:
        return _ended_well(pod, at)
    if pod.status.reason == "DeadlineExceeded":
        return End(at, code, "the cluster ended it: its active deadline has passed", Cause.MAX_DURATION)
    if cause := _taken(pod):
        return End(at, None, _why(pod) or "the cluster took it off its node", cause)
    if _deleted_before(pod, at, within_s=1.0 if code in _KILLED else 0.0):
        return End(at, None, "its pod was deleted at the cluster", Cause.EVICTED)
    if terminated.reason in ("StartError", "ContainerCannotRun"):
        return End(at, code, f"its container could not be started: {terminated.message[:MAX_DETAIL]}")
    return End(at, code)


def _ended_well(pod: Pod, at: float) -> End:
    """Exit code 0 is success only of what was not told to stop: one that saves itself and goes has perhaps done half of its work."""
    if (cause := _taken(pod)) and _told_by(pod, at):
        return End(at, None, _why(pod) or "the cluster took it off its node", cause)
    if _deleted_before(pod, at, within_s=0.0):
        return End(at, None, "its pod was deleted at the cluster", Cause.EVICTED)
    return End(at, 0)


def _told_by(pod: Pod, at: float) -> bool:
    """Whether the cluster began to take it off its node before it ended; where nobody wrote down when, it did."""
    disrupted = pod.condition(DISRUPTED)
    since = instant_at(disrupted.last_transition_time or "") if disrupted else None
    return since is None or since <= at


def _taken(pod: Pod) -> Cause | None:
    disrupted = pod.condition(DISRUPTED)
    if pod.status.reason in TAKEN_OFF or (disrupted is not None and disrupted.status == "True"):
        return Cause.EVICTED
    return None


def _why(pod: Pod) -> str:
    disrupted = pod.condition(DISRUPTED)
    said = [pod.status.reason, pod.status.message]
    said += [disrupted.reason, disrupted.message] if disrupted else []
    return ": ".join(word for word in said if word)[:MAX_DETAIL]


def _deleted_before(pod: Pod, at: float, within_s: float) -> bool:
    """Whether somebody asked for its end before it came. Times of the API are whole seconds."""
    if not pod.metadata.deletion_timestamp:
        return False
    grace_s = pod.metadata.deletion_grace_period_seconds or 0
    return instant_at(pod.metadata.deletion_timestamp) - grace_s <= at + within_s


def trouble_of(pod: Pod) -> Trouble | None:
    """Why it does not get as far as its gate."""
    for container, ours in ((SIDE, True), (MAIN, False)):
        ended = pod.state(container).terminated
        if ours and ended is not None and pod.state(MAIN).terminated is None:
            message = f"it has ended before the job began, with exit code {ended.exit_code}"
            return Trouble(Cause.STAGING, message, lasting=False, ours=True)
        waiting = pod.state(container).waiting
        if waiting is None:
            continue
        said = f"{waiting.reason}: {waiting.message}"[:MAX_DETAIL]
        if waiting.reason in (*NO_IMAGE, *NEVER_AN_IMAGE):
            return Trouble(Cause.IMAGE_PULL, said, waiting.reason in NEVER_AN_IMAGE, ours)
        if waiting.reason in CANNOT_RUN:
            return Trouble(Cause.STAGING, said, lasting=False, ours=ours)
    return None


def unscheduled(pod: Pod) -> str:
    """Why the scheduler has no node for it; empty: it has one, or has not said."""
    if pod.spec.node_name:
        return ""
    condition = pod.condition("PodScheduled")
    return re.sub(r"\s+", " ", condition.message)[:MAX_DETAIL] if condition else ""


def released(pod: Pod) -> bool:
    """Whether its object is on its way out and we hold it no longer: others' finalizers are for them to remove."""
    return bool(pod.metadata.deletion_timestamp) and FINALIZER not in pod.metadata.finalizers and quiet(pod)


def quiet(pod: Pod) -> bool:
    """Whether nothing of a pod that is being deleted runs any more, nor ever will: its kubelet has let go of it, or it never had one."""
    if not pod.spec.node_name or pod.over:
        return True
    if not pod.metadata.deletion_timestamp:
        return False
    running = any(status.state.running is not None for status in pod.status.container_statuses)
    return pod.metadata.deletion_grace_period_seconds == 0 and not running
