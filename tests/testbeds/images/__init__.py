"""The images of dispatcher and agent, built by the tests without a network: from a base and wheels that `build.sh` makes."""

import os
import re
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

from tests.testbeds.podman import Podman

ROOT = Path(__file__).parents[3]
BASE, NAME = "localhost/federator-base", "localhost/"
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


def build(podman: Podman, *words: str) -> dict[str, str]:
    """Build them, and say under which id each has been."""
    folder = place()
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder / "wheels"), "BUILDAH_ISOLATION": "chroot"}
    path = f"{podman.programs}:{os.environ['PATH']}"
    built = subprocess.run(
        [sys.executable, "-m", "tools.images", "--engine=podman", f"--base={BASE}", f"--name={NAME}", *words],
        cwd=ROOT,
        env=os.environ | offline | {"PATH": path},
        text=True,
        capture_output=True,
        timeout=600,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return dict(re.findall(rf"^{NAME}(\S+)  (sha256:\w+)$", built.stdout, re.MULTILINE))
