"""Whether what a pod's job has saved is at its place: its side container says so, while it runs by a mark and at its end by its last words."""

import asyncio
import logging

from federator.kernel.errors import FederatorError
from federator.kube.api import Api
from federator.kube.objects import Pod
from federator_agent.data.carrier import LAST_PATIENCE_S
from federator_agent.kube import commands
from federator_agent.kube.manifests import DATA_NOTE, SIDE, pod_name
from federator_agent.kube.pods import Pods

WITHIN_S = LAST_PATIENCE_S + 60.0
AGAIN_S = 1.0
PUSHED = "saved"
"""It has done all that it could; what is to be told of that follows."""
UNKNOWN = "its last checkpoint may not have been pushed"
log = logging.getLogger("federator_agent.kube")


async def pushed(api: Api, pods: Pods, placement: str, rank: int) -> str:
    """Wait until what a rank has saved is away; what to tell when it is not known to be."""
    try:
        async with asyncio.timeout(WITHIN_S):
            while True:
                said = await _look(api, pods, pod_name(placement, rank))
                if said is not None:
                    return said
                await pods.wait(placement, AGAIN_S)
    except TimeoutError:
        return f"{UNKNOWN} within {WITHIN_S:g} s"


async def _look(api: Api, pods: Pods, name: str) -> str | None:
    """What to tell; None: it is not known yet."""
    try:
        pod = await pods.look(name)
        if pod is None:
            return f"{UNKNOWN}: its pod is gone"
        if DATA_NOTE not in pod.metadata.annotations:
            return ""
        done, _, said = (await _said(api, pods, pod)).partition("\n")
    except FederatorError as error:
        log.info("whether the data of %s is away cannot be asked: %s", name, error)
        return None
    if done == PUSHED:
        return said.strip()
    if pod.over or pod.state(SIDE).terminated is not None:
        return f"{UNKNOWN}: what moves its data was ended before"
    return None


async def _said(api: Api, pods: Pods, pod: Pod) -> str:
    ended = pod.state(SIDE).terminated
    if ended is not None or pod.over:
        return ended.message if ended is not None else ""
    return await commands.done(api, pods.path(pod), commands.SAVED, pod.metadata.uid)
