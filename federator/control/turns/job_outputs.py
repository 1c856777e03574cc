"""Outputs of other jobs that waiting jobs read, as data that planning knows: how much it is, and where it lies.

Agents bring outputs from the dispatcher, which `Links` know by that name as they know a region. A site with one agent keeps what was made there, and jobs there
have it at once. An input names the site that keeps it and not the job that made it, so that tasks which read as much from the same place stay one class. That the
site has dropped it since is not known here: then it is brought after all. Without `Links` nothing is known of what moving takes, and nothing is said.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from federator.control.record.records import Records
from federator.control.record.rows import OutputPart
from federator.model.datasets import (
    LEAST_OUTPUTS_BYTES,
    OUTPUTS,
    DatasetRule,
    LinkRule,
    Spot,
    is_below,
)
from federator.model.jobs import Input, Job, JobSpec
from federator.model.sites import SiteStatus
from federator.model.snapshot import JobView

DISPATCHER = Spot(region="dispatcher")


def outputs_read(records: Records, job: Job, spec: JobSpec) -> tuple[Input, ...]:
    """One input for each site that keeps some of them, and one for the rest; sizes to two digits."""
    if not spec.inputs_from or not any(isinstance(rule, LinkRule) for rule in records.policies.rules):
        return ()
    keeping, sizes = _keeping(records), Counter[str]()
    for part in _parts(records, job, spec):
        sizes[keeping.get(part.member, "")] += part.size_bytes
    return tuple(
        Input(f"{OUTPUTS}/{site}" if site else OUTPUTS, int(float(f"{size:.2g}")))
        for site, size in sorted(sizes.items())
        if size >= LEAST_OUTPUTS_BYTES
    )


def registered(records: Records, jobs: Iterable[JobView]) -> tuple[DatasetRule, ...]:
    """Where such inputs lie now."""
    read = {each.uri for job in jobs for each in job.inputs if is_below(each.uri, OUTPUTS)}
    keeping = set(_keeping(records).values()) if read else set[str]()
    return tuple(
        DatasetRule("", uri, None, (DISPATCHER,), kept_at=tuple(keeping & {uri.removeprefix(f"{OUTPUTS}/")}))
        for uri in sorted(read)
    )


def _parts(records: Records, job: Job, spec: JobSpec) -> Iterator[OutputPart]:
    """What has been collected of all that it reads."""
    whole = {each.job for each in spec.inputs_from or () if not each.each}
    own = {each.job for each in spec.inputs_from or () if each.each}
    for before in records.followed(job):
        names = {before.id, before.array}
        if names & whole or (names & own and before.array_index == job.array_index):
            outputs = records.known_outputs(before.id)
            yield from outputs.parts if outputs is not None else ()


def _keeping(records: Records) -> dict[str, str]:
    """By the one agent of each site of our own, its site. Of several hosts another one would bring it; a rented machine goes."""
    own = [
        each for each in records.members.values() if each.lease is None and each.status is not SiteStatus.GONE
    ]
    hosts = Counter(member.site for member in own)
    return {member.id: member.site for member in own if hosts[member.site] == 1}
