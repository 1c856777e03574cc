"""The catalogue is the only way to a metric, and logs keep secrets to themselves."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from federator.model.spans import trace_id
from federator.telemetry import CATALOGUE, Metrics, MetricType, configure_logging, get_logger


@pytest.fixture
def _restored() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def test_names_follow_the_convention_and_are_told_what_they_are() -> None:
    assert len({metric.name for metric in CATALOGUE}) == len(CATALOGUE)
    for metric in CATALOGUE:
        assert metric.name.startswith("federator_")
        assert metric.name.endswith("_total") == (metric.type is MetricType.COUNTER)
        assert metric.help.endswith(".")


def test_a_name_that_is_not_in_the_catalogue_or_of_another_type_is_refused() -> None:
    metrics = Metrics()
    with pytest.raises(KeyError):
        metrics.count("federator_unheard_of_total")
    with pytest.raises(KeyError):
        metrics.set("federator_turns_total", 1.0)


def test_two_registries_know_nothing_of_each_other() -> None:
    one, other = Metrics(), Metrics()
    one.count("federator_turns_total", winner="lp")
    assert one.value("federator_turns_total", winner="lp") == 1.0
    assert other.value("federator_turns_total", winner="lp") is None


@pytest.mark.usefixtures("_restored")
def test_lines_are_json_with_secrets_hidden_and_traces_without_local_values() -> None:
    stream = io.StringIO()
    configure_logging(as_json=True, stream=stream)
    password = "hunter2"  # a local value, which a trace with locals would show
    try:
        int(f"not a number: {len(password)}")
    except ValueError:
        get_logger("api").exception("failed", token="fed_abc", member="north")
    logging.getLogger("library").warning("plain %s", "words")
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (first["area"], first["member"], first["token"]) == ("api", "north", "[hidden]")
    assert "ValueError" in json.dumps(first)
    assert password not in stream.getvalue()
    assert second["event"] == "plain words"


@pytest.mark.usefixtures("_restored")
def test_the_level_is_that_of_the_setting() -> None:
    stream = io.StringIO()
    configure_logging(level="warning", stream=stream)
    get_logger("api").info("quiet")
    get_logger("api").warning("loud")
    assert "quiet" not in stream.getvalue()
    assert "loud" in stream.getvalue()
    with pytest.raises(ValueError, match="log level"):
        configure_logging(level="chatty")


@pytest.mark.usefixtures("_restored")
def test_a_line_about_one_job_names_its_trace() -> None:
    stream = io.StringIO()
    configure_logging(as_json=True, stream=stream)
    one, other = "job-01k742sg0013452znrksnf95fy", "job-01k742sg0013452znrksnf95fz"
    logging.getLogger("library").warning("stale: %s: gone", one)
    get_logger("api").warning("stale", job=one)
    get_logger("api").warning("a pair", job=one, other=other)
    get_logger("api").warning("no job")
    traces = [json.loads(line).get("trace_id") for line in stream.getvalue().splitlines()]
    assert traces == [f"{trace_id(one):032x}", f"{trace_id(one):032x}", None, None]
