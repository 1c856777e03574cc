"""What is remembered of machines that have ended."""

from msgspec.structs import replace

from federator.kernel.clock import ManualClock
from federator.model.capacity import Instance, InstanceStatus
from federator_providers.ended import KEEP_ENDED_S, EndedMachines

TAGS = {"federation": "lab"}


def test_the_first_word_of_an_end_stays_as_long_as_it_is_heard() -> None:
    """A machine that is listed for long, whose end its cloud does not say, ended once."""
    clock = ManualClock()
    ended = EndedMachines(clock)
    began_at = clock.now()
    names = ("a", "b")
    machines = [
        Instance(name, "offer", InstanceStatus.ENDED, began_at, began_at, TAGS, 1.0) for name in names
    ]
    for _ in range(8):
        for machine in machines:
            said = ended.remember(replace(machine, ended_at=clock.now(), billed_usd=9.0))
            assert (said.ended_at, said.billed_usd) == (began_at, 9.0)
        clock.advance(KEEP_ENDED_S / 2)
    assert [each.name for each in ended.beside(["a"], "lab")] == ["b"]
    clock.advance(KEEP_ENDED_S)
    ended.remember(machines[0])
    assert ended.get("b") is None, "what nobody lists any more is forgotten"
