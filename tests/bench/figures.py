"""What a scenario gives back, and what several runs of it come to."""

from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median


class Better(StrEnum):
    """Which way a figure should go."""

    MORE = "at least"
    LESS = "at most"


@dataclass(frozen=True)
class Calibration:
    """How fast the machine was just then: millions of steps of a fixed loop of pure Python a second, and durable appends a second."""

    loop_msteps_s: float
    fsyncs_s: float


@dataclass(frozen=True)
class Figure:
    """One thing measured once. `aim` is in the figure's unit; `against` names the figure to be compared with."""

    name: str
    value: float
    unit: str
    aim: float | None = None
    better: Better = Better.MORE
    note: str = ""
    against: str = ""


@dataclass
class Series:
    """One figure over all runs, with the machine's speed beside each."""

    scenario: str
    last: Figure
    values: list[float] = field(default_factory=list)
    calibrations: list[Calibration] = field(default_factory=list)

    def add(self, figure: Figure, calibration: Calibration) -> None:
        """Take in one more run."""
        self.last = figure
        self.values.append(figure.value)
        self.calibrations.append(calibration)

    @property
    def median(self) -> float:
        """The figure to quote."""
        return median(self.values)

    @property
    def reached(self) -> bool | None:
        """Whether the median is as good as the aim; None without one."""
        aim = self.last.aim
        if aim is None:
            return None
        return self.median >= aim if self.last.better is Better.MORE else self.median <= aim

    @property
    def calibration(self) -> Calibration:
        """The machine's median speed beside this figure."""
        return Calibration(
            median(each.loop_msteps_s for each in self.calibrations),
            median(each.fsyncs_s for each in self.calibrations),
        )


class Results:
    """All series, by name, in the order in which they came."""

    def __init__(self) -> None:
        self.series: dict[str, Series] = {}

    def add(self, scenario: str, figures: list[Figure], calibration: Calibration) -> None:
        """Take in one run of a scenario."""
        for figure in figures:
            self.series.setdefault(figure.name, Series(scenario, figure)).add(figure, calibration)

    def ratio(self, series: Series) -> float | None:
        """How this figure compares with the one it names: the median of the ratios, run by run."""
        other = self.series.get(series.last.against)
        if other is None:
            return None
        return median(a / b for a, b in zip(series.values, other.values, strict=False) if b)
