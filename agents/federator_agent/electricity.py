"""`electricity` of a site file: what a kilowatt-hour costs and emits there, by the hour of the day."""

import re
from datetime import datetime
from typing import Annotated, NamedTuple
from zoneinfo import ZoneInfo

import msgspec

from federator.kernel.errors import Invalid
from federator.wire import fields
from federator.wire.every import Zone

MAX_USD_PER_KWH = 100.0
MAX_GPU_WATTS = 100_000.0
MAX_GCO2_PER_KWH = 10_000.0
MAX_USD_PER_KG_CO2 = 100.0
_TIME = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")


def _minute(value: object, path: str) -> int:
    """A time of the clock, in minutes of the day."""
    match = _TIME.fullmatch(fields.text(value, path, limit=20).strip())
    if match is None:
        raise Invalid("is not a time of the clock", field=path, remedy='quote it, for example "06:00"')
    return int(match[1]) * 60 + int(match[2])


TimeOfDay = Annotated[int, fields.written(_minute, "06:00", pattern=f"^{_TIME.pattern}$")]
Usd = Annotated[float, msgspec.Meta(ge=0, le=MAX_USD_PER_KWH)]
Grams = Annotated[float, msgspec.Meta(ge=0, le=MAX_GCO2_PER_KWH)]


class Rates(NamedTuple):
    """Of one kilowatt-hour, at one moment."""

    usd_per_kwh: float = 0.0
    gco2_per_kwh: float = 0.0


FREE = Rates()
"""Where nothing is said of it."""


class Electricity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What electricity costs and emits at the site. A mapping of times has a value from each time to the next one, and from the last to the first of the next day."""

    usd_per_kwh: Usd | dict[TimeOfDay, Usd] = 0.0
    """USD for a kilowatt-hour, such as `0.24`, or `{"06:00": 0.31, "22:00": 0.17}`. Left out: nothing is told of its cost."""
    gco2_per_kwh: Grams | dict[TimeOfDay, Grams] = 0.0
    """Grams of CO2 for a kilowatt-hour, such as `40`, or by times. Left out: nothing is told of it."""
    gpu_watts: Annotated[float, msgspec.Meta(ge=0, le=MAX_GPU_WATTS)] = 0.0
    """What one of its GPUs draws at work, with its part of host and cooling, such as `700`. That energy, at the price of the hour, is then added to `price_per_gpu_hour`: plans weigh it, and whatever starts pays it. Left out: `price_per_gpu_hour` covers it."""
    usd_per_kg_co2: Annotated[float, msgspec.Meta(ge=0, le=MAX_USD_PER_KG_CO2)] = 0.0
    """A price of carbon: USD for a kilogram of CO2, such as `0.1`. What `gpu_watts` emit at the intensity of the hour, `gco2_per_kwh`, is then added to `price_per_gpu_hour` at that price, as energy is. Left out: CO2 is told and costs nothing."""
    timezone: Zone = "UTC"
    """Time zone of the times. Left out: UTC."""

    def check(self, path: str) -> None:
        """Raises `Invalid` for a mapping that says nothing, and for a price of carbon that would add nothing."""
        for name in ("usd_per_kwh", "gco2_per_kwh"):
            if getattr(self, name) == {}:
                raise Invalid(
                    "names no time", field=f"{path}.{name}", remedy="write a number, or leave it out"
                )
        for name in ("gpu_watts", "gco2_per_kwh"):
            if self.usd_per_kg_co2 and not getattr(self, name):
                raise Invalid(
                    f"adds nothing to the price of a GPU-hour without {name}",
                    field=f"{path}.usd_per_kg_co2",
                    remedy=f"write {name} beside it, or leave it out",
                )

    def usd_gpu_h(self, now: float) -> float:
        """What the energy of one of its GPUs costs in an hour, its CO2 included, at the rates of that moment."""
        if not self.gpu_watts:
            return 0.0
        rates = self.at(now)
        return self.gpu_watts / 1000 * (rates.usd_per_kwh + rates.gco2_per_kwh / 1000 * self.usd_per_kg_co2)

    def at(self, now: float) -> Rates:
        """What holds at that moment, in seconds since the epoch."""
        local = datetime.fromtimestamp(now, ZoneInfo(self.timezone))
        minute = local.hour * 60 + local.minute
        return Rates(_value(self.usd_per_kwh, minute), _value(self.gco2_per_kwh, minute))


def _value(by_time: float | dict[int, float], minute: int) -> float:
    if not isinstance(by_time, dict):
        return by_time
    begun = [time for time in by_time if time <= minute]
    return by_time[max(begun or by_time)]
