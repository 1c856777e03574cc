"""Problem and plan files: nothing is lost on the way out and back, and what is wrong with one is told with its path and a remedy."""

import zlib
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from federator.kernel.errors import Invalid, TooLarge
from federator.model.capacity import Offer, Stock
from federator.model.jobs import Accelerators, Form, Input, Resources
from federator.model.snapshot import BusyView, JobView, OfferView, PoolView, Problem, SpendView
from federator.wire import solver_files
from federator.wire.solver_files import from_problem, read_plan, read_problem, write
from federator.wire.solver_plan import Assignment, Objective, PlanFile, Range
from tests.support.worlds import a_job, a_world, worlds_at_random

at_random = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@at_random
@given(problem=worlds_at_random())
def test_a_problem_comes_back_as_it_was(problem: Problem) -> None:
    assert read_problem(write(from_problem(problem))) == problem
    assert read_problem(write(from_problem(problem), packed=True)) == problem


def test_a_file_is_the_same_bytes_whenever_it_is_written() -> None:
    file = from_problem(a_world([a_job("a", speed={"H100": 2.0, "A100": 1.0}, labels={"b": "1", "a": "2"})]))
    turned = from_problem(
        a_world([a_job("a", speed={"A100": 1.0, "H100": 2.0}, labels={"a": "2", "b": "1"})])
    )
    assert write(file, packed=True) == write(turned, packed=True)


ODD: dict[type, Any] = {str: "odd", int: 7, float: 3.5, bool: True, Stock: Stock("odd", 7, 3, 2, "odd")}


def _filled(kind: type[msgspec.Struct], **given: Any) -> Any:
    """A record in which every field has a value of its type that is not its default."""
    for field in msgspec.structs.fields(kind):
        if field.name not in given:
            given[field.name] = _odd(field.type, field.default)
    return kind(**given)


def _odd(kind: Any, default: object) -> Any:
    text = str(kind)
    if default is True:
        return False
    if text.startswith("tuple[tuple"):
        return (("odd", 3.5),)
    if text.startswith("tuple"):
        return ("odd",)
    if text.startswith("dict"):
        return {"odd": 3.5 if "float" in text else 7 if "int" in text else "odd"}
    for plain, value in ODD.items():
        if kind is plain or kind in (plain | None, plain | msgspec.UnsetType):
            return value
    raise AssertionError(f"no odd value for {text}")


def test_every_field_that_planning_reads_is_in_the_file() -> None:
    forms = (
        Form(
            nodes=7,
            resources=_filled(Resources, gpus=_filled(Accelerators, share_milli=msgspec.UNSET), shm_mib=0),
            throughput=3.5,
            option=7,
        ),
    )
    made = {"throughput": 1.0, "of": None}  # by `as_form` alone
    job = _filled(JobView, spot_policy="spot", inputs=(_filled(Input),), forms=forms, **made)
    busy = _filled(BusyView, waits_as=job)
    pool = _filled(PoolView, market="spot", free=(), busy=(busy,))
    offer = _filled(OfferView, offer=_filled(Offer, market="spot"))
    problem = a_world([job], [pool], [offer], (), [_filled(SpendView)])
    problem = msgspec.convert(msgspec.to_builtins(problem), Problem)  # enumerations, as they are written
    assert read_problem(write(from_problem(problem))) == problem


def _changed(*path: str | int, to: object) -> bytes:
    """A good file in which one value is another."""
    file = msgspec.json.decode(write(from_problem(a_world([a_job("job-a")]))))
    inner = file
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = to
    return msgspec.json.encode(file)


