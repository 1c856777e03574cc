"""Why jobs end: programs act on it, so a reason that nobody gives is a promise that nobody keeps."""

from pathlib import Path

import pytest

import federator.control
from federator.model.jobs import TerminalReason


@pytest.mark.parametrize("reason", TerminalReason)
def test_every_reason_is_given_by_somebody(reason: TerminalReason) -> None:
    sources = Path(federator.control.__file__).parent.rglob("*.py")
    assert any(f"TerminalReason.{reason.name}" in each.read_text() for each in sources), reason
