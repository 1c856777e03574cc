"""Groups of a job: programs that are unlike, such as a learner without GPUs beside workers with them, started and ended as one gang.

The groups of a job run side by side on its nodes: one of them, the one with GPUs, is on all, and each other one on as many as it says, from rank 0 on. So the planner
sees like ranks, each with the sum of what the groups ask for, and a launcher starts on each node the groups that have a rank there (`launchers/groups.sh`).
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, ClassVar, NamedTuple

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from federator.kernel.errors import FederatorError, Invalid
from federator.model.jobs import FIRST, Framework, Resources
from federator.wire.commands import Command, Run, check_one, default_name
from federator.wire.fields import Name
from federator.wire.forms import Nodes, RequestedResources, Scaling, asked_of, entries_of
from federator.wire.launchers import GROUPS, FrameworkFile, framework_of, launch_of, success_of
from federator.wire.launchers import Name as FrameworkName
from federator.wire.sizes import Sizes, sizes_of

MOST_GROUPS = 8
ALL = "all"
"""Of `success`: the job succeeds when every rank of every group has."""
IGNORED_SIGNALS = ("INT", "QUIT")
"""A shell starts what runs beside it without these (POSIX, 2.12 Signals and Error Handling)."""


class Group(Struct, frozen=True, forbid_unknown_fields=True):
    """Ranks of one kind."""

    elsewhere: ClassVar = {"replicas": "nodes", "num_nodes": "nodes", "gpus": "resources.gpus", "cpus": "resources.cpus", "memory": "resources.memory"}  # fmt: skip

    name: Name
    """Its ranks see it in `FEDERATOR_GROUP`."""
    run: Run | None = None
    """As that of a job. Exactly one of `run` and `command` is needed."""
    command: Command | None = None
    """As that of a job."""
    framework: FrameworkName | FrameworkFile | None = None
    """As that of a job, in one group at most, and not one that makes a cluster of all ranks: `torchrun`, `deepspeed` or `tensorflow`."""
    nodes: Nodes | None = None
    """On how many nodes it has a rank. Left out: 1. The group with GPUs is on all nodes of the job, or, without GPUs, the one with the most nodes; each other group is on the first so many."""
    min_nodes: Nodes | None = None
    """For the group that is on all nodes: as that of a job. No other group may be on more."""
    max_nodes: Nodes | None = None
    """For the group that is on all nodes: as that of a job."""
    scaling: Scaling | None = None
    """For the group that is on all nodes: as that of a job."""
    resources: Sizes = Sizes()
    """What each of its ranks needs. GPUs are for one group. Memory is for all groups or for none."""


Groups = Annotated[tuple[Group, ...], Meta(max_length=MOST_GROUPS)]
_INSIDE = ("run", "command", "framework", "nodes", "min_nodes", "max_nodes", "scaling", "resources")
"""What a job with groups says in them."""


class Gathered(NamedTuple):
    """Groups, as the fields of a `JobSpec` that they become."""

    asked: RequestedResources
    name: str
    """Of the job, where it has none: that of the program which is on all nodes."""
    run: str
    """What was asked for, as people read it: each group and its command."""
    launch: tuple[str, ...]
    success: str | UnsetType
    notes: tuple[str, ...]
    """What of a node is asked for and not used, where that is so."""


class _Part(NamedTuple):
    """A group and what each of its ranks has; `nodes` None: it is on all."""

    group: Group
    nodes: int | None
    resources: Resources
    framework: Framework | None

    def line(self, others: Resources) -> str:
        """As the launcher reads it: its size, or, as that on all nodes may have several, what the `others` have."""
        size = others if self.nodes is None else self.resources
        cpus = size.cpus_milli // 1000
        asked = self.group.command or ("/bin/sh", "-c", self.group.run or "")
        words = (
            self.group.name,
            ALL if self.nodes is None else str(self.nodes),
            str(cpus if self.nodes is None else max(1, cpus)),
            str(size.memory_mib),
            *(launch_of(self.framework, asked) if self.framework else asked),
        )
        return f"group {shlex.join(words)}\n"

    @property
    def text(self) -> str:
        """Its command, as people read it."""
        by = f" ({self.framework.name})" if self.framework else ""
        return f"{self.group.name}{by}: {self.group.run or shlex.join(self.group.command or ())}\n"


def gathered(
    groups: Groups, document: Mapping[str, object], success: str | None, checkpoint: str | None
) -> Gathered:
    """What a job with these groups asks for and runs. `checkpoint`: the signal at which it saves itself, if it can. Raises `Invalid`."""
    for key in _INSIDE:
        if document.get(key) is not None:
            raise Invalid("does not go with groups", field=f"$.{key}", remedy="write it in each group")
    _check_names(groups, success)
    if checkpoint in IGNORED_SIGNALS:
        raise Invalid(
            f"{checkpoint} does not reach the groups of a job",
            field="$.checkpoint.signal",
            remedy="write TERM, HUP, USR1 or USR2",
        )
    number = _everywhere(groups)
    main = groups[number]
    with _below(number):
        nodes = (main.nodes, main.min_nodes, main.max_nodes)
        asked = asked_of(main.resources, nodes, main.scaling, elastic=checkpoint is not None)
    least = min([asked.nodes, *(form.nodes for form in asked.forms or ())])
    parts = []
    for index, group in enumerate(groups):
        with _below(index):
            framework = _framework(group)
            part = _Part(group, None, asked.resources, framework)
            parts.append(part if index == number else _beside(part, main.name, least))
    _check_shared(parts, [asked.resources, *(form.resources for form in asked.forms or ())])
    more = [part.resources for part in parts if part.nodes is not None]
    forms = tuple(replace(form, resources=_sum(form.resources, more)) for form in asked.forms or ())
    whole = asked._replace(resources=_sum(asked.resources, more), forms=forms or UNSET)
    others = _sum(Resources(cpus_milli=0), more)
    started = "".join(part.line(others) for part in parts)
    begin, end = GROUPS
    return Gathered(
        whole,
        default_name(main.run, main.command),
        "".join(part.text for part in parts),
        ("/bin/sh", "-c", f"success={success or ALL}\n{begin}{started}{end}", "federator-groups"),
        UNSET if success in (None, ALL) else FIRST,
        _notes(parts, whole),
    )


@contextmanager
def _below(index: int) -> Iterator[None]:
    """What is wrong inside is told where it stands in that group."""
    try:
        yield
    except FederatorError as error:
        field = f"$.groups[{index}]{(error.field or '$')[1:]}"
        raise type(error)(error.message, field=field, remedy=error.remedy) from None


def _check_names(groups: Groups, success: str | None) -> None:
    names = [group.name for group in groups]
    for index, name in enumerate(names):
        if name in (ALL, FIRST) or name in names[:index]:
            why = "is the name of two groups" if name in names[:index] else "is a word of success"
            raise Invalid(f"{name} {why}", field=f"$.groups[{index}].name", remedy="write another one")
    if success not in (None, ALL, *names):
        raise Invalid(
            f"{success} is no group of this job", field="$.success", remedy=f"write {', '.join(names)} or all"
        )


def _everywhere(groups: Groups) -> int:
    """Which of them is on all nodes. Raises `Invalid` where two have GPUs."""
    with_gpus = []
    for index, group in enumerate(groups):
        with _below(index):
            if _asks_for_gpus(group.resources):
                with_gpus.append(index)
    if len(with_gpus) > 1:
        first, second, *_ = with_gpus
        raise Invalid(
            f"asks for GPUs, and so does group {groups[first].name}; one group may",
            field=f"$.groups[{second}].resources.gpus",
            remedy="ask for those of both in one group, whose program shares them out",
        )
    most = max(range(len(groups)), key=lambda index: (groups[index].nodes or 1, -index))
    return with_gpus[0] if with_gpus else most


def _asks_for_gpus(sizes: Sizes) -> bool:
    entries, _ = entries_of(sizes)
    return any(size.gpus.count for entry, path in entries for size in sizes_of(entry, path))


def _framework(group: Group) -> Framework | None:
    check_one(group.run, group.command, "$")
    if group.framework is None:
        return None
    framework = framework_of(group.framework, "$.framework")
    if success_of(framework):
        raise Invalid(
            f"{framework.name} makes a cluster of all ranks, and cannot be beside other groups",
            field="$.framework",
            remedy="write it for the job, without groups: its first rank has the head and a worker",
        )
    return framework


def _beside(part: _Part, main: str, least: int) -> _Part:
    """A group that is on the first nodes; `least`: of the fewest on which `main` may be."""
    group, sizes = part.group, part.group.resources
    for key in ("min_nodes", "max_nodes", "scaling"):
        if getattr(group, key) is not None:
            raise Invalid(
                f"is for group {main}, which is on all nodes", field=f"$.{key}", remedy="write nodes"
            )
    if sizes.any_of or sizes.ordered:
        raise Invalid(
            f"a list of sizes is for group {main}, which is on all nodes",
            field="$.resources",
            remedy="write one size",
        )
    if (nodes := group.nodes or 1) > least:
        raise Invalid(
            f"is more than the {least} that group {main} may have; groups run side by side on its nodes",
            field="$.nodes",
            remedy=f"write at most {least}, or more nodes for {main}",
        )
    return part._replace(nodes=nodes, resources=sizes_of(sizes, "$.resources")[0])


def _check_shared(parts: Sequence[_Part], sizes: Sequence[Resources]) -> None:
    """What all ranks on a node have together: memory that is limited, and the port at which a framework meets. `sizes`: of the group that is on all nodes."""
    limits = [
        {size.memory_mib > 0 for size in (sizes if part.nodes is None else (part.resources,))}
        for part in parts
    ]
    limited = [all(limit) for limit in limits]
    if any(True in limit for limit in limits) and not all(limited):
        raise Invalid(
            "is missing: it is for all groups or for none, as they share what a node has of it",
            field=f"$.groups[{limited.index(False)}].resources.memory",
            remedy="write it for each group",
        )
    meeting = [index for index, part in enumerate(parts) if part.framework]
    if len(meeting) > 1:
        raise Invalid(
            "is in two groups, and both would meet at MASTER_PORT",
            field=f"$.groups[{meeting[1]}].framework",
            remedy="keep it in one of them",
        )


def _sum(size: Resources, more: Sequence[Resources]) -> Resources:
    """What one node needs for all of them."""
    return replace(
        size,
        cpus_milli=size.cpus_milli + sum(each.cpus_milli for each in more),
        memory_mib=size.memory_mib + sum(each.memory_mib for each in more),
        shm_mib=size.shm_mib + sum(each.shm_mib for each in more),
    )


def _notes(parts: Sequence[_Part], whole: RequestedResources) -> tuple[str, ...]:
    fewer = [
        f"{part.group.name} runs on {part.nodes}"
        for part in parts
        if part.nodes is not None and part.nodes < whole.nodes
    ]
    if not fewer:
        return ()
    cpus = f"{whole.resources.cpus_milli / 1000:g} CPUs"
    return (
        f"each of its {whole.nodes} nodes is asked for {cpus}, the sum of all groups; {' and '.join(fewer)}",
    )
