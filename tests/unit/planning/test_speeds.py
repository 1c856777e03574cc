"""Speeds by GPU model: declared, and corrected by what runs on several of them took."""

import math
from random import Random
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.planning.scheduling.forecast import leaning
from federator.planning.scheduling.speeds import Speeds, in_words, learned_speeds

MODELS = ("A100", "H100", "L4")
SAID = {"A100": 1.0, "H100": 2.0}
RUNS = st.lists(st.tuples(st.sampled_from(MODELS), st.floats(-2.0, 2.0)), max_size=20)
DECLARED = st.dictionaries(st.sampled_from(MODELS), st.floats(0.1, 10.0))


def alike(**hours: float) -> list[tuple[str, float]]:
    """Four runs of so long on each model."""
    return [(model, math.log(each)) for model, each in hours.items() for _ in range(4)]


def test_a_ratio_of_speeds_is_measured_and_the_reference_keeps_its_own() -> None:
    found = learned_speeds(SAID, alike(A100=1.0, H100=1.0))
    assert found.on("A100") == 1.0
    assert found.on("H100") == pytest.approx(1.0, rel=0.06)
    assert found.runs == {"A100": 4, "H100": 4}
    assert learned_speeds({}, alike(A100=1.0, L4=4.0)).on("L4") == pytest.approx(0.25, rel=0.03)


def test_nothing_known_is_speed_one() -> None:
    assert learned_speeds({}).on("H100") == 1.0


def test_one_run_on_each_is_not_believed_as_much_as_many() -> None:
    one = learned_speeds(SAID, alike(A100=1.0, H100=1.0)[::4]).on("H100")
    four = learned_speeds(SAID, alike(A100=1.0, H100=1.0)).on("H100")
    assert 2.0 > one > four > 1.0


def test_runs_that_differ_among_themselves_are_believed_less() -> None:
    unlike = [("A100", -0.8), ("A100", 0.8), ("H100", -0.8), ("H100", 0.8)]
    like = [("A100", 0.0), ("A100", 0.0), ("H100", 0.0), ("H100", 0.0)]
    assert learned_speeds(SAID, unlike).on("H100") > 1.2 * learned_speeds(SAID, like).on("H100")


def test_where_nothing_is_declared_runs_are_believed_more() -> None:
    runs = alike(A100=1.0, H100=0.5)[::4]
    assert learned_speeds({}, runs).on("H100") > learned_speeds({"A100": 1.0, "H100": 1.0}, runs).on("H100")


def test_others_tell_something_of_a_new_name_and_those_of_its_owner_more() -> None:
    logs = {"A100": 0.0, "H100": math.log(3.0)}
    stranger, owner = (learned_speeds({}, (), [(logs, own)] * 3).on("H100") for own in (False, True))
    assert 1.3 < stranger < owner < 3.0
    assert learned_speeds({}, alike(A100=1.0), [(logs, True)] * 3).on("H100") == owner
    both = learned_speeds({}, alike(A100=1.0, H100=1.0), [(logs, True)] * 3).on("H100")
    assert both == pytest.approx(1.0, abs=0.1), "what a name does itself counts for more"


def test_others_that_agree_with_what_is_declared_change_nothing() -> None:
    """Those speeds may be of any unit: only their ratio is known."""
    logs = {"A100": 1.0, "H100": 1.0 + math.log(2.0)}
    assert learned_speeds(SAID, (), [(logs, True)] * 20).factors == SAID


