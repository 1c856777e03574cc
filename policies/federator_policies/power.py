"""The kind `Power`: a cap on what the GPUs of a site draw. It is kept as a cap on GPUs at work, each counted with what it draws at most: a plan knows no meter, and must hold whatever jobs do."""

from typing import Annotated

import msgspec

from federator.kernel.errors import Invalid
from federator.model.capacity import Market
from federator.model.rules import CapRow, CapUnit, PoolSelector, Rule
from federator.wire.decoding import decode

Watts = Annotated[float, msgspec.Meta(ge=1, le=1e9)]


class PowerSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`spec` of a `Power`."""

    sites: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    """Sites that share the cap, by name. Their own GPUs count, and nothing that is rented."""
    kilowatts: Annotated[float, msgspec.Meta(ge=0, le=1e6)]
    """How much the GPUs at work may draw together. What idle ones, work of the site's own and all else draw is not seen: leave it out."""
    gpu_watts: Watts
    """What one GPU draws at most, with its part of host and cooling. Of several models that of the hungriest, or one document for each with `models`."""
    models: tuple[str, ...] = ()
    """GPU models that it is about. Left out: all."""


class PowerKind:
    """Checks and compiles `Power` documents; see `federator.ports.PolicyKind`."""

    kind = "Power"
    spec = PowerSpec

    def compile(self, name: str, spec: object) -> tuple[Rule, ...]:
        """A cap on GPUs in use. Raises `Invalid` where not one GPU may work."""
        given = decode(spec, PowerSpec, "$.spec")
        gpus = int(given.kilowatts * 1000 / given.gpu_watts)
        if given.kilowatts and not gpus:
            least = given.gpu_watts / 1000
            raise Invalid(
                f"{given.kilowatts:g} kW is less than one GPU of {given.gpu_watts:g} W draws",
                field="$.spec.kilowatts",
                remedy=f"write at least {least:g}, or 0 for no work at all",
            )
        pools = PoolSelector(
            sites=given.sites, markets=(Market.OWNED,), models=tuple(model.upper() for model in given.models)
        )
        return (CapRow(policy=f"{self.kind}/{name}", unit=CapUnit.GPUS, limit=float(gpus), pools=pools),)


kind = PowerKind()
