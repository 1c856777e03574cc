"""The table from error to answer: every named situation has a status, and ours give nothing away."""

from http import HTTPStatus

import pytest

from federator.api.problems import STATUS, problem_of, problem_response
from federator.kernel import errors


def named(family: type[errors.FederatorError]) -> list[type[errors.FederatorError]]:
    children = [child for child in family.__subclasses__() if child.__module__ == errors.__name__]
    return [family, *(each for child in children for each in named(child))]


def made(kind: type[errors.FederatorError]) -> errors.FederatorError:
    return (
        kind("some-key")
        if kind is errors.StoreConflict
        else kind("what is wrong", field="$.x", remedy="do y")
    )


@pytest.mark.parametrize("kind", named(errors.FederatorError), ids=lambda kind: kind.__name__)
def test_every_situation_has_the_status_of_its_class_or_family(kind: type[errors.FederatorError]) -> None:
    problem = problem_of(made(kind))
    if issubclass(kind, errors.Damaged):
        assert problem.status == 503, "it is ours, not the fault of whoever asks"
    elif issubclass(kind, errors.Permanent | errors.Conflict):
        assert 400 <= problem.status < 500
    if issubclass(kind, errors.Bug):
        assert problem.status == 500
    assert problem.title == HTTPStatus(problem.status).phrase
    if issubclass(kind, errors.Permanent | errors.Conflict | errors.Transient):
        assert problem.code == kind.code


def test_a_situation_without_an_entry_has_that_of_its_nearest_family() -> None:
    assert errors.ClientIdReused not in STATUS
    assert problem_of(errors.ClientIdReused("x")).status == 409
    assert problem_of(errors.Unavailable("x")).status == 503


def test_field_remedy_and_delay_are_passed_on() -> None:
    problem = problem_of(errors.TooMany("full", field="$.a", remedy="wait", retry_after_s=2.5))
    assert (problem.field, problem.remedy, problem.retry_after_s) == ("$.a", "wait", 2.5)
    assert problem_response(problem).headers["Retry-After"] == "3"


@pytest.mark.parametrize("error", [errors.Bug("inside"), errors.BadTransition("inside"), KeyError("inside")])
def test_of_our_own_faults_a_client_learns_nothing(error: Exception) -> None:
    problem = problem_of(error)
    assert problem.status == 500
    assert "inside" not in repr(problem)