@pytest.mark.parametrize(
    ("content", "field", "message", "remedy"),
    [
        (b"no", "$", "not JSON", "solver-files.md"),
        (b"\xff\xfe", "$", "not JSON", "solver-files.md"),
        (b"{}", "$.format", "must be federator-problem/1, not nothing", "solver-files.md"),
        (_changed("format", to="federator-problem/2"), "$.format", "not federator-problem/2", ""),
        (_changed("snapshot", "jobz", to=[]), "$.snapshot.jobz", "no field", "did you mean jobs"),
        (_changed("snapshot", "jobs", 0, "nodes", to=0), "$.snapshot.jobs[0].nodes", "from 1 to", ""),
        (_changed("snapshot", "jobs", 0, "nodes", to="2"), "$.snapshot.jobs[0].nodes", "whole number", ""),
        (_changed("snapshot", "jobs", 0, "nodes", to=10**9), "$.snapshot.jobs[0].nodes", "to 4096", ""),
        (
            _changed("snapshot", "jobs", 0, "forms", to=[{"nodes": 4097}]),
            "$.snapshot.jobs[0].forms[0].nodes",
            "to 4096",
            "",
        ),
        (
            _changed("snapshot", "jobs", 0, "forms", to=[{"throughput": 1e-9}]),
            "$.snapshot.jobs[0].forms[0].throughput",
            "from 1e-06 to",
            "",
        ),
        (
            _changed("snapshot", "jobs", 0, "forms", to=[{}] * 16),
            "$.snapshot.jobs[0].forms",
            "at most 15",
            "",
        ),
        (
            _changed("snapshot", "pools", to=[{"site": "s", "pool": "p", "member": "m", "nodes": 10**9}]),
            "$.snapshot.pools[0].nodes",
            "to 100000",
            "",
        ),
        (_changed("snapshot", "taken_at", to=None), "$.snapshot.taken_at", "is missing", ""),
        (_changed("forecasts", to={}), "$.forecasts.job-a", "is missing", "how long the job runs"),
        (_changed("forecasts", "job-b", to={"run_s": 1}), "$.forecasts.job-b", "no job", "remove it"),
        (_changed("rules", to=[{"type": "wish"}]), "$.rules[0].type", "wish", "write filter"),
        (
            _changed("rules", to=[{"type": "preempt", "policy": "p", "who": {"q": 1}, "victims": {}}]),
            "$.rules[0].who.q",
            "no field",
            "",
        ),
        (
            _changed("snapshot", "pools", to=[{"site": "s", "pool": "p", "member": "m", "free": [{}, {}]}]),
            "$.snapshot.pools[0].free",
            "more hosts than",
            "write each host once",
        ),
        (_changed("snapshot", "taken_at", to=1e18), "$.snapshot.taken_at", "to 2", ""),
        (
            _changed("snapshot", "jobs", 0, "priced_gpus", to=1e300),
            "$.snapshot.jobs[0].priced_gpus",
            "to 1",
            "",
        ),
        (
            _changed("snapshot", "jobs", 0, "memory_mib_per_node", to=2**63),
            "$.snapshot.jobs[0].memory_mib_per_node",
            "to 1000000000000",
            "",
        ),
        (
            _changed(
                "rules", to=[{"type": "guarantee", "policy": "p", "queue": "q", "gpus": 1, "weight": 0}]
            ),
            "$.rules[0].weight",
            "above 0",
            "leave it out",
        ),
        (
            _changed("rules", to=[{"type": "filter", "policy": "p", "effect": "allow", "beyond": True}]),
            "$.rules[0].beyond",
            "filters that deny",
            "what it allows",
        ),
        (b"\x1f\x8bno", "$", "cannot be unpacked", "gzip"),
        (zlib.compress(b"{}" * 99, wbits=31)[:-9], "$", "is cut off", "the whole file"),
    ],
)
def test_what_is_wrong_is_told_with_its_path_and_a_remedy(
    content: bytes, field: str, message: str, remedy: str
) -> None:
    with pytest.raises(Invalid) as raised:
        read_problem(content)
    assert raised.value.field == field
    assert message in raised.value.describe()
    assert raised.value.remedy
    assert remedy in raised.value.remedy


def test_a_job_that_is_there_twice_is_refused() -> None:
    twice = from_problem(a_world([a_job("job-a"), a_job("job-a")]))
    with pytest.raises(Invalid, match="'job-a' is listed twice"):
        read_problem(write(twice))


def test_what_unpacks_to_more_than_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver_files, "MOST_BYTES", 1000)
    with pytest.raises(TooLarge):
        read_problem(zlib.compress(b" " * 100_000, wbits=31))


def test_a_plan_comes_back_as_it_was() -> None:
    when = Range(low_at=1.0, middle_at=2.0, high_at=3.0)
    plan = PlanFile(
        format="federator-plan/1",
        taken_at=1.0,
        objective=Objective(total_usd=2.5, wait_usd=2.5),
        assignments=(Assignment(job="a", does="wait", start=when, finish=when, start_bucket=3),),
    )
    assert read_plan(write(plan)) == read_plan(write(plan, packed=True)) == plan


def test_a_plan_is_not_a_problem() -> None:
    with pytest.raises(Invalid, match="must be federator-plan/1, not federator-problem/1"):
        read_plan(write(from_problem(a_world())))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"hello",
        b'{"format": "federator-plan/1", "objective": 1{',
        b'{"format": "federator-plan/1"',
        b"\xff",
    ],
)
def test_what_is_no_json_is_said_to_be_none(text: bytes) -> None:
    for read in (read_plan, read_problem):
        with pytest.raises(Invalid, match="this is not JSON"):
            read(text)
