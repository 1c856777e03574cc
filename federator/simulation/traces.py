"""Traces: who submitted what, when. Each format is told by its columns; a trace may be compressed with gzip.

Files of these kinds are read: the plain table of this project (`docs/howto/simulate.md`), the synthetic family of `online/`, ElasticFlow's ten
clusters, Chronus' mixes of Philly, and Alibaba's GPU pods of 2023.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from federator.kernel.errors import Invalid
from federator.kernel.quantities import parse_size_bytes
from federator.model.datasets import BYTES_PER_GB
from federator.model.jobs import Input
from federator.simulation.work import TraceForm, TraceJob
from federator.wire.accelerators import MAX_GPUS_PER_NODE
from federator.wire.forms import MAX_NODES
from federator.wire.inputs import read_uri
from federator.wire.named_files import LARGEST, read_number, read_table

Row = Mapping[str, str]
PLAIN = frozenset({"name", "submit_s", "run_s"})
PLAIN_COLUMNS = (
    "name", "submit_s", "run_s", "nodes", "gpus", "estimate_s", "deadline_s", "value_usd", "priority", "queue", "owner", "home",
    "models", "cpus", "memory_mib", "max_duration_s", "wait_usd_h", "gpu_memory_mib", "speed", "kinds", "sites", "not_sites", "site_labels",
    "labels", "spot_policy", "max_cost_usd", "family", "inputs", "forms", "elastic",
    "saves_s", "must", "licenses",
)  # fmt: skip
GPUS_PER_NODE = 8
BANDS = {"0": 30, "1": 50, "2": 70}
"""Priorities of the three bands of the synthetic family."""


def read_trace(path: Path, *, gpus_per_node: int = GPUS_PER_NODE) -> list[TraceJob]:
    """All jobs of a trace in the order of submission. Formats that count GPUs only get nodes of so many. Raises `Invalid`, naming the line."""
    with read_table(path, "--trace") as table:
        read = _reader(path, frozenset(table.columns))
        jobs = list(_rows(table.rows, read, path, gpus_per_node))
    if not jobs:
        raise Invalid(f"{path.name} has no jobs", field="--trace")
    return sorted(jobs, key=lambda job: (job.submit_s, job.name))


Reader = Callable[[Row, int], TraceJob | None]


def _rows(
    rows: Iterable[tuple[int, Row]], read: Reader, path: Path, gpus_per_node: int
) -> Iterator[TraceJob]:
    names: set[str] = set()
    for line, row in rows:
        try:
            job = read(row, gpus_per_node)
        except (KeyError, ValueError, TypeError, OverflowError) as error:
            raise Invalid(
                f"line {line} is not a job: {in_words(error)}",
                field=path.name,
                remedy="see the columns in docs/howto/simulate.md",
            ) from None
        if job is None:
            continue
        if job.name in names:
            raise Invalid(f"line {line} repeats the name {job.name!r}", field=path.name)
        names.add(job.name)
        yield job


def in_words(error: Exception) -> str:
    """What is wrong with a row, by what reading it has raised."""
    return f"there is no {error.args[0]!r}" if isinstance(error, KeyError) else str(error)


def _whole(row: Row, key: str, default: int | None = None) -> int:
    """`default`: where nothing is said; None: something is to be."""
    found = read_number(row, key, default=default)
    if not float(found).is_integer():
        raise ValueError(f"{key} must be a whole number, not {row[key]}")
    return int(found)


def _reader(path: Path, columns: frozenset[str]) -> Reader:
    for marks, read in _FORMATS:
        if marks <= columns:
            if marks is PLAIN and (unknown := sorted(columns - set(PLAIN_COLUMNS))):
                raise Invalid(
                    f"there is no column {unknown[0]!r}",
                    field=path.name,
                    remedy=f"known are {', '.join(PLAIN_COLUMNS)}",
                )
            return read
    raise Invalid(
        f"{path.name} is not a known trace format: its columns are {', '.join(sorted(columns)) or 'none'}",
        field="--trace",
        remedy="give it at least the columns name, submit_s and run_s",
    )


def _plain(row: Row, gpus_per_node: int) -> TraceJob:
    del gpus_per_node

    def given(key: str) -> float | None:
        return read_number(row, key) if row.get(key) else None

    def whole(key: str, default: int) -> int:
        return _whole(row, key, default)

    return _sensible(
        TraceJob(
            name=row["name"],
            family=row.get("family") or "",
            submit_s=read_number(row, "submit_s"),
            run_s=read_number(row, "run_s"),
            nodes=whole("nodes", 1),
            gpus=whole("gpus", 1),
            estimate_s=given("estimate_s"),
            deadline_s=given("deadline_s"),
            value_usd=given("value_usd"),
            priority=whole("priority", 50),
            queue=row.get("queue") or "default",
            owner=row.get("owner") or "user",
            home=row.get("home") or "",
            models=_words(row.get("models")),
            gpu_memory_mib=whole("gpu_memory_mib", 0),
            speed=_numbers(row.get("speed")),
            cpus_milli=round(1000 * (given("cpus") or 1.0)),
            memory_mib=whole("memory_mib", 0),
            kinds=_words(row.get("kinds")),
            sites=_words(row.get("sites")),
            not_sites=_words(row.get("not_sites")),
            site_labels=_pairs(row.get("site_labels")),
            labels=_pairs(row.get("labels")),
            licenses={name: int(count) for name, count in _numbers(row.get("licenses")).items()},
            spot_policy=row.get("spot_policy") or "auto",
            max_cost_usd=given("max_cost_usd"),
            max_duration_s=given("max_duration_s"),
            wait_usd_h=given("wait_usd_h"),
            **_more(row),
        )
    )


def _more(row: Row) -> dict[str, Any]:
    """The data that a job reads, its other forms, whether it may change between them, how often it saves itself, and whether its deadline must be met."""
    forms = tuple(_form(size, times) for size, times in _numbers(row.get("forms")).items())
    return {
        "inputs": _inputs(row),
        "forms": forms,
        "elastic": row.get("elastic") == "yes",
        "saves_s": read_number(row, "saves_s") if row.get("saves_s") else None,
        "must": row.get("must") == "yes",
    }


def _form(size: str, throughput: float) -> TraceForm:
    """`2x8=1.9`: two nodes with eight GPUs each do 1.9 times as much as what the job asks for."""
    nodes, _, gpus = size.partition("x")
    return TraceForm(int(nodes), int(gpus), throughput)


def _online(row: Row, gpus_per_node: int) -> TraceJob:
    del gpus_per_node
    return _sensible(
        TraceJob(
            name=row["job"],
            family=f"array-{row['array']}" if row.get("array") else "",
            submit_s=read_number(row, "submit_h") * 3600.0,
            run_s=read_number(row, "runtime_h") * 3600.0,
            nodes=_whole(row, "nodes"),
            gpus=_whole(row, "gpus_per_node"),
            models=_words(row["gpu_models"]),
            estimate_s=read_number(row, "estimate_h") * 3600.0,
            priority=BANDS[row["priority_band"]],
            deadline_s=read_number(row, "deadline_h") * 3600.0 if row["deadline_h"] else None,
            value_usd=read_number(row, "value_usd") if row["deadline_h"] else None,
            owner=f"tenant-{row['tenant']}",
            home=f"site-{row['data_site']}" if row.get("data_site") else "",
            inputs=_data_of(row),
            wait_usd_h=read_number(row, "wait_usd_per_h"),
        )
    )


def _data_of(row: Row) -> tuple[Input, ...]:
    """Its input at its data's site, of which a table of pools has a dataset of that name."""
    size = round(read_number(row, "data_gb", default=0.0) * BYTES_PER_GB)
    return (Input(f"s3://site-{row['data_site']}", size),) if size and row.get("data_site") else ()


