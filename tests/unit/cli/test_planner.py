"""Commands that plan have the compiled planner before they begin, and say so where it has to be compiled."""

import ast
import asyncio
from collections.abc import Coroutine
from pathlib import Path

import pytest

import federator.cli
from federator import app
from federator.cli import planner, serve
from federator.kernel.errors import Unavailable
from federator.planning import kernels
from federator.planning.kernels import cache
from tests import bench
from tests.bench import solver as solver_bench
from tests.lab import table
from tests.lab.faults import verb

PLAN = (
    "federator.app.serve",
    "federator.cli.demo.runs",
    "federator.simulation.contrast",
    "federator.simulation.study",
    "federator.solving.decide",
    "federator.solving.plan_check",
    "federator.solving.offline",
)
"""What a verb imports that plans, or starts what plans."""


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    done: list[str] = []

    monkeypatch.setattr(kernels, "kernel", lambda: done.append("planner"))
    return done


def test_who_waits_for_the_compiler_is_told(
    prepared: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cache, "done", lambda: False)
    planner.ready_planner()
    begins, ends = capsys.readouterr().err.splitlines()
    assert begins == (
        "federator: compiling the planner, once for this version and kind of processor: some 15 seconds"
    )
    assert ends.startswith("federator: the planner is compiled, in ")
    assert prepared == ["planner"]


def test_what_is_compiled_is_loaded_without_a_word(
    prepared: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cache, "done", lambda: True)
    planner.ready_planner()
    assert prepared == ["planner"]
    assert capsys.readouterr() == ("", "")


def test_without_it_nothing_begins_and_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "done", lambda: True)
    monkeypatch.setattr(kernels, "_known", [])
    monkeypatch.setattr(kernels, "prepare", lambda: False)
    monkeypatch.setattr(kernels, "trouble", lambda: "no numba")
    with pytest.raises(Unavailable, match="no numba") as caught:
        planner.ready_planner()
    assert "pip install" in caught.value.describe()


def test_a_dispatcher_has_it_before_it_listens(
    prepared: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Loaded in the middle of a turn, it held back the first quick starts by some 0.4 s."""

    async def listens(*_: object, **__: object) -> None:
        prepared.append("listens")

    def run(main: Coroutine[None, None, None]) -> None:
        with pytest.raises(StopIteration):
            main.send(None)

    monkeypatch.setattr(app, "serve", listens)
    monkeypatch.setattr(asyncio, "run", run)
    serve.serve(state_dir=tmp_path)
    assert prepared == ["planner", "listens"]


def _verbs() -> list[Path]:
    folder = Path(federator.cli.__file__).parent
    found = [path for path in folder.rglob("*.py") if _imported(path) & set(PLAN)]
    benches = [Path(each.__path__[0], "__main__.py") for each in (bench, solver_bench)]
    return [*found, *benches, Path(table.__file__), Path(verb.__file__)]


def _imported(path: Path) -> set[str]:
    """What a module imports when it is used: not what only its annotations name."""
    tree = ast.parse(path.read_text())
    hints = [
        node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
    ]
    unused = {id(inner) for node in hints for inner in ast.walk(node)}
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and id(node) not in unused and node.module:
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return found


@pytest.mark.parametrize("path", _verbs(), ids=lambda path: path.stem)
def test_every_verb_that_plans_has_it_ready(path: Path) -> None:
    assert "ready_planner()" in path.read_text()
