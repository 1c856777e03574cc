"""The console's modules keep to their types, as TypeScript checks them."""

import subprocess
from pathlib import Path

from tests.testbeds.console import PLACE, TSC, lacking
from tests.testbeds.required import need

HERE = Path(__file__).parent


def test_types() -> None:
    need(lacking())
    done = subprocess.run(
        [PLACE / "node", TSC, "--project", HERE / "tsconfig.json", "--pretty", "false"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
