"""A real browser, and what checks the console's modules and pages: Chromium of this machine, TypeScript and axe from a folder outside the tree."""

import os
import shutil
from pathlib import Path

PLACE = Path(os.environ.get("FEDERATOR_TESTBEDS") or Path.home() / ".cache/federator") / "console"
TSC = PLACE / "node_modules/typescript/bin/tsc"
AXE = PLACE / "node_modules/axe-core/axe.min.js"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome") or ""


def lacking() -> str:
    """What is missing to check the console; empty: nothing."""
    if not CHROMIUM:
        return "there is no Chromium: apt-get install chromium"
    if not (TSC.exists() and AXE.exists()):
        return "TypeScript and axe are not installed: make testbed-console"
    return ""
