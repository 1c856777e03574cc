"""Reads and writes problem and plan files, and turns them into the records that planning uses and back.

Names differ where the outside deserves a plainer one; a test holds that nothing is lost either way. A file that begins like gzip is
unpacked, up to a limit. What is wrong with one is told with the path of the field and what would be right.
"""

import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from federator.kernel.errors import Invalid, TooLarge
from federator.model.capacity import Offer, Shape, Stock
from federator.model.jobs import Accelerators, Form, Input, Resources
from federator.model.rules import Effect, Filter, GuaranteeRow
from federator.model.snapshot import (
    BusyView,
    JobView,
    Lead,
    OfferView,
    Outside,
    PoolView,
    Problem,
    Snapshot,
    SpendView,
)
from federator.wire import decoding
from federator.wire import solver_problem as told
from federator.wire.jsontext import read
from federator.wire.solver_parts import (
    FreeHosts,
    InputData,
    ProblemForm,
    ProblemLead,
    ProblemOutside,
    ProblemSpend,
    ProblemStock,
    RefusedSite,
)
from federator.wire.solver_plan import FORMAT as PLAN_FORMAT
from federator.wire.solver_plan import PlanFile
from federator.wire.solver_problem import FORMAT, ProblemFile

MOST_BYTES = 2 * 2**30
"""A file may be so large, unpacked."""
DESCRIBED = "docs/reference/solver-files.md describes every field"
_FORMATS: dict[type, str] = {ProblemFile: FORMAT, PlanFile: PLAN_FORMAT}
_GZIP = b"\x1f\x8b"

T = TypeVar("T", ProblemFile, PlanFile)
S = TypeVar("S", bound=msgspec.Struct)

_JOB = {
    "gpus": "gpus_per_node",
    "cpus_milli": "cpus_milli_per_node",
    "memory_mib": "memory_mib_per_node",
    "resumes_at": "resumes_at_site",
}
_WORK = {key: _JOB[key] for key in ("gpus", "cpus_milli", "memory_mib")}
_FORECAST = {"speed": "speed_by_model"}
_POOL = {"lends_to": "lends_to_queues", "rented_for": "rented_for_job"}
_SNAPSHOT = {"away": "away_sites"}
_HOSTS = {"count": "hosts"}


def read_problem(content: bytes) -> Problem:
    """A problem file as planning takes it. Raises `Invalid` with the field at fault, or `TooLarge`."""
    return to_problem(_read(content, ProblemFile))


def read_plan(content: bytes) -> PlanFile:
    """A plan file. Raises `Invalid` with the field at fault, or `TooLarge`."""
    return _read(content, PlanFile)


def write(file: ProblemFile | PlanFile, *, packed: bool = False) -> bytes:
    """A file as JSON with a line per field, or packed with gzip: the same bytes for the same content."""
    text = msgspec.json.encode(file, order="deterministic")
    if not packed:
        return msgspec.json.format(text, indent=1) + b"\n"
    packer = zlib.compressobj(6, wbits=31)
    return packer.compress(text) + packer.flush()


def _read(content: bytes, kind: type[T]) -> T:
    text = unpacked(content)
    try:
        return read(text, kind)
    except msgspec.DecodeError:
        pass  # said below, with what would be right
    try:
        value = read(text, object)
    except msgspec.DecodeError as error:
        raise Invalid(f"this is not JSON: {error}", field="$", remedy=DESCRIBED) from None
    wanted = _FORMATS[kind]
    if isinstance(value, dict) and value.get("format") != wanted:
        given = value.get("format", "nothing")
        raise Invalid(f"must be {wanted}, not {given!s:.80}", field="$.format", remedy=DESCRIBED)
    try:
        return decoding.decode(value, kind, "$")
    except Invalid as fault:
        raise Invalid(fault.message, field=fault.field, remedy=fault.remedy or DESCRIBED) from None


def unpacked(content: bytes) -> bytes:
    """What a file has, packed with gzip or not. Raises `Invalid`, `TooLarge`."""
    if not content.startswith(_GZIP):
        return content
    unpacker = zlib.decompressobj(wbits=31)
    try:
        text = unpacker.decompress(content, MOST_BYTES)
    except zlib.error as error:
        raise Invalid(f"cannot be unpacked: {error}", field="$", remedy="write JSON, or gzip of it") from None
    if unpacker.unconsumed_tail:
        raise TooLarge(f"is over {MOST_BYTES} bytes, unpacked", field="$", remedy="write a smaller problem")
    if not unpacker.eof:
        raise Invalid("is cut off and cannot be unpacked", field="$", remedy="write the whole file again")
    return text


