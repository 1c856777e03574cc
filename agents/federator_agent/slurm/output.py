"""Reads what Slurm's commands print, without I/O.

Written against 22.05 and recordings of it in the tests. What is not understood is passed over, field by field and line by line: newer versions say more, and a job
with a strange name must not blind the agent to all others.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import groupby
from string import digits
from types import MappingProxyType
from typing import NamedTuple

from federator.wire.fields import NAME

QUEUE_COLUMNS = (
    ("JobID", 20), ("State", 20), ("Reason", 60), ("PreemptTime", 24), ("SubmitTime", 24), ("RestartCnt", 12),
    ("Name", 140),
)  # fmt: skip
QUEUE_FORMAT = ",".join(f"{name}:{width}" for name, width in QUEUE_COLUMNS)
"""For `squeue --Format`. Columns of fixed width: nothing that a user writes can shift them."""
WAITING = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"})
OVER = frozenset(
    {
        "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "DEADLINE", "PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY", "REVOKED",
    }
)  # fmt: skip
"""States in which Slurm has cleaned up on all nodes: nothing of the job runs. Any other state, also one unknown, is not over."""
_FIELD = re.compile(r"\s([A-Za-z][A-Za-z0-9_/:&.]*)=")
_GRES = re.compile(r"gpu(?::([^:(),]+|\(null\)))?:(\d{1,9})(?:\([^)]*\))?")
_SHARD = re.compile(r"shard(?::([^:(),]+|\(null\)))?:(\d{1,9})(?:\(IDX:([\d,-]+)\))?")
_HELD = re.compile(r"\sNodes=(\S+) CPU_IDs=\S* Mem=\d+ GRES=(\S*)")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
MOST_HOSTS, MOST_GPUS = 20_000, 1000
"""Of one list, and of one host."""
_HOSTS = re.compile(r"([^,\[]+)(?:\[([^\]]*)\])?([^,]*)")
_TRES = re.compile(r"(?:gres[:/])?gpu(?:[:=]([A-Za-z][^:=,]*+))?[:=]?(\d+)?(?=,|$)")
_WORDS = re.compile(
    r"\*\*\* JOB \d+ ON \S+ CANCELLED AT \S+ (?:DUE TO ([A-Z ]++)[^*]*+)?\*\*\*", re.IGNORECASE
)
_WHY = {"PREEMPTION": "PREEMPTED", "TIME LIMIT": "TIMEOUT", "NODE FAILURE": "NODE_FAIL"}


class Job(NamedTuple):
    """A job in the queue, as `squeue` shows it. `preempted`: it has been told to go for the sake of another; it may have ended within its grace."""

    id: str
    name: str
    state: str
    reason: str = ""
    preempted: bool = False
    submitted_at: float | None = None
    restarts: int = 0
    """How often Slurm has put it back into the queue, for whomever. It counts from the moment on in which it begins to end what runs."""

    @property
    def over(self) -> bool:
        """Whether nothing of it runs or waits any more."""
        return self.state in OVER


class Node(NamedTuple):
    """A node, as `scontrol show node` shows it. `gpus`: by type, how many it has and how many are allocated."""

    name: str
    address: str
    partitions: tuple[str, ...]
    states: frozenset[str]
    cpus: int
    cpus_taken: int
    memory_mib: int
    memory_taken_mib: int
    gpus: dict[str, tuple[int, int]]
    shards: Mapping[str, int] = MappingProxyType({})
    """By type of GPU: into how many parts all of that type are cut."""
    switch: str = ""
    """The leaf switch that it is below; empty: none, or nobody asks."""


class Partition(NamedTuple):
    """A partition, as `scontrol show partition` shows it. `max_time_s` None: it does not limit."""

    name: str
    up: bool
    max_time_s: float | None
    default_memory: bool
    """Whether it says how much memory a job gets that asks for none."""


class OtherJob(NamedTuple):
    """A job of whomever, as `scontrol show job` shows it. `gpus` over all of its nodes."""

    name: str
    state: str
    partition: str
    nodes: int
    gpus: int
    ends_at: float | None
    host: str = ""
    """The first of its nodes; empty: it has none."""


def read_queue(text: str) -> list[Job]:
    """The lines of `squeue --noheader --Format=QUEUE_FORMAT`."""
    jobs = []
    for line in text.splitlines():
        words, at = [], 0
        for _, width in QUEUE_COLUMNS:
            words.append(line[at : at + width].strip())
            at += width
        number, state, reason, preempt_time, submitted, restarts, name = words
        if number.isdigit() and state:
            preempted = _time(preempt_time) is not None
            submitted_at = _time(submitted)
            jobs.append(Job(number, name, state, reason, preempted, submitted_at, _whole(restarts)))
    return jobs


def read_nodes(text: str) -> list[Node]:
    """The lines of `scontrol show node --details --oneliner`."""
    return [_node(fields) for fields in _records(text) if "NodeName" in fields]


def _node(fields: dict[str, str]) -> Node:
    used = dict(_gres(fields.get("GresUsed", "")))
    state = fields.get("State", "UNKNOWN").upper()
    return Node(
        name=fields["NodeName"],
        address=fields.get("NodeAddr") or fields["NodeName"],
        partitions=tuple(part for part in fields.get("Partitions", "").split(",") if part),
        states=frozenset(part.rstrip("*~#!%$@^-") for part in state.split("+"))
        | (frozenset({"NOT_RESPONDING"}) if "*" in state else frozenset()),
        cpus=_whole(fields.get("CPUEfctv") or fields.get("CPUTot")),
        cpus_taken=_whole(fields.get("CPUAlloc")),
        memory_mib=max(0, _whole(fields.get("RealMemory")) - _whole(fields.get("MemSpecLimit"))),
        memory_taken_mib=_whole(fields.get("AllocMem")),
        gpus={kind: (count, used.get(kind, 0)) for kind, count in _gres(fields.get("Gres", ""))},
        shards={
            _type(kind): int(count) for kind, count, _ in _SHARD.findall(fields.get("Gres", "")) if int(count)
        },
    )


def read_partitions(text: str) -> list[Partition]:
    """The lines of `scontrol show partition --oneliner`."""
    return [_partition(fields) for fields in _records(text) if "PartitionName" in fields]


def _partition(fields: dict[str, str]) -> Partition:
    unset = {"UNLIMITED", "0", ""}
    memory = {fields.get(key, "") for key in ("DefMemPerNode", "DefMemPerCPU")}
    return Partition(
        name=fields["PartitionName"],
        up=fields.get("State", "").upper() == "UP",
        max_time_s=_span_s(fields.get("MaxTime", "")),
        default_memory=not memory <= unset,
    )


def read_other_jobs(text: str) -> list[OtherJob]:
    """The lines of `scontrol show job --details --oneliner`."""
    return [_other(fields) for fields in _records(text) if "JobId" in fields and "JobState" in fields]


def _other(fields: dict[str, str]) -> OtherJob:
    nodes = _whole(fields.get("NumNodes", "1").partition("-")[0]) or 1
    return OtherJob(
        name=fields.get("JobName", ""),
        state=fields["JobState"],
        partition=fields.get("Partition", ""),
        nodes=nodes,
        gpus=_job_gpus(fields, nodes),
        ends_at=_time(fields.get("EndTime", "")),
        host=fields.get("BatchHost", ""),
    )


def _job_gpus(fields: dict[str, str], nodes: int) -> int:
    """What it has, where it runs; else what it asks for."""
    if "JOB_GRES" in fields:
        return sum(count for _, count in _gres(fields["JOB_GRES"]))
    tasks = _whole(fields.get("NumTasks")) or nodes
    for key, times in (("TresPerJob", 1), ("TresPerNode", nodes), ("TresPerTask", tasks)):
        if key in fields:
            return times * sum(int(count or 1) for _, count in _TRES.findall(fields[key]))
    return 0


def read_shards(text: str, nodes: Collection[str]) -> dict[str, Counter[int]]:
    """How many shards of each GPU of these nodes jobs have, by node and the GPU's number there, from `scontrol show job --details --oneliner`: of nodes, Slurm tells only that some are used.

    Users write into these lines, too: a job's name may look like all of this, with ranges without an end. Whoever does so makes GPUs look used, and no more.
    """
    used: dict[str, Counter[int]] = {}
    for line in text.splitlines():
        if "shard" not in line or " JobState=RUNNING " not in line:
            continue
        for hosts, gres in _HELD.findall(f" {line}"):
            for _, count, numbers in _SHARD.findall(gres):
                # Several tasks may have shards of several GPUs, and how many of each is not said: then it may be all of them.
                gpus = [number for number in map(int, _numbers(numbers)) if number < MOST_GPUS]
                for host in set(host_names(hosts)).intersection(nodes) if gpus else ():
                    used.setdefault(host, Counter()).update(dict.fromkeys(gpus, int(count)))
    return used


def read_switches(text: str) -> dict[str, str]:
    """By node, its leaf switch, or its block, from `scontrol show topology`. A name that could not be a pool's is passed over."""
    switches: dict[str, str] = {}
    for fields in _records(text):
        name = fields.get("SwitchName" if fields.get("Level") == "0" else "BlockName", "")
        if NAME.fullmatch(name):
            for node in host_names(fields.get("Nodes", "")):
                switches.setdefault(node, name)
    return switches


