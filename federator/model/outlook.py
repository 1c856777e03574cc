"""What is expected of a whole line of waiting jobs, by a plan that may cut them into parts: what windows of a very long line are chosen with."""

import msgspec


class Outlook(msgspec.Struct, frozen=True):
    """A relaxed plan of a whole line. Its starts, and what they use, are parallel lists."""

    taken_at: float
    klass: tuple[int, ...]
    """By number in the line that was asked about. Starts are by class, and of a class the soonest first."""
    start_s: tuple[float, ...]
    """Expected, in seconds from then."""
    jobs: tuple[float, ...]
    """So many, and parts of them."""
    now: tuple[bool, ...]
    """It starts at once, or something is rented for it at once."""
    place: tuple[int, ...]
    """Of what something is rented for at once: the offer, by number in `places`; else -1."""
    form: tuple[int, ...]
    """As what form of the job."""
    start: tuple[int, ...]
    """Of a use: whose it is,"""
    row: tuple[int, ...]
    """of which row,"""
    use: tuple[float, ...]
    """and how much, for one job."""
    places: tuple[str, ...]
    """Their names."""
    rows: tuple[str, ...]
    """Names,"""
    usd: tuple[float, ...]
    """and prices."""

    @property
    def prices(self) -> dict[str, float]:
        """By row."""
        return dict(zip(self.rows, self.usd, strict=True))


class Proof(msgspec.Struct, frozen=True):
    """How good a decision was: no plan costs less than the bound; the gap is what the decision costs at best above what no plan of the linear model costs less than, as a part of that."""

    bound_usd: float
    gap: float