# -- outside to inside ------------------------------------------------------------------------------------------------


def to_problem(file: ProblemFile) -> Problem:
    """The problem that a file holds. Raises `Invalid` where its parts contradict each other."""
    _consistent(file)
    snapshot = file.snapshot
    jobs = tuple(_job(job, file.forecasts[job.id]) for job in snapshot.jobs)
    return Problem(
        snapshot=_into(
            Snapshot,
            snapshot,
            _SNAPSHOT,
            jobs=jobs,
            pools=tuple(_pool(pool) for pool in snapshot.pools),
            offers=tuple(_offer(offer) for offer in snapshot.offers),
            spend=tuple(_into(SpendView, spend) for spend in snapshot.spend),
            rules=file.rules,
        ),
        warm_prices=file.prices,
        outside={row: _into(Outside, each) for row, each in file.outside.items()},
        leads=tuple(_into(Lead, each) for each in file.leads),
        decision=file.decision,
    )


def _consistent(file: ProblemFile) -> None:
    snapshot = file.snapshot
    _unique("$.snapshot.jobs", "id", (job.id for job in snapshot.jobs))
    _unique("$.snapshot.pools", "site/member/pool", (f"{p.site}/{p.member}/{p.pool}" for p in snapshot.pools))
    _unique("$.snapshot.offers", "provider/name", (f"{o.provider}/{o.name}" for o in snapshot.offers))
    known = {job.id for job in snapshot.jobs}
    for job in snapshot.jobs:
        if job.id not in file.forecasts:
            raise Invalid(
                "is missing",
                field=f"$.forecasts.{job.id}",
                remedy="write how long the job runs: {run_s: seconds}",
            )
    if unknown := sorted(file.forecasts.keys() - known):
        raise Invalid("no job has this id", field=f"$.forecasts.{unknown[0]}", remedy="remove it")
    for number, pool in enumerate(snapshot.pools):
        if sum(hosts.hosts for hosts in pool.free) > pool.nodes:
            raise Invalid(
                f"has more hosts than the pool's {pool.nodes}",
                field=f"$.snapshot.pools[{number}].free",
                remedy="write each host once, by what is free on it",
            )
    for number, rule in enumerate(file.rules):
        if isinstance(rule, GuaranteeRow) and rule.weight <= 0.0:
            raise Invalid("must be above 0", field=f"$.rules[{number}].weight", remedy="leave it out: 1")
        if isinstance(rule, Filter) and rule.beyond and rule.effect is Effect.ALLOW:
            raise Invalid(
                "applies only to filters that deny",
                field=f"$.rules[{number}].beyond",
                remedy="write in pools what it allows",
            )


