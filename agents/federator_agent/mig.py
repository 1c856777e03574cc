"""By which numbers a host knows the MIG instances of its GPUs."""

_NUMBERS = 10_000
"""More than there are GPUs in a host: numbers of instances begin here."""


def number_of(gpu: int, instance: int) -> int:
    """By which a host knows instance `instance` of its GPU `gpu`, as the driver counts them: the same after a restart."""
    return (gpu + 1) * _NUMBERS + instance


def place_of(number: int) -> tuple[int, int | None]:
    """The GPU that a number is of, and which instance of it; None: all of it."""
    if number < _NUMBERS:
        return number, None
    return number // _NUMBERS - 1, number % _NUMBERS
