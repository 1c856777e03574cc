"""The reference says what the code does: a page that was not written again after a change would lie."""

import pytest

from tools.generate_docs import main


def test_reference_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0, capsys.readouterr().err
