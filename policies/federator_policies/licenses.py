"""The kind `License`: floating licences of a program, counted over all jobs that hold some while they run."""

from typing import Annotated

import msgspec

from federator.model.rules import CapRow, CapUnit, PoolSelector, Rule
from federator.wire import fields
from federator.wire.decoding import decode
from federator_policies.places import Places, pools_of


class LicenseSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`spec` of a `License`."""

    count: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
    """How many there are for work of this federation. What others use of the same licence server is not seen: leave them theirs."""
    license: fields.Name = ""
    """What jobs call it in `licenses`. Left out: the document's name."""
    where: Places | None = None
    """Where it can be used: a job that holds it runs nowhere else, unless another document has it there. Left out: everywhere."""


class LicenseKind:
    """Checks and compiles `License` documents; see `federator.ports.PolicyKind`."""

    kind = "License"
    spec = LicenseSpec

    def compile(self, name: str, spec: object) -> tuple[Rule, ...]:
        """A cap on what is held at once."""
        given = decode(spec, LicenseSpec, "$.spec")
        return (
            CapRow(
                policy=f"{self.kind}/{name}",
                unit=CapUnit.LICENSES,
                limit=float(given.count),
                pools=PoolSelector() if given.where is None else pools_of(given.where),
                license=given.license or name,
            ),
        )


kind = LicenseKind()