def _inputs(row: Row) -> tuple[Input, ...]:
    return tuple(_input(uri, size) for uri, size in _pairs(row.get("inputs")).items())


def _input(uri: str, size: str) -> Input:
    return Input(read_uri(uri, "$.inputs"), parse_size_bytes(size) if size else None)


def _elasticflow(row: Row, gpus_per_node: int) -> TraceJob:
    nodes, gpus = nodes_of(_whole(row, "num_gpu"), gpus_per_node)
    return _sensible(
        TraceJob(
            name=row["job"],
            submit_s=read_number(row, "submit_s"),
            run_s=read_number(row, "duration_s"),
            nodes=nodes,
            gpus=gpus,
            deadline_s=read_number(row, "deadline_s") if row.get("deadline_s") else None,
            home=row["cluster"],
        )
    )


def _chronus(row: Row, gpus_per_node: int) -> TraceJob:
    """Minutes, as `job_type` says whether its deadline is one: best-effort jobs have none."""
    nodes, gpus = nodes_of(_whole(row, "num_gpu"), gpus_per_node)
    submit_s = read_number(row, "submit_min") * 60.0
    strict = row["job_type"] == "strict"
    return _sensible(
        TraceJob(
            name=f"job-{row['job']}",
            submit_s=submit_s,
            run_s=read_number(row, "duration_min") * 60.0,
            nodes=nodes,
            gpus=gpus,
            deadline_s=submit_s + read_number(row, "deadline_rel_min", -LARGEST) * 60.0 if strict else None,
            owner=row["vc"],
        )
    )


