"""`federator solver`: files in, files out, and an exit code that a script can act on."""

import gzip
import json
from pathlib import Path

import msgspec
import pytest

from federator.solving.decide import decide
from federator.wire.solver_files import from_problem, read_plan, read_problem, write
from tests.support.fake_dispatcher import FakeDispatcher
from tests.support.worlds import HOUR, NOW, a_job, a_pool, a_world, an_offer, bursting
from tests.unit.cli.answers import TIME
from tests.unit.cli.conftest import Command

PROBLEM = a_world(
    [a_job("first", gpus=4), a_job("due", gpus=4, deadline_at=NOW + 1.2 * HOUR)],
    [a_pool(nodes=1)],
    [an_offer()],
    [bursting()],
)


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    path = tmp_path / "problem.json"
    path.write_bytes(write(from_problem(PROBLEM)))
    return path


@pytest.mark.parametrize("name", ["plan.json", "plan.json.gz"])
def test_what_is_run_passes_the_check(federator: Command, problem: Path, tmp_path: Path, name: str) -> None:
    plan = tmp_path / name
    assert federator("solver", "run", str(problem), "-o", str(plan), "--certify", "--seed", "3").code == 0
    content = plan.read_bytes()
    told = json.loads(gzip.decompress(content) if name.endswith(".gz") else content)
    assert told["seed"] == 3
    assert told["certificate"]["model_usd"] > 0.0
    assert [stage["stage"] for stage in told["stages"]] == ["greedy", "lp"]
    assert all(stage["wall_s"] > 0.0 for stage in told["stages"])
    checked = federator("solver", "check", str(problem), str(plan))
    assert checked.code == 0, checked.out
    assert "valid" in checked.out
    assert "as the plan says" in checked.out
    assert "decision gap 0.00 % over the model's bound" in checked.out
    assert "no plan costs less than" in checked.out


def test_without_a_file_the_plan_is_printed(federator: Command, problem: Path) -> None:
    ran = federator("solver", "run", str(problem), "--stages", "greedy")
    assert [stage.stage for stage in read_plan(ran.out.encode()).stages] == ["greedy"]


def test_a_violation_is_told_in_words_and_by_the_exit_code(
    federator: Command, problem: Path, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.json"
    federator("solver", "run", str(problem), "-o", str(plan))
    told = json.loads(plan.read_bytes())
    for each in told["assignments"]:
        if each["does"] == "wait":
            each |= {"does": "start", "site": "home", "pool": "gpu", "members": ["home-1"]}
    plan.write_text(json.dumps(told))
    checked = federator("solver", "check", str(problem), str(plan))
    assert checked.code == 1
    assert "not valid: 1 violation" in checked.out
    assert "has no room for 1 x (4 GPUs" in checked.out
    answer = json.loads(federator("solver", "check", str(problem), str(plan), "-o", "json").out)
    assert answer["valid"] is False
    assert answer["findings"][0]["promise"] == 4


def test_a_wrong_objective_alone_fails_the_check(federator: Command, problem: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    federator("solver", "run", str(problem), "-o", str(plan))
    told = json.loads(plan.read_bytes())
    told["objective"]["total_usd"] += 5.0
    plan.write_text(json.dumps(told))
    checked = federator("solver", "check", str(problem), str(plan))
    assert checked.code == 1
    assert "not what the plan says" in checked.out


def test_a_false_certificate_alone_fails_the_check(federator: Command, problem: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    federator("solver", "run", str(problem), "-o", str(plan))
    assert "none: nothing is proven" in federator("solver", "check", str(problem), str(plan)).out
    told = json.loads(plan.read_bytes())
    told["certificate"] = {"bound_usd": 1e9, "gap": -1.0}
    plan.write_text(json.dumps(told))
    checked = federator("solver", "check", str(problem), str(plan))
    assert checked.code == 1
    assert "not what the plan says: bound_usd, gap" in checked.out
    assert "-100" not in checked.out
    answer = json.loads(federator("solver", "check", str(problem), str(plan), "-o", "json").out)
    assert answer["differences"] == ["certificate.bound_usd", "certificate.gap"]
    assert answer["certificate"]["gap"] == 0.0


def test_bad_input_is_told_with_its_field(federator: Command, problem: Path, tmp_path: Path) -> None:
    told = json.loads(problem.read_bytes())
    told["snapshot"]["jobs"][0]["node"] = 2
    problem.write_text(json.dumps(told))
    ran = federator("solver", "run", str(problem))
    assert ran.code == 2
    assert f"$.snapshot.jobs[0].node: {problem}: there is no field 'node' (did you mean nodes?)" in ran.err
    assert f"$.format: {problem}: must be" in federator("solver", "check", str(problem), str(problem)).err
    assert federator("solver", "run", str(tmp_path / "none.json")).code == 2
    assert "--stages: no stage 'magic'" in federator("solver", "run", str(problem), "--stages", "magic").err


def test_a_recorded_decision_gives_its_problem(
    federator: Command, fake: FakeDispatcher, tmp_path: Path
) -> None:
    answer = {"problem": msgspec.to_builtins(PROBLEM), "plan": msgspec.to_builtins(decide(PROBLEM))}
    fake.answer("GET /v1/decisions/dec-1", answer, headers=TIME)
    path = tmp_path / "problem.json.gz"
    assert federator("decisions", "show", "dec-1", "--problem", str(path)).code == 0
    assert read_problem(path.read_bytes()) == PROBLEM
