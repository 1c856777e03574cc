"""The kind `Preemption`: who may displace whom, and how those who run are spared needless losses.

Guarantees of queues take back what is theirs without any such document. Who is displaced is chosen by priority first, and then by what stopping
loses: the work since the last checkpoint, or since the start where there is none, and the start that has to be done again.
"""

from typing import Annotated

import msgspec

from federator.kernel.errors import Invalid
from federator.model.rules import PreemptRule, Rule, Scope
from federator.wire.decoding import decode
from federator.wire.fields import Duration
from federator_policies.whose import Who, scope_of


class PreemptionSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`spec` of a `Preemption`."""

    who: Who
    """Whose jobs displace others."""
    may_displace: Who
    """Whose jobs they displace."""
    priority_gap: Annotated[int, msgspec.Meta(ge=1, le=100)] = 1
    """By so much the priority of who is displaced must be lower."""
    minimum_run: Duration = 600.0
    """Who has run for less is left alone. Left out: 10m."""
    cool_down: Duration = 1800.0
    """Who was displaced is left alone for so long, also after it has started again. Left out: 30m."""
    after_wait: Duration = 60.0
    """Others are displaced only when the job would otherwise start later than this. Left out: 1m."""


class PreemptionKind:
    """Checks and compiles `Preemption` documents; see `federator.ports.PolicyKind`."""

    kind = "Preemption"
    spec = PreemptionSpec

    def compile(self, name: str, spec: object) -> tuple[Rule, ...]:
        """One rule."""
        given = decode(spec, PreemptionSpec, "$.spec")
        who, victims = scope_of(given.who), scope_of(given.may_displace)
        if who == Scope():
            raise Invalid(
                "is empty: all jobs would displace others",
                field="$.spec.who",
                remedy="name queues, owners or labels",
            )
        return (
            PreemptRule(
                policy=f"{self.kind}/{name}",
                who=who,
                victims=victims,
                minimum_priority_gap=given.priority_gap,
                minimum_run_s=given.minimum_run,
                cool_down_s=given.cool_down,
                patience_s=given.after_wait,
            ),
        )


kind = PreemptionKind()
