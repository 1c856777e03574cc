"""Whether HAProxy is installed, which `federator gateway` runs."""

import shutil


def lack() -> str:
    """What is lacking; empty: nothing."""
    return "" if shutil.which("haproxy") else "HAProxy is not installed: apt install haproxy"
