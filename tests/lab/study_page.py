"""The plots of a report: curves, bars and maps of what schedulers did with one seed."""

from collections.abc import Sequence
from html import escape

from federator.kernel.quantities import format_duration
from federator.simulation.report import section
from tests.lab import plots
from tests.lab.plots import COLOURS
from tests.lab.series import QUANTILES, Series

DRIVERS = {
    "owned GPUs": "#7fa8e0",
    "rent, used": "#d9822b",
    "rent, boot and idle": "#f2c48d",
    "data moved": "#8a56c2",
    "missed deadlines": "#c43d5a",
}
DURATIONS_S = (1.0, 10.0, 60.0, 600.0, 3600.0, 36_000.0, 86_400.0, 864_000.0)
FACTORS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1000.0, 10_000.0)


def plots_of(shown: Sequence[Series]) -> str:
    """Sections of HTML, of one simulation for each scheduler."""
    colour = {each.scheduler: COLOURS[n % len(COLOURS)] for n, each in enumerate(shown)}
    sections = [
        section("Deadlines met", "Share of jobs that met theirs, by how tight it was: time until the deadline over the run time.",
                key(colour) + _met(shown, colour)),
        section("Money", "What was paid and lost, and for what.", key(DRIVERS) + _money(shown)),
        section("Waits", "Each point: so large a share of the jobs waited for at most so long before the first start.",
                key(colour) + _spread(shown, colour, "waits_s", "wait")),
        section("Slowdown", "Time from submission to the end, over the run time, in the same way.",
                key(colour) + _spread(shown, colour, "slowdowns", "slowdown")),
        section("Jobs that wait", "Submitted and not running.", key(colour) + _over_time(shown, colour, "waiting", "jobs")),
        section("Rented GPUs", "At every moment, busy or not.", key(colour) + _over_time(shown, colour, "rented_gpus", "GPUs")),
    ]  # fmt: skip
    for each in shown:
        about = "Each site's own GPUs; the darker, the busier."
        sections.append(section(f"Utilisation: {each.scheduler}", about, _heat(each), wide=len(shown) == 1))
    for each in shown:
        if each.leases:
            about = f"Each bar is a rented machine: {len(each.leases)} of them, the longest-lived first where there are very many."
            sections.append(
                section(f"Bursts: {each.scheduler}", about, _bursts(each, colour[each.scheduler]))
            )
    return f"<style>{plots.STYLE}</style>{''.join(sections)}"


def _met(shown: Sequence[Series], colour: dict[str, str]) -> str:
    bands = [(name, count) for name, count, _ in shown[0].met_by_slack]
    groups = [
        (
            f"{name} ({count:,})",
            [(each.scheduler, colour[each.scheduler], each.met_by_slack[n][2]) for each in shown],
        )
        for n, (name, count) in enumerate(bands)
        if count
    ]
    return plots.grouped(groups, y_title="met") if groups else "<p>No job has a deadline.</p>"


def _money(shown: Sequence[Series]) -> str:
    rows = [(each.scheduler, [(name, DRIVERS[name], each.usd[name]) for name in DRIVERS]) for each in shown]
    if not any(part[2] for _, parts in rows for part in parts):
        return "<p>Nothing costs anything in this world: give sites a price, and deadlines a value.</p>"
    return plots.stacked(rows, x_text=_usd, x_title="USD")


def _spread(shown: Sequence[Series], colour: dict[str, str], field: str, what: str) -> str:
    curves = [
        plots.Line(
            each.scheduler,
            colour[each.scheduler],
            [(share, max(1.0, value)) for share, value in zip(QUANTILES, getattr(each, field), strict=True)],
        )
        for each in shown
    ]
    text = _seconds if what == "wait" else lambda value: f"{value:g} ×"
    return plots.lines(
        curves,
        x_text=plots.percent,
        y_text=text,
        x_title="share of jobs",
        y_title=what,
        log=DURATIONS_S if what == "wait" else FACTORS,
    )


def _over_time(shown: Sequence[Series], colour: dict[str, str], field: str, what: str) -> str:
    curves = [
        plots.Line(
            each.scheduler,
            colour[each.scheduler],
            [(at / 86_400.0, value) for at, value in zip(each.times_s, getattr(each, field), strict=True)],
        )
        for each in shown
    ]
    if not any(value for curve in curves for _, value in curve.points):
        return "<p>There are never any.</p>"
    return plots.lines(curves, x_text=_number, y_text=_number, x_title="days", y_title=what)


def _heat(each: Series) -> str:
    rows = sorted(each.utilisation.items())
    return plots.heat(rows, x_high=each.times_s[-1] / 86_400.0, x_text=_number, x_title="days")


def _bursts(each: Series, colour: str) -> str:
    bars = [(offer, colour, start_s / 86_400.0, end_s / 86_400.0) for offer, start_s, end_s, _ in each.leases]
    return plots.timeline(bars, x_high=each.times_s[-1] / 86_400.0, x_text=_number, x_title="days")


def key(colours: dict[str, str]) -> str:
    """The names of colours."""
    names = "".join(
        f'<span><i style="background:{c}"></i>{escape(name)}</span>' for name, c in colours.items()
    )
    return f'<div class="key">{names}</div>'


def _seconds(value: float) -> str:
    return format_duration(value)


def _number(value: float) -> str:
    return f"{value:,.4g}"


def _usd(value: float) -> str:
    return f"{value / 1000:,.3g}k USD" if value >= 10_000 else f"{value:,.0f} USD"
