"""A file with `steps`: jobs that follow each other and hand data on, as one submission.

Every step is a job file; what stands beside `steps` holds for all of them that do not say otherwise. Steps name each other, and their jobs are called `PIPELINE.STEP`. All of it is
checked as a whole before anything is submitted: names, circles, and outputs that nobody makes.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from federator.kernel.errors import FederatorError, Invalid
from federator.kernel.globs import may_hold
from federator.model.arrays import without
from federator.model.jobs import Follows, JobSpec
from federator.wire import fields
from federator.wire.inputs import check_collected
from federator.wire.jobfile import JobRequest, read_job
from federator.wire.nearest import nearest

MOST_STEPS = 32
"""They are one transaction: up to three rows each, and stores take 120 at once."""
KEY = "steps"
OF_STEPS = ("run", "command", "groups", "array", "after", "inputs")
"""What stands in a step alone,"""
OF_ALL = ("name", "client_id")
"""what stands beside `steps` alone,"""
OF_NONE = ("every", "overlap", KEY)
"""and what neither has."""


class Step(NamedTuple):
    """One job of a pipeline, which names those that it follows as jobs are named."""

    name: str
    request: JobRequest
    own: frozenset[str] = frozenset()
    """The fields that it says itself."""

    def field(self, field: str | None) -> str:
        """Where in the file of the pipeline a field of its job stands."""
        key = (field or "$").removeprefix("$").lstrip(".").split(".")[0].split("[")[0]
        if key and key not in self.own and key not in OF_STEPS:
            return field or "$"
        return f"$.{KEY}.{self.name}{(field or '$')[1:]}"


class StepsRequest(NamedTuple):
    """A pipeline as it was asked for: its steps, each behind those that it follows."""

    name: str
    steps: tuple[Step, ...]
    client_id: str | None = None


def has_steps(document: object) -> bool:
    """Whether it is the file of a pipeline."""
    return isinstance(document, dict) and KEY in document


def read_steps(document: object, *, now: float) -> StepsRequest:
    """A decoded file with `steps` into a request; `now` resolves `finish_within`. Raises `Invalid` or `NotSupported` naming the field."""
    assert isinstance(document, dict)
    written = _checked(document)
    if document.get("name") is None:
        raise Invalid(
            "is missing", field="$.name", remedy="write one: the jobs of its steps are called NAME.STEP"
        )
    name = fields.name(document["name"], "$.name")
    steps = {each: _read(document, name, each, written[each], now) for each in written}
    for step in steps.values():
        _check_names(step, steps)
    for step in steps.values():
        _check_data(step, steps)
    ordered = tuple(_with_job_names(name, step, steps) for step in _in_order(steps))
    client_id = document.get("client_id")
    if client_id is not None:
        client_id = fields.text(client_id, "$.client_id", limit=200)
    return StepsRequest(name, ordered, client_id)


def _checked(document: Mapping[str, Any]) -> dict[str, Any]:
    """The steps as they are written. Raises `Invalid` for what stands at the wrong place."""
    written = document.get(KEY)
    remedy = "write for example 'steps: {prepare: {run: python prepare.py}, train: {…}}'"
    if not isinstance(written, dict) or not written:
        raise Invalid("is not a mapping of steps by name", field=f"$.{KEY}", remedy=remedy)
    if len(written) > MOST_STEPS:
        raise Invalid(
            f"has {len(written)} steps; a pipeline has at most {MOST_STEPS}",
            field=f"$.{KEY}",
            remedy="make an array of steps that are alike, or several pipelines, of which one follows the other by its jobs' ids",
        )
    for key in (*OF_STEPS, *OF_NONE[:2]):
        if key in document:
            remedy = (
                "write it in a step"
                if key in OF_STEPS
                else "submit the pipeline from a scheduler of workflows"
            )
            raise Invalid("does not go with steps", field=f"$.{key}", remedy=remedy)
    for key, step in written.items():
        if "." in fields.name(key, f"$.{KEY}"):
            raise Invalid(f"{key!r} has a dot", field=f"$.{KEY}", remedy="use letters, digits, '_' and '-'")
        if not isinstance(step, dict):
            raise Invalid("is not a job file", field=f"$.{KEY}.{key}", remedy="write at least 'run: …'")
        for field in (*OF_ALL, *OF_NONE):
            if field in step:
                raise Invalid(
                    "does not go with a step",
                    field=f"$.{KEY}.{key}.{field}",
                    remedy="the step's name is its key" if field == "name" else "leave it out",
                )
    return written


def _read(document: Mapping[str, Any], pipeline: str, name: str, written: dict[str, Any], now: float) -> Step:
    """One step, which still names others as its file does."""
    shared = {key: value for key, value in document.items() if key not in (KEY, *OF_ALL)}
    own = {key: value for key, value in written.items() if value is not None}
    step = Step(name, JobRequest(spec=JobSpec(name)), frozenset(own))
    try:
        fields.name(f"{pipeline}.{name}", "$")
        request = read_job({**shared, **own, "name": f"{pipeline}.{name}"}, now=now)
    except FederatorError as error:
        raise type(error)(error.message, field=step.field(error.field), remedy=error.remedy) from None
    return step._replace(request=request)


def _check_names(step: Step, steps: Mapping[str, Step]) -> None:
    """Raise `Invalid` for one that it follows and that there is not."""
    for name in step.request.after:
        where = step.field("$.inputs" if name in _read_from(step) else "$.after")
        if name == step.name:
            raise Invalid("the step would follow itself", field=where, remedy="leave it out")
        if name not in steps and not fields.is_job_id(name):
            near = nearest(name, steps)
            raise Invalid(
                f"there is no step {name!r}",
                field=where,
                remedy=f"did you mean {near}?"
                if near
                else f"the steps are {', '.join(steps)}; name a job outside by its id",
            )


def _check_data(step: Step, steps: Mapping[str, Step]) -> None:
    """Raise `Invalid` for an output that nobody makes, and for a task without one to follow."""
    for source in step.request.spec.inputs_from or ():
        if source.job in steps:
            makers = (
                each.name for each in steps.values() if may_hold(each.request.spec.outputs, source.output)
            )
            maker = next(makers, "") if source.output else ""
            patterns = steps[source.job].request.spec.outputs
            check_collected(source, source.job, patterns, step.field("$.inputs"), maker)
    for name, how in zip(step.request.after, step.request.after_how, strict=False):
        if how is Follows.EACH and name in steps:
            mine, there = step.request.array, steps[name].request.array
            if not mine or without(((0, len(mine)),), mine.places(there)):
                raise Invalid(
                    f"{name} has not all indices of {step.name}" if mine else f"{step.name} is not an array",
                    field=step.field("$.after"),
                    remedy="give both steps the same array",
                )


def _in_order(steps: Mapping[str, Step]) -> list[Step]:
    """Each behind those that it follows, else as in the file. Raises `Invalid` for steps that go round in a circle."""
    ordered: dict[str, Step] = {}
    while len(ordered) < len(steps):
        ready = [
            each for each in steps.values() if each.name not in ordered and not _waits(each, steps, ordered)
        ]
        if not ready:
            circle = _circle(steps, ordered)
            raise Invalid(
                f"the steps follow each other in a circle: {' after '.join((*circle, circle[0]))}",
                field=steps[circle[0]].field("$.after"),
                remedy="leave one of them out",
            )
        ordered |= {each.name: each for each in ready}
    return list(ordered.values())


def _waits(step: Step, steps: Mapping[str, Step], ordered: Mapping[str, Step]) -> str | None:
    """A step that it follows and that is not in order yet."""
    return next((name for name in step.request.after if name in steps and name not in ordered), None)


def _circle(steps: Mapping[str, Step], ordered: Mapping[str, Step]) -> Sequence[str]:
    """Steps of which each follows the next, and the last the first."""
    seen: list[str] = []
    name: str | None = next(each for each in steps if each not in ordered)
    while name is not None and name not in seen:
        seen.append(name)
        name = _waits(steps[name], steps, ordered)
    return seen[seen.index(name or "") :]


def _with_job_names(pipeline: str, step: Step, steps: Iterable[str]) -> Step:
    """With the names of jobs in place of those of steps."""
    jobs = {name: f"{pipeline}.{name}" for name in steps}
    request = step.request
    sources = tuple(
        replace(each, job=jobs.get(each.job, each.job)) for each in request.spec.inputs_from or ()
    )
    spec = replace(request.spec, inputs_from=sources) if sources else request.spec
    after = tuple(jobs.get(name, name) for name in request.after)
    return step._replace(request=replace(request, spec=spec, after=after))


def _read_from(step: Step) -> set[str]:
    return {each.job for each in step.request.spec.inputs_from or ()}