def _unique(field: str, what: str, names: Iterable[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise Invalid(
            f"{twice[0]!r} is listed twice", field=field, remedy=f"write a {what} of its own for each"
        )


def _job(job: told.ProblemJob, forecast: told.Forecast) -> JobView:
    run_s = forecast.run_s
    return _into(
        JobView,
        job,
        _JOB,
        refused=tuple((each.site, each.until_at) for each in job.refused_sites),
        inputs=tuple(_into(Input, each) for each in job.inputs),
        run_s=run_s,
        run_low_s=run_s if forecast.run_low_s is None else forecast.run_low_s,
        run_high_s=run_s if forecast.run_high_s is None else forecast.run_high_s,
        speed=forecast.speed_by_model,
        behind_s=forecast.behind_s,
        forms=tuple(_form(form) for form in job.forms),
        throughput=1.0,
        of=None,
    )


def _form(form: ProblemForm) -> Form:
    gpus = Accelerators(
        count=1 if form.shared else form.gpus_per_node,
        models=form.models,
        memory_mib=form.gpu_memory_mib,
        share_milli=form.gpus_per_node if form.shared else msgspec.UNSET,
    )
    size = Resources(gpus=gpus, cpus_milli=form.cpus_milli_per_node, memory_mib=form.memory_mib_per_node)
    return Form(nodes=form.nodes, resources=size, throughput=form.throughput, option=form.option)


def _told_form(form: Form) -> ProblemForm:
    size, gpus = form.resources, form.resources.gpus
    return ProblemForm(
        nodes=form.nodes,
        gpus_per_node=gpus.each,
        shared=bool(gpus.share_milli),
        cpus_milli_per_node=size.cpus_milli,
        memory_mib_per_node=size.memory_mib + size.shm_mib,
        models=gpus.models,
        gpu_memory_mib=gpus.memory_mib,
        throughput=form.throughput,
        option=form.option,
    )


def _pool(pool: told.ProblemPool) -> PoolView:
    free = tuple(_into(Shape, hosts, _HOSTS) for hosts in pool.free)
    return _into(
        PoolView,
        pool,
        _POOL,
        free=free,
        busy=tuple(_into(BusyView, work, _WORK, waits_as=_elastic(work.waits_as)) for work in pool.busy),
    )


def _elastic(work: told.ElasticWork | None) -> JobView | None:
    return None if work is None else _job(work.job, work.forecast)


def _offer(offer: told.ProblemOffer) -> OfferView:
    stock = _into(Stock, offer.stock) if offer.stock else msgspec.UNSET
    made = _into(Offer, offer, {}, shared=offer.shared or msgspec.UNSET, stock=stock)
    return _into(OfferView, offer, {}, offer=made)


# -- inside to outside ------------------------------------------------------------------------------------------------


def from_problem(problem: Problem) -> ProblemFile:
    """The file that holds a problem."""
    snapshot = problem.snapshot
    jobs = tuple(map(_told_job, snapshot.jobs))
    return ProblemFile(
        format=FORMAT,
        decision=problem.decision,
        snapshot=_into(
            told.ProblemSnapshot,
            snapshot,
            _turned(_SNAPSHOT),
            jobs=jobs,
            pools=tuple(_told_pool(pool) for pool in snapshot.pools),
            offers=tuple(_told_offer(offer) for offer in snapshot.offers),
            spend=tuple(_into(ProblemSpend, spend) for spend in snapshot.spend),
        ),
        rules=snapshot.rules,
        forecasts={job.id: _told_forecast(job) for job in snapshot.jobs},
        prices=problem.warm_prices,
        outside={row: _into(ProblemOutside, each) for row, each in problem.outside.items()},
        leads=tuple(_into(ProblemLead, each) for each in problem.leads),
    )


def _told_job(job: JobView) -> told.ProblemJob:
    return _into(
        told.ProblemJob,
        job,
        _turned(_JOB),
        refused_sites=tuple(RefusedSite(site=s, until_at=at) for s, at in job.refused),
        inputs=tuple(_into(InputData, each) for each in job.inputs),
        forms=tuple(_told_form(form) for form in job.forms),
    )


def _told_forecast(job: JobView) -> told.Forecast:
    return _into(told.Forecast, job, _turned(_FORECAST))


def _told_elastic(job: JobView | None) -> told.ElasticWork | None:
    return None if job is None else told.ElasticWork(job=_told_job(job), forecast=_told_forecast(job))


def _told_pool(pool: PoolView) -> told.ProblemPool:
    free = tuple(_into(FreeHosts, shape, _turned(_HOSTS)) for shape in pool.free)
    busy = tuple(
        _into(told.RunningWork, work, _turned(_WORK), waits_as=_told_elastic(work.waits_as))
        for work in pool.busy
    )
    return _into(told.ProblemPool, pool, _turned(_POOL), free=free, busy=busy)


def _told_offer(view: OfferView) -> told.ProblemOffer:
    known = {name: getattr(view.offer, name) for name in Offer.__struct_fields__}
    stock = _into(ProblemStock, view.offer.stock) if view.offer.stock else None
    return _into(told.ProblemOffer, view, {}, **(known | {"shared": bool(view.offer.shared), "stock": stock}))


def _turned(names: Mapping[str, str]) -> dict[str, str]:
    return {outside: inside for inside, outside in names.items()}


def _into(kind: type[S], source: object, names: Mapping[str, str] | None = None, /, **given: Any) -> S:
    """A record with the fields of another, some under other names (`names` maps the new record's to the source's), some given."""
    names = names or {}
    for name in kind.__struct_fields__:
        if name not in given:
            given[name] = getattr(source, names.get(name, name))
    return kind(**given)
