"""The child process: warm, killed when late, replaced when dead, gone when its parent is gone."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from federator.model.plans import Plan
from federator.model.snapshot import Problem
from federator.ports import Solver
from federator.solving import child
from federator.solving.child import ChildSolver
from federator.solving.frames import STAGES, Ask, Reply, body_length, pack
from federator.solving.inline import InlineSolver
from federator.solving.worker import answer
from tests.support.waiting import PATIENCE_S, wait_until
from tests.support.worlds import NOW, a_job, a_pool, a_world

PROBLEM = a_world([a_job("one"), a_job("two", gpus=8)], [a_pool()])
GENEROUS_S = PATIENCE_S


async def ask(solver: Solver, problem: Problem = PROBLEM, limit_s: float = GENEROUS_S) -> Plan | None:
    """One decision with all stages."""
    return await solver.decide(problem, stages=STAGES, seed=0, limit_s=limit_s)


@pytest.fixture
async def solver() -> AsyncIterator[ChildSolver]:
    made = ChildSolver()
    yield made
    await made.close()


async def test_the_child_decides_as_the_inline_solver_does(solver: ChildSolver) -> None:
    assert await solver.start()
    answered = await ask(solver)
    assert answered == await ask(InlineSolver())
    assert answered is not None
    assert answered.actions


async def test_a_child_that_was_launched_beforehand_is_the_one_that_decides(solver: ChildSolver) -> None:
    await solver.launch()
    first = solver.pid
    assert first is not None
    await solver.launch()
    assert await ask(solver) is not None
    assert solver.pid == first


async def test_what_was_closed_launches_nothing(solver: ChildSolver) -> None:
    await solver.close()
    await solver.launch()
    assert solver.pid is None


async def test_the_child_is_persistent(solver: ChildSolver) -> None:
    assert await solver.start()
    first = solver.pid
    for _ in range(3):
        assert await ask(solver) is not None
    assert solver.pid == first
    assert solver.restarts == 0


async def test_a_late_child_is_killed_and_replaced(solver: ChildSolver) -> None:
    assert await solver.start()
    first = solver.pid
    assert first is not None
    os.kill(first, signal.SIGSTOP)
    assert await ask(solver, limit_s=0.2) is None
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)
    assert await solver.start()
    assert solver.pid != first
    assert await ask(solver) is not None


async def test_a_dead_child_costs_one_answer_and_is_replaced(solver: ChildSolver) -> None:
    assert await solver.start()
    assert solver.pid is not None
    os.kill(solver.pid, signal.SIGKILL)
    assert await ask(solver) is None
    assert await ask(solver) is not None
    assert solver.restarts == 1


async def test_a_spare_takes_the_place_of_one_that_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "SPARE_AFTER_S", 0.0)
    solver = ChildSolver(spare=True)
    assert await solver.start()
    assert await ask(solver) is not None
    first, spare = solver.pid, solver.spare_pid
    assert first is not None
    assert spare not in {first, None}
    os.kill(first, signal.SIGSTOP)
    assert await ask(solver, limit_s=0.2) is None
    assert solver.pid == spare
    assert await ask(solver) is not None
    assert solver.pid == spare
    assert solver.spare_pid not in {spare, None}, "there is another one now"
    both = [solver.pid, solver.spare_pid]
    await solver.close()
    for pid in both:
        assert pid is not None
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_a_spare_that_has_died_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "SPARE_AFTER_S", 0.0)
    solver = ChildSolver(spare=True)
    assert await ask(solver) is not None
    assert solver.pid is not None
    assert solver.spare_pid is not None
    for pid in (solver.spare_pid, solver.pid):
        os.kill(pid, signal.SIGKILL)
    answers = [await ask(solver) for _ in range(3)]
    await solver.close()
    assert answers[0] is None
    assert answers[-1] is not None


async def test_a_problem_that_cannot_be_decided_is_no_answer_and_no_death(solver: ChildSolver) -> None:
    assert await solver.start()
    first = solver.pid
    broken = a_world([a_job("odd", run_s=float("nan"), deadline_at=NOW)], [a_pool()])
    assert await ask(solver, broken) is None
    assert await ask(solver) is not None
    assert solver.pid == first


async def test_an_answer_that_is_no_plan_is_not_handed_on(
    solver: ChildSolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await solver.start()

    async def nonsense(_process: object) -> Reply:
        return Reply(number=1, plan=b"\xc1")

    monkeypatch.setattr(solver, "_read", nonsense)
    assert await ask(solver) is None
    assert solver.restarts == 1


async def test_a_child_that_cannot_be_started_is_an_answer_of_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    solver = ChildSolver()
    assert not await solver.start()
    assert await ask(solver) is None
    await solver.close()


async def test_close_ends_the_child_and_nothing_is_decided_afterwards() -> None:
    solver = ChildSolver()
    assert await solver.start()
    pid = solver.pid
    assert pid is not None
    await solver.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert await ask(solver) is None


def test_the_child_dies_with_a_parent_that_is_killed() -> None:
    program = (
        "import asyncio\n"
        "from federator.solving.child import ChildSolver\n"
        "async def main():\n"
        "    solver = ChildSolver()\n"
        "    assert await solver.start()\n"
        "    print(solver.pid, flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()

    def gone() -> bool:
        try:
            return Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
        except OSError:
            return True

    wait_until(gone, "the child to die with its parent")


def test_a_parent_that_does_not_decide_inline_never_loads_the_solver() -> None:
    program = "import sys, federator.solving.child; sys.exit(any(m.split('.')[0] in ('ortools', 'numpy') for m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_neither_side_has_semaphores_that_outlive_it() -> None:
    """Those of `multiprocessing` are files in /dev/shm, and whoever is killed leaves them there."""
    program = "import sys, federator.cli.serve, federator.app, federator.solving.worker, federator.simulation.policy_trial, federator_agent.commands; sys.exit('_multiprocessing' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_greedy_needs_no_solver() -> None:
    program = (
        "import sys, federator.planning.plans.greedy, federator.planning.plans.preview;"
        "sys.exit(any(m.split('.')[0] == 'ortools' for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_an_error_while_deciding_is_an_answer() -> None:
    told = answer(Ask(number=3, problem=b"\xc1", seed=0, stages=("greedy",)))
    assert told.number == 3
    assert not told.plan
    assert "DecodeError" in told.error


def test_frames_over_the_limit_are_refused_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("federator.solving.frames.MAX_FRAME_BYTES", 10)
    with pytest.raises(ValueError, match="over the limit"):
        pack(Reply(number=1, plan=bytes(100)))
    with pytest.raises(ValueError, match="over the limit"):
        body_length((11).to_bytes(4, "big"))


async def test_calls_queue_up(solver: ChildSolver) -> None:
    answers = await asyncio.gather(*(ask(solver) for _ in range(3)))
    assert answers[0] is not None
    assert answers == [answers[0]] * 3
