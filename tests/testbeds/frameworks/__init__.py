"""Frameworks as other people make them, and stand-ins for the commands of those that are too large to install for a test."""

import os
from pathlib import Path

PLACE = Path(os.environ.get("FEDERATOR_TESTBEDS") or Path.home() / ".cache/federator") / "frameworks"
BIN = PLACE / "bin"


def lacking() -> str:
    """What is missing to run them; empty: nothing."""
    return (
        "" if any(PLACE.glob("installed-*")) else "the frameworks are not installed: make testbed-frameworks"
    )