def host_names(text: str) -> list[str]:
    """The names in a list such as `n[0-2,7],login`."""
    names: list[str] = []
    for before, numbers, after in _HOSTS.findall(text):
        names += [f"{before}{each}{after}" for each in (_numbers(numbers) if numbers else ("",))]
        if len(names) > MOST_HOSTS:
            break
    return names


def host_list(names: Iterable[str]) -> str:
    """A list of these names, such as `n[0-2,7],login`."""
    families: dict[tuple[str, int], list[int]] = {}
    for name in names:
        before = name[: max(len(name.rstrip(digits)), len(name) - 9)]
        number = name[len(before) :]
        families.setdefault((before, len(number)), []).append(int(number or 0))
    words = []
    for (before, width), numbers in families.items():
        ranges = []
        for _, run in groupby(enumerate(sorted(numbers)), key=lambda each: each[1] - each[0]):
            ends = [f"{number:0{width}d}" for _, number in run]
            ranges.append(f"{ends[0]}-{ends[-1]}" if len(ends) > 1 else ends[0])
        words.append(f"{before}[{','.join(ranges)}]" if width else before)
    return ",".join(words)


def _numbers(text: str) -> list[str]:
    """Of `08-10,3`: 08, 09, 10 and 3. What is no range, or longer than any list of hosts, is passed over."""
    found: list[str] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            continue
        begin, end = int(match[1]), int(match[2] or match[1])
        if end - begin + len(found) < MOST_HOSTS:
            found += [f"{number:0{len(match[1])}d}" for number in range(begin, end + 1)]
    return found


def last_words(text: str) -> str:
    """The state that a job's own output tells of, for one that Slurm has forgotten; empty: it tells of none."""
    found = _WORDS.findall(text)
    return _WHY.get(found[-1].upper().strip(), "CANCELLED") if found else ""


def _records(text: str) -> Iterator[dict[str, str]]:
    for line in text.splitlines():
        parts = _FIELD.split(f" {line}")
        fields: dict[str, str] = {}
        for key, value in zip(parts[1::2], parts[2::2], strict=True):
            fields.setdefault(key, value.strip())
        if fields:
            yield fields


def _gres(text: str) -> list[tuple[str, int]]:
    """GPUs by type; of no type, by the empty one."""
    return [(_type(kind), int(count)) for kind, count in _GRES.findall(text)]


def _type(text: str) -> str:
    return "" if text in ("", "(null)", "no_consume") else text


def _whole(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0


def _time(text: str) -> float | None:
    """Seconds since the epoch; None for the many words that Slurm has for none."""
    return float(text) if text.isdigit() and int(text) > 0 else None


def _span_s(text: str) -> float | None:
    """`[days-]hours:minutes:seconds`; None: no limit."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d+):(\d+)", text)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
