"""What is done at the API server. Each write names the uid or the version that it is about, so one that is repeated or late changes nothing."""

import msgspec

from federator.kernel.errors import Conflict, Invalid, NotFound
from federator.kube.api import Api, decoded
from federator.operator.objects import (
    API_VERSION,
    FINALIZER,
    PLURAL,
    SUBMITTED_NOTE,
    FederatedJob,
    Status,
    Struct,
)
from federator.wire.jsontext import cut

JSON_PATCH, MERGE_PATCH = "application/json-patch+json", "application/merge-patch+json"
ALL = f"/apis/{API_VERSION}/{PLURAL}"


async def write_status(api: Api, path: str, uid: str, status: Struct) -> bytes:
    """Write the status whole of the object at that path. Raises `NotFound` when it is gone, and `Invalid` when another of its name is there."""
    patch = [_about(uid), {"op": "add", "path": "/status", "value": msgspec.to_builtins(status)}]
    return await api.ask("PATCH", f"{path}/status", body=patch, kind=JSON_PATCH)


class JobObjects:
    """The `FederatedJob` objects of a cluster."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def look(self, job: FederatedJob) -> FederatedJob | None:
        """It, as it is now; None: it is gone, or another of that name is there."""
        try:
            now = _read(await self._api.ask("GET", _path(job)))
        except NotFound:
            return None
        return now if now.metadata.uid == job.metadata.uid else None

    async def claim(self, job: FederatedJob) -> FederatedJob:
        """Hold it by the finalizer, and note which spec is about to be submitted; the answer has the spec. Raises `Conflict` when it has changed meanwhile."""
        held = job.metadata.finalizers if job.claimed else (*job.metadata.finalizers, FINALIZER)
        metadata = {
            "resourceVersion": job.metadata.resource_version,
            "finalizers": held,
            "annotations": {SUBMITTED_NOTE: msgspec.json.encode(job.fields).decode()},
        }
        data = await self._api.ask("PATCH", _path(job), body={"metadata": metadata}, kind=MERGE_PATCH)
        return _read(data)

    async def release(self, job: FederatedJob) -> None:
        """Remove our finalizer, and no other's."""
        now: FederatedJob | None = job
        while now is not None and now.claimed:
            at = f"/metadata/finalizers/{now.metadata.finalizers.index(FINALIZER)}"
            patch = [
                _about(now.metadata.uid),
                {"op": "test", "path": at, "value": FINALIZER},
                {"op": "remove", "path": at},
            ]
            try:
                await self._api.ask("PATCH", _path(now), body=patch, kind=JSON_PATCH)
            except NotFound:
                return
            except (Conflict, Invalid):  # others' finalizers come and go meanwhile
                before, now = now, await self.look(now)
                if now is not None and now.metadata.resource_version == before.metadata.resource_version:
                    raise
            else:
                return

    async def say(self, job: FederatedJob, status: Status) -> FederatedJob | None:
        """Write the status whole. None: the object is gone."""
        try:
            data = await write_status(self._api, _path(job), job.metadata.uid, status)
        except NotFound:
            return None
        except Invalid:
            if await self.look(job) is None:
                return None
            raise
        return _read(data)


def _read(data: bytes) -> FederatedJob:
    """An object, cut as the list and the watch cut it: its fields have the same hashes by all ways."""
    return decoded(cut(data), FederatedJob)


def _path(job: FederatedJob) -> str:
    return f"/apis/{API_VERSION}/namespaces/{job.metadata.namespace}/{PLURAL}/{job.metadata.name}"


def _about(uid: str) -> dict[str, str]:
    return {"op": "test", "path": "/metadata/uid", "value": uid}
