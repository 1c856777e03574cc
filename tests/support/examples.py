"""How much is tried: a sample in every run, and at night (`make nightly`) so much more that what is rare is met, too."""

import os

NIGHTLY = bool(os.environ.get("FEDERATOR_NIGHTLY"))


def examples(count: int) -> int:
    """Examples of a property: so many in every run, ten times as many at night."""
    return count * 10 if NIGHTLY else count
