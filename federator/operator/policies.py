"""Policies as objects of the cluster: all `FederatedPolicy` objects together are the set of policies, put in force through the public API, or only compared with it.

The dispatcher takes a whole set or nothing, so one document with a fault keeps the set as it is; the status of each object says what is wrong with it by field. A set that is
already in force is not applied again, so applying the same objects twice makes no second version. With no object at all nothing is done: an empty cluster must not end all rules.
For the same reason a document in force is ended only where its object was seen being deleted: that there is none may also mean that objects are still being made.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec
from msgspec.structs import replace

from federator.client import AsyncClient
from federator.kernel.errors import FederatorError, Invalid, NotFound
from federator.kube.api import Api
from federator.operator.cluster import write_status
from federator.operator.objects import API_VERSION, ClusterMeta, Struct
from federator.operator.settings import Policies
from federator.operator.status import LONGEST
from federator.wire.administration import PolicyDiff
from federator.wire.yamltext import write_document
from federator_agent.kube.informer import Informer
from federator_policies.documents import API_VERSION as DOCUMENT_VERSION

KIND, PLURAL, SHORT = "FederatedPolicy", "federatedpolicies", "fp"
ALL = f"/apis/{API_VERSION}/{PLURAL}"
IN_FORCE, NOT_IN_FORCE, REFUSED, WAITS = "InForce", "NotInForce", "Refused", "Waits"
AGAIN_S = 60.0
"""So often the set in force is looked at though no object has changed: somebody may have applied another."""
SETTLED_S = 10.0
"""So long nothing changes before the objects are looked at: those that are made one after the other are one set."""
REASON = "FederatedPolicy objects of a cluster"
log = logging.getLogger("federator.operator")


class PolicySpec(Struct, frozen=True):
    """One document of the set."""

    kind: str
    """`Queue`, `Budget`, `BurstPolicy` or another kind of policy."""
    name: str = ""
    """What the document is called, such as `Research_2`. Left out: as the object."""
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    """The fields of that kind, as a policy document has them."""


class PolicyStatus(Struct, frozen=True):
    """What became of it."""

    phase: str = ""
    """`InForce`; `Refused` where something is wrong with it; `Waits` while the set is not applied because of another; `NotInForce` where it is only compared."""
    version: int = 0
    """Of the set in which it is in force."""
    message: str = ""
    """What is wrong, with the field and the remedy; or why it waits."""
    observed_generation: int = 0
    """The generation of the spec that this is about."""


class FederatedPolicy(Struct, frozen=True):
    """A policy, as somebody has applied it."""

    metadata: ClusterMeta
    spec: PolicySpec
    status: PolicyStatus = PolicyStatus()

    @property
    def title(self) -> str:
        """`Kind/name`, by which the dispatcher speaks of it."""
        return f"{self.spec.kind}/{self.spec.name or self.metadata.name}"


def text_of(policies: Sequence[FederatedPolicy]) -> str:
    """The set as one text, the same for the same objects in any order."""
    return "---\n".join(
        write_document(
            {
                "apiVersion": DOCUMENT_VERSION,
                "kind": each.spec.kind,
                "metadata": {"name": each.spec.name or each.metadata.name},
                "spec": each.spec.spec,
            }
        )
        for each in sorted(policies, key=lambda each: each.title)
    )


def faults_in(policies: Sequence[FederatedPolicy], diff: PolicyDiff | None = None) -> dict[str, str]:
    """By title, what is wrong with a document; under an empty one what is wrong with the set."""
    faults: dict[str, list[str]] = {}
    for title, count in Counter(each.title for each in policies).items():
        if count > 1:
            faults[title] = [f"{count} objects say it: delete all but one"]
    for problem in diff.problems if diff is not None else ():
        title = problem.detail.partition(",")[0].partition(":")[0]
        known = title if any(each.title == title for each in policies) else ""
        field = f"{problem.field}: " if problem.field else ""
        remedy = f" ({problem.remedy})" if problem.remedy else ""
        faults.setdefault(known, []).append(f"{field}{problem.detail}{remedy}")
    return {title: "; ".join(said)[:LONGEST] for title, said in faults.items()}


def statuses(
    policies: Sequence[FederatedPolicy], faults: Mapping[str, str], diff: PolicyDiff | None
) -> dict[str, PolicyStatus]:
    """What is said of each object, by its name. `diff`: how they differ from what is in force; None: nothing was compared."""
    differing = {each.document for each in diff.documents} if diff is not None else set()
    others = ", ".join(sorted(filter(None, faults))) or "the set"
    found: dict[str, PolicyStatus] = {}
    for each in policies:
        if each.title in faults:
            said = PolicyStatus(phase=REFUSED, message=faults[each.title])
        elif faults:
            said = PolicyStatus(
                phase=WAITS,
                message=faults.get("") or f"waits for {others}, which is refused"[:LONGEST],
            )
        elif diff is not None and each.title not in differing:
            said = PolicyStatus(phase=IN_FORCE, version=diff.version)
        else:
            said = PolicyStatus(
                phase=NOT_IN_FORCE, message="another document of that name is in force, or none"
            )
        found[each.metadata.name] = replace(said, observed_generation=each.metadata.generation)
    return found


def ends_unseen(diff: PolicyDiff, deleted: AbstractSet[str]) -> str:
    """Why a set is not applied that would end documents whose objects were not seen being deleted; empty: it would end none."""
    titles = [each.document for each in diff.documents if each.change == "removed"]
    unseen = ", ".join(title for title in titles if title not in deleted)
    remedy = "make an object of each, or end them with `federator policy apply`"
    if not unseen:
        return ""
    start = "the set is not applied, for it would end what has no object and was not seen being deleted"
    return f"{start} ({remedy}): {unseen}"[:LONGEST]


class PolicyKeeper:
    """Keeps the set in force as the objects are."""

    def __init__(self, settings: Policies, api: Api, client: AsyncClient, every_s: float) -> None:
        self._settings, self._api, self._client, self._every_s = settings, api, client, every_s
        self._changed = asyncio.Event()
        self._titles: dict[str, str] = {}
        """By object that is not being deleted, its title."""
        self._deleted: set[str] = set()
        """Titles whose objects were seen being deleted, and which may be in force still."""
        self.objects: Informer[FederatedPolicy, FederatedPolicy] = Informer(
            api, ALL, FederatedPolicy, lambda each: (each.metadata.name, each), self._seen
        )

    def _seen(self, name: str, kept: FederatedPolicy | None) -> None:
        self._changed.set()
        if kept is not None and not kept.metadata.deletion_timestamp:
            self._titles[name] = kept.title
            self._deleted.discard(kept.title)
            return
        title = self._titles.pop(name, kept.title if kept is not None else "")
        if title and not self.objects.trouble:
            self._deleted.add(title)
        if not self._titles:
            # all are gone, by `delete --all` or with their definition: what is made next is a new set, not the rest of that one
            self._deleted.clear()

    async def run(self) -> None:
        """Keep it, for ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.objects.run())
            await self.objects.synced.wait()
            while True:
                await self._settled()
                try:
                    await self.look()
                except FederatorError as error:
                    log.warning("the policies of the cluster cannot be kept now: %s", error)
                except Exception:
                    log.exception("the policies of the cluster: this is a fault of the operator's")
                await asyncio.sleep(self._every_s)
                try:
                    async with asyncio.timeout(AGAIN_S):
                        await self._changed.wait()
                except TimeoutError:
                    continue

    async def _settled(self) -> None:
        """Wait until nothing has changed for a while."""
        with contextlib.suppress(TimeoutError):
            while True:
                self._changed.clear()
                async with asyncio.timeout(SETTLED_S):
                    await self._changed.wait()

    async def close(self) -> None:
        """Let go of the connections to the dispatcher."""
        await self._client.close()

    async def look(self) -> None:
        """Compare, apply where that was asked for, and say so. Raises `FederatorError`.

        Without all objects nothing is done: one that could not be read would be taken out of the set, and a cap with it.
        """
        if self.objects.trouble:
            log.warning("the policies of the cluster are not looked at: %s", self.objects.trouble)
            return
        policies = [each for each in self.objects.items.values() if not each.metadata.deletion_timestamp]
        if not policies:
            return
        deleted = set(self._deleted)
        diff, faults = None, faults_in(policies)
        if not faults:
            diff = await self._client.diff_policies(text_of(policies))
            faults = faults_in(policies, diff)
        if diff is not None and not faults:
            self._deleted -= deleted - {each.document for each in diff.documents}
            if self._settings.apply and (why := ends_unseen(diff, deleted)):
                faults = {"": why}
        if diff is not None and not faults and self._settings.apply and diff.documents:
            changed = ", ".join(each.document for each in diff.documents)
            reason = f"{REASON}: {changed}"[:LONGEST]
            await self._client.apply_policies(text_of(policies), reason, instead_of=diff.version)
            self._deleted -= {each.document for each in diff.documents}
            diff = await self._client.diff_policies(text_of(policies))
            log.info("version %d of the policies is in force: %s", diff.version, changed)
        said = statuses(policies, faults, diff)
        for each in policies:
            if said[each.metadata.name] != each.status:
                await self._say(each, said[each.metadata.name])

    async def _say(self, policy: FederatedPolicy, status: PolicyStatus) -> None:
        """Write the status whole; one that is gone or another by now is looked at again."""
        meta = policy.metadata
        try:
            await write_status(self._api, f"{ALL}/{meta.name}", meta.uid, status)
        except (NotFound, Invalid) as error:
            log.info("the status of policy %s is not written: %s", meta.name, error)