@pytest.mark.parametrize(
    ("runs", "by", "off", "before"), [(3, 0.002, 0.031, 0.026), (10, 0.003, 0.02, 0.014)]
)
def test_speeds_that_are_declared_right_hardly_move(runs: int, by: float, off: float, before: float) -> None:
    """As in the synthetic family: names are off by e^±0.4, their runs by e^±0.1. What is believed of a ratio by chance is the price of learning."""
    said = {"T4": 0.12, "L4": 0.25, "L40S": 0.5, "A100": 0.65, "H100": 1.0}
    logs = {model: math.log(speed) for model, speed in said.items()}
    moves, errors, unlearned = [], [], []
    for seed in range(200):
        random = Random(seed)
        name = random.gauss(0.0, 0.4)
        own = [(model, random.gauss(name - log, 0.1)) for model, log in logs.items() for _ in range(runs)]
        found = {model: math.log(learned_speeds(said, own).on(model)) for model in said}
        assert found["H100"] == 0.0
        shift = leaning([log_s + found[model] for model, log_s in own]).shift
        moves += [abs(found[model] - logs[model]) for model in said if model != "H100"]
        errors += [shift - found[model] - (name - logs[model]) for model in said]
        unlearned.append(leaning([log_s + logs[model] for model, log_s in own]).shift - name)
    assert fmean(moves) == pytest.approx(by, abs=0.001)
    assert math.hypot(*errors) / math.sqrt(len(errors)) == pytest.approx(off, abs=0.003)
    assert math.hypot(*unlearned) / math.sqrt(len(unlearned)) == pytest.approx(before, abs=0.003)


def test_a_declared_speed_stands_until_runs_contradict_it() -> None:
    """Runs that differ by a tenth among themselves say nothing of a speed that is a twentieth off, and all of one that is half off."""
    took = [("A100", 0.1), ("A100", -0.1), ("H100", 0.1), ("H100", -0.1)]
    assert learned_speeds({"A100": 1.0, "H100": 1.05}, took).on("H100") == 1.05
    assert learned_speeds({"A100": 1.0, "H100": 1.5}, took).on("H100") < 1.2


def test_corrections_are_told_with_what_they_are_from() -> None:
    found = learned_speeds(SAID, alike(A100=1.0, H100=1.0))
    assert (
        in_words(found, SAID)
        == f"on H100 at speed {found.on('H100'):.3g}, not the 2 declared, as 4 runs of that name took"
    )
    logs = {"A100": 0.0, "H100": math.log(3.0)}
    assert "1, for none is declared, as other work of its owner and queue took" in in_words(
        learned_speeds({}, (), [(logs, True)]), {}
    )
    assert not in_words(Speeds(SAID), SAID)
    assert in_words(Speeds({f"M{number}": 2.0 for number in range(9)}), {}).count("; ") == 2


@given(DECLARED, RUNS, st.floats(-3.0, 3.0))
def test_what_all_runs_share_is_no_speed(
    declared: dict[str, float], runs: list[tuple[str, float]], longer: float
) -> None:
    """An estimate that is wrong changes no speed: that is the estimate's correction alone."""
    shifted = [(model, log_s + longer) for model, log_s in runs]
    found, same = learned_speeds(declared, runs), learned_speeds(declared, shifted)
    assert dict(same.factors) == pytest.approx(dict(found.factors), rel=0.011)


@given(DECLARED, st.sampled_from(MODELS), st.lists(st.floats(-2.0, 2.0), max_size=20))
def test_runs_on_one_model_change_no_speed(declared: dict[str, float], model: str, logs: list[float]) -> None:
    assert learned_speeds(declared, [(model, log_s) for log_s in logs]).factors == declared


@given(st.floats(0.2, 5.0), st.floats(0.2, 5.0), st.integers(1, 30))
def test_a_speed_lies_between_the_declared_and_the_measured(said: float, true: float, runs: int) -> None:
    took = [("A100", 0.0), ("H100", -math.log(true))] * runs
    found = learned_speeds({"A100": 1.0, "H100": said}, took)
    keeps, moves = ("A100", "H100") if abs(math.log(found.on("A100"))) < 1e-9 else ("H100", "A100")
    assert keeps == "A100"
    assert min(said, true) * 0.99 <= found.on(moves) <= max(said, true) * 1.01
