"""What the tests build the images from without a network: a base, and wheels. `build.sh` makes both."""

import os
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).parents[3]
STAMPED = (
    "requirements/agent.txt",
    "requirements/dispatcher.txt",
    "requirements/pip.txt",
    "deploy/images/base.sh",
)


def place() -> Path:
    """Where `build.sh` puts them: `base.tar` and `wheels`."""
    return Path(os.environ.get("FEDERATOR_TESTBEDS") or Path.home() / ".cache" / "federator") / "images"


def missing() -> str:
    """Why there are none for these locks; empty: there are."""
    stamp = sha256(b"".join((ROOT / name).read_bytes() for name in STAMPED)).hexdigest()[:16]
    return (
        ""
        if (place() / stamp).exists()
        else f"nothing to build images from in {place()}; run make testbed-images"
    )
