"""The reference says what the code does: a page that was not written again after a change would lie."""

import subprocess
import sys

from tests.architecture.sources import ROOT


def test_reference_is_up_to_date() -> None:
    """In a process of its own: what other tests have imported or built must not show in a page."""
    check = [sys.executable, "-m", "tools.generate_docs", "--check"]
    finished = subprocess.run(check, cwd=ROOT, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
