"""An API server with FederatedJob objects only, in memory, and a dispatcher that keeps client ids: what the operator asks of both, and no more."""

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from federator.api.problems import problem_of
from federator.kernel.errors import Conflict, FederatorError, Invalid, NotFound, Permanent
from federator.model.jobs import Job, JobSpec, JobStatus
from federator.operator.objects import API_VERSION, PLURAL, UID_LABEL
from federator.wire.http import ActedOn, JobDetail, JobPage, JobPatch, JobRow, SubmitResult, Submitted

BASE = f"/apis/{API_VERSION}/namespaces/n/{PLURAL}/"


class FakeApi:
    """Objects of namespace `n` by their names, with versions and finalizers as the real one has them."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.events: list[str] = []
        self.version = 0

    def make(self, name: str, **spec: Any) -> None:
        self.objects[name] = {
            "metadata": {"name": name, "namespace": "n", "uid": f"uid-{name}", "generation": 1},
            "spec": {"run": "true", **spec},
        }
        self._touch(name)

    def edit(self, name: str, **spec: Any) -> None:
        """Somebody applies another spec."""
        self.objects[name]["spec"] |= spec
        self.objects[name]["metadata"]["generation"] += 1
        self._touch(name)

    def delete(self, name: str) -> None:
        """Somebody deletes it: it goes when nobody holds it."""
        self.objects[name]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        self._touch(name)

    async def ask(self, method: str, path: str, *, body: Any = None, kind: str = "", **_: Any) -> bytes:
        if path.endswith("/events"):
            self.events.append(body["reason"])
            return b"{}"
        assert path.startswith(BASE), path
        name = path.removeprefix(BASE).partition("/")[0]
        if name not in self.objects:
            raise NotFound(path)
        if method == "PATCH":
            self._patch(name, json.loads(json.dumps(body)), kind)
        found = self.objects.get(name) or {"metadata": {"name": name, "namespace": "n"}}
        return json.dumps(found).encode()

    def _patch(self, name: str, body: Any, kind: str) -> None:
        found = copy.deepcopy(self.objects[name])
        if "merge" in kind:
            if body["metadata"].pop("resourceVersion") != found["metadata"]["resourceVersion"]:
                raise Conflict("the object has been modified")
            found["metadata"] |= body["metadata"]
        else:
            for step in body:
                *parents, last = step["path"].strip("/").split("/")
                at: Any = found
                for each in parents:
                    at = at[each]
                key: Any = int(last) if isinstance(at, list) else last
                if step["op"] == "test" and at[key] != step["value"]:
                    raise Invalid("a test of the patch failed")
                if step["op"] == "remove":
                    del at[key]
                if step["op"] == "add":
                    at[key] = step["value"]
        self.objects[name] = found
        self._touch(name)

    def _touch(self, name: str) -> None:
        self.version += 1
        meta = self.objects[name]["metadata"]
        meta["resourceVersion"] = str(self.version)
        if meta.get("deletionTimestamp") and not meta.get("finalizers"):
            del self.objects[name]


class FakeDispatcher:
    """Jobs of one person. `broken`: what the next submission raises after it was taken, as when the answer is lost."""

    def __init__(self) -> None:
        self.jobs_by_id: dict[str, tuple[Job, JobSpec]] = {}
        self.documents: dict[str, dict[str, Any]] = {}
        self.broken: list[FederatorError] = []
        self.refuses: FederatorError | None = None
        self.patches: list[JobPatch] = []
        self.requests: list[int] = []
        """How many documents each request had."""

    async def submit(self, document: dict[str, Any]) -> Submitted:
        if self.refuses is not None:
            raise self.refuses
        key = document["client_id"]
        repeated = key in self.documents
        before = self.documents.setdefault(key, document)
        name = f"job-{key}"
        if before != document:
            raise Conflict("the client id was used for another job")
        if name not in self.jobs_by_id:
            job = Job(
                id=name,
                name=document["name"],
                owner="ada",
                queue="q",
                status=JobStatus.RUNNING,
                spec_hash="",
                submitted_at=0.0,
            )
            self.jobs_by_id[name] = (job, JobSpec(name="x", labels=document["labels"]))
        if self.broken:
            raise self.broken.pop()
        return Submitted(jobs=(name,), name=document["name"], repeated=repeated)

    async def submit_many(self, documents: Sequence[dict[str, Any]]) -> AsyncIterator[SubmitResult]:
        self.requests.append(len(documents))
        await asyncio.sleep(0)
        for line, document in enumerate(documents, 1):
            try:
                answer = SubmitResult(line, await self.submit(document))
            except (Conflict, Permanent) as error:
                answer = SubmitResult(line, problem=problem_of(error))
            yield answer

    async def job(self, name: str) -> JobDetail:
        if name not in self.jobs_by_id:
            raise NotFound(name)
        return JobDetail(*self.jobs_by_id[name])

    async def jobs(self, which: Any, *, limit: int = 500) -> JobPage:
        uid = which.label.removeprefix(f"{UID_LABEL}=")
        found = [job for job, spec in self.jobs_by_id.values() if spec.labels[UID_LABEL] == uid]
        rows = [
            JobRow(
                id=job.id,
                name=job.name,
                owner="ada",
                queue="q",
                status=job.status,
                priority=0,
                nodes=1,
                gpus=0,
                models="",
            )
            for job in found
        ]
        return JobPage(tuple(rows[:limit]))

    async def act(self, verb: str, names: Sequence[str], patch: JobPatch | None = None) -> list[ActedOn]:
        for name in names:
            job, spec = self.jobs_by_id[name]
            if verb == "cancel":
                fields: Mapping[str, Any] = {**_fields(job), "status": JobStatus.CANCELLED}
                self.jobs_by_id[name] = (Job(**fields), spec)
            elif patch is not None:
                self.patches.append(patch)
        return [ActedOn(name=name, label=name, changed=1, left=0, status={}) for name in names]

    async def close(self) -> None:
        """There are no connections."""


def _fields(job: Job) -> dict[str, Any]:
    return {name: getattr(job, name) for name in Job.__struct_fields__}
