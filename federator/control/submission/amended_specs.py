"""What a job needs and where it may run, changed while it waits. Its spec never changes: the job has another one then. Pure."""

from collections.abc import Callable

from msgspec.structs import replace

from federator.kernel.errors import Conflict, Invalid
from federator.model.jobs import Job, JobSpec, JobStatus
from federator.wire import fields
from federator.wire.accelerators import MAX_GPU_MEMORY_MIB, read_model
from federator.wire.http import JobPatch
from federator.wire.sizes import MAX_MEMORY_MIB

NONE = "none"
PLACES = ("sites", "not_sites")
GPUS = ("models", "gpus", "gpu_memory")
SIZES = ("nodes", *GPUS, "cpus", "memory")
"""What forms may differ in."""
ANOTHER_FILE = "change its file, cancel it and submit it again"


def amends(patch: JobPatch) -> bool:
    """Whether a patch changes anything of this."""
    return any(getattr(patch, name) is not None for name in (*SIZES, *PLACES))


def amended(job: Job, spec: JobSpec, patch: JobPatch) -> JobSpec:
    """What a job runs, with other needs and places. Raises `Conflict` for one that does not wait, and `Invalid` with the field."""
    given = [name for name in (*SIZES, *PLACES) if getattr(patch, name) is not None]
    if job.status not in (JobStatus.PENDING, JobStatus.HELD):
        raise Conflict(
            f"{job.label} is {job.status}: what a job needs and where it may run are changed while it waits",
            remedy="hold it first, and release it afterwards",
        )
    for name in given:
        because = _fixed(job, spec, name)
        if because:
            raise Invalid(f"{job.label} {because}", field=f"$.{name}", remedy=ANOTHER_FILE)
    return _placed(_sized(spec, patch), patch)


def _fixed(job: Job, spec: JobSpec, name: str) -> str:
    """Why that is not changed of this job; empty: it is."""
    if name in PLACES:
        return ""
    gpus = spec.resources.gpus
    if spec.forms:
        return "may run in several forms"
    if name in GPUS and not gpus.count:
        return "asks for no GPUs"
    if name == "gpus" and gpus.share_milli:
        return "asks for a part of a GPU"
    if name in ("nodes", "gpus") and job.saved_s:
        return "goes on from a checkpoint, which was saved at this size"
    return ""


def _sized(spec: JobSpec, patch: JobPatch) -> JobSpec:
    asked, gpus = spec.resources, spec.resources.gpus
    if patch.models is not None:
        gpus = replace(gpus, models=_words(patch.models, "$.models", read_model))
    if patch.gpus is not None:
        gpus = replace(gpus, count=patch.gpus)
    if patch.gpu_memory is not None:
        gpus = replace(gpus, memory_mib=_mib(patch.gpu_memory, "$.gpu_memory", MAX_GPU_MEMORY_MIB))
    if patch.cpus is not None:
        asked = replace(asked, cpus_milli=round(1000 * patch.cpus))
    if patch.memory is not None:
        asked = replace(asked, memory_mib=_mib(patch.memory, "$.memory", MAX_MEMORY_MIB))
    return replace(spec, nodes=patch.nodes or spec.nodes, resources=replace(asked, gpus=gpus))


def _placed(spec: JobSpec, patch: JobPatch) -> JobSpec:
    place = spec.placement
    if patch.sites is not None:
        place = replace(place, sites=_words(patch.sites, "$.sites", fields.name))
    if patch.not_sites is not None:
        place = replace(place, not_sites=_words(patch.not_sites, "$.not_sites", fields.name))
    if place.sites and set(place.sites) <= set(place.not_sites):
        field = "$.sites" if patch.not_sites is None else "$.not_sites"
        raise Invalid("no site is left", field=field, remedy="name a site that is not excluded, or give both")
    return replace(spec, placement=place)


def _words(text: str, field: str, read: Callable[[object, str], str]) -> tuple[str, ...]:
    words = () if text == NONE else text.split("|")
    return tuple(dict.fromkeys(read(word.strip(), field) for word in words))


def _mib(text: str, field: str, high_mib: int) -> int:
    return 0 if text == NONE else fields.size_mib(text, field, high_mib=high_mib)
