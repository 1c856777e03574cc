"""Runs scenarios in turn, each several times with the machine's speed beside it, and gives them what they need."""

import importlib
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from federator.cli.demo.federation import DemoFederation
from tests.bench.figures import Calibration, Figure, Results
from tests.bench.measuring import calibrate

SCENARIOS = tuple(
    sorted(
        file.stem for file in (Path(__file__).parent / "scenarios").glob("*.py") if file.stem != "__init__"
    )
)
Document = dict[str, Any]


class _World(DemoFederation):
    """On real time, with the settings that are asked for."""

    def __init__(self, folder: Path, settings: Document) -> None:
        super().__init__(folder, 1.0)
        self._more = settings

    def _settings(self) -> Document:
        return super()._settings() | self._more


class Bench:
    """What a scenario is given for one run."""

    def __init__(self, folder: Path, say: Callable[[str], None], scale: float = 1.0) -> None:
        self.folder = folder
        self.say = say
        self.scale = scale

    def many(self, count: int) -> int:
        """So many, at the scale of this run."""
        return max(1, round(count * self.scale))

    @asynccontextmanager
    async def federation(
        self,
        sites: Sequence[Document],
        policies: str = "",
        *,
        folder: str = "world",
        settings: Document | None = None,
    ) -> AsyncIterator[DemoFederation]:
        """A dispatcher and an agent per site, ready; ended with everything that they started. Raises `NotStarted`.

        `settings`: sections of the dispatcher's settings, in place of the usual ones.
        """
        world = _World(self.folder / folder, settings or {})
        world.folder.mkdir(parents=True)
        try:
            await world.start_dispatcher()
            if policies:
                await world.apply_policies(policies)
            if sites:
                await world.start_sites(sites)
            yield world
        finally:
            await world.end()

    @staticmethod
    def pid(world: DemoFederation, name: str) -> int:
        """A process of a federation: `dispatcher`, or a site's agent by the site's name."""
        return world.processes.started[name].pid


@dataclass(frozen=True)
class Scenario:
    """One module of scenarios."""

    name: str
    run: Callable[[Bench], Awaitable[list[Figure]]]
    most_runs: int | None
    note: str


def load(name: str) -> Scenario:
    """A scenario by name."""
    module: ModuleType = importlib.import_module(f"tests.bench.scenarios.{name}")
    return Scenario(name, module.run, getattr(module, "MOST_RUNS", None), getattr(module, "NOTE", ""))


async def run_all(
    scenarios: Sequence[Scenario], *, runs: int, say: Callable[[str], None], scale: float = 1.0
) -> Results:
    """Every scenario `runs` times, in turn."""
    results = Results()
    for number in range(1, runs + 1):
        for scenario in scenarios:
            if scenario.most_runs is not None and number > scenario.most_runs:
                continue

            def tell(text: str, where: str = f"run {number} of {runs}, {scenario.name}") -> None:
                say(f"{where}: {text}")

            tell("begins")
            await _run_once(scenario, results, tell, scale)
    return results


async def _run_once(scenario: Scenario, results: Results, say: Callable[[str], None], scale: float) -> None:
    with tempfile.TemporaryDirectory(prefix="federator-bench-") as name:
        folder = Path(name)
        before = calibrate(folder)
        figures = await scenario.run(Bench(folder, say, scale))
        after = calibrate(folder)
    between = Calibration(
        (before.loop_msteps_s + after.loop_msteps_s) / 2, (before.fsyncs_s + after.fsyncs_s) / 2
    )
    results.add(scenario.name, figures, between)
    for figure in figures:
        say(f"{figure.name}: {figure.value:,.4g} {figure.unit}")
