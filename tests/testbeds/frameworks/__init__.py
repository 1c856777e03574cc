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


def lacking_torch() -> str:
    """What is missing to run PyTorch; empty: nothing. It is too large to be asked for in every run."""
    there = (BIN / "torchrun").exists()
    return "" if there else "PyTorch is not installed: tests/testbeds/frameworks/build.sh torch"