def _alibaba(row: Row, gpus_per_node: int) -> TraceJob | None:
    """Pods that ran. One that shares a GPU counts as one that has a whole one: sharing is not known here."""
    del gpus_per_node
    if not row["run_s"] or read_number(row, "run_s", -LARGEST) <= 0:
        return None
    return _sensible(
        TraceJob(
            name=f"pod-{row['pod']}",
            submit_s=read_number(row, "create_s"),
            run_s=read_number(row, "run_s"),
            gpus=_whole(row, "num_gpu"),
            cpus_milli=max(1, _whole(row, "cpu_milli")),
            memory_mib=_whole(row, "memory_mib"),
            models=_words(row["gpu_spec"]) if _whole(row, "num_gpu") else (),
            owner=row["qos"].lower() or "user",
        )
    )


_FORMATS: tuple[tuple[frozenset[str], Reader], ...] = (
    (PLAIN, _plain),
    (frozenset({"job", "submit_h", "runtime_h", "gpus_per_node"}), _online),
    (frozenset({"cluster", "job", "submit_s", "duration_s", "num_gpu"}), _elasticflow),
    (frozenset({"job", "vc", "num_gpu", "submit_min", "duration_min", "job_type"}), _chronus),
    (frozenset({"pod", "cpu_milli", "num_gpu", "create_s", "run_s"}), _alibaba),
)


def nodes_of(gpus: int, per_node: int) -> tuple[int, int]:
    """A request for so many GPUs, as nodes with so many each: whole nodes beyond one."""
    return (1, gpus) if gpus <= per_node else (-(-gpus // per_node), per_node)


def _words(text: str | None) -> tuple[str, ...]:
    return tuple(word.strip() for word in (text or "").split("|") if word.strip())


def _pairs(text: str | None) -> dict[str, str]:
    """`key=value|key=value`."""
    return {key: value for key, _, value in (word.partition("=") for word in _words(text))}


def _numbers(text: str | None) -> dict[str, float]:
    pairs = _pairs(text)
    return {key: read_number(pairs, key) for key in pairs}


def _sensible(job: TraceJob) -> TraceJob:
    if any(count < 1 for count in job.licenses.values()):
        raise ValueError("it holds no licence of one that it names")
    if any(form.nodes < 1 or form.gpus < 0 or form.throughput <= 0 for form in job.forms):
        raise ValueError("a form has no nodes, or does nothing")
    if not job.name or job.submit_s < 0 or job.run_s <= 0 or job.nodes < 1 or job.gpus < 0:
        raise ValueError("a name is empty, or a number is negative")
    if job.submit_s > LARGEST or job.run_s > LARGEST:
        raise ValueError(f"it is submitted, or runs, at {LARGEST:g} s or later")
    for nodes, gpus in ((job.nodes, job.gpus), *((form.nodes, form.gpus) for form in job.forms)):
        if nodes > MAX_NODES or gpus > MAX_GPUS_PER_NODE:
            raise ValueError(f"a job has at most {MAX_NODES} nodes with {MAX_GPUS_PER_NODE} GPUs each")
    return job
