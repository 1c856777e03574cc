"""Makes the picture of the plan that the README shows: `make picture`, in a minute.

The demonstration runs, and the page is taken as soon as work runs, waits and is rented for.
"""

import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from federator.client import Client
from federator.kernel.errors import FederatorError
from tests.console.stage import launch

WANTED = {"running": 6, "planned": 2, "ended": 1}
PATIENCE_S = 100.0


def take(file: Path) -> None:
    """Run the demonstration, take the picture, and end everything."""
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "demo"
        command = [sys.executable, "-m", "federator", "demo", "--state-dir", str(state)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as demo:
            try:
                _when_there_is_much_to_see(state / "dispatcher", file)
            finally:
                demo.terminate()


def _when_there_is_much_to_see(state: Path, file: Path) -> None:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        time.sleep(1.0)
        try:
            url, token = (state / "address").read_text().strip(), (state / "admin.token").read_text().strip()
            with Client(url, token, patience_s=0.0) as client:
                bars = client.plan().bars
        except (OSError, FederatorError):
            continue
        states = Counter(bar.state.value for bar in bars)
        if all(states[state] >= count for state, count in WANTED.items()):
            _draw(url, token, file)
            return
    raise SystemExit("the demonstration showed too little; try again on a machine with less to do")


def _draw(url: str, token: str, file: Path) -> None:
    with sync_playwright() as playwright:
        browser = launch(playwright)
        page: Page = browser.new_page(viewport={"width": 1280, "height": 760}, color_scheme="light")
        page.goto(url)
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Sign in", exact=True).click()
        page.get_by_role("navigation").wait_for()
        page.get_by_role("link", name="Plan", exact=True).click()
        page.get_by_role("button", name="1 h", exact=True).click()
        page.locator(".bar-planned").first.wait_for()
        page.wait_for_timeout(1000)
        page.screenshot(path=file, full_page=True)
        browser.close()


if __name__ == "__main__":
    take(Path(sys.argv[1]))
