"""What becomes of a test whose server is not installed: it is skipped, and says so; or, where everything is said to be there, it fails."""

import os

import pytest

VARIABLE = "FEDERATOR_REQUIRE_TESTBEDS"


def need(lack: str) -> None:
    """Skip the test that calls this, with what is lacking; fail it where FEDERATOR_REQUIRE_TESTBEDS=1 is set, as CI does after installing all."""
    if not lack:
        return
    if os.environ.get(VARIABLE) == "1":
        pytest.fail(f"{VARIABLE}=1, but {lack}")
    pytest.skip(lack)
