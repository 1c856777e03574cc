"""Every command of the README and the tutorial does what the page says: a page that lies costs a newcomer the first hour."""

import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.terminals import Terminal
from tests.docs.walkthrough import HERE, INTERRUPT, Command, File, first_unseen, read_page
from tests.testbeds.ports import free_ports

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    "pipelines": ("docs/howto/pipelines.md",),
    "readme": ("README.md",),
    "skypilot": ("docs/howto/coming-from-skypilot.md",),
    "slurm": ("docs/howto/coming-from-slurm.md",),
    "tutorial": ("docs/tutorial/first-federation.md", "docs/tutorial/first-burst.md"),
}
STEP_S = 120.0
PAUSE_S = 0.5
ASKS = re.compile(r"(sleep \d+; )?federator (explain|leases|list|logs|preview|show|sites) ?[^|;&>]*$")
"""Commands that change nothing."""
FOLDER = "~/federator-tutorial"
"""Where the tutorial works; here it is a folder of the test."""

pytestmark = [pytest.mark.system, pytest.mark.timeout(1200)]


class Reader:
    """Follows pages in a home of its own, with a port of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        (self.port,) = free_ports(1)
        self.terminals: dict[str, Terminal] = {}
        self.transcript: list[str] = []

    def follow(self, page: str) -> None:
        """Take every step of a page."""
        for step in read_page(ROOT / page):
            if isinstance(step, File):
                (self.home / step.name).parent.mkdir(parents=True, exist_ok=True)
                (self.home / step.name).write_text(self._mine(step.content))
            else:
                self._run(page, step)

    def close(self) -> None:
        """End everything that was started, agents before the dispatcher they dial."""
        for terminal in reversed(self.terminals.values()):
            terminal.interrupt()
            terminal.settle(within_s=STEP_S)
            terminal.close()

    def _run(self, page: str, step: Command) -> None:
        terminal = self.terminals.get(step.terminal)
        if terminal is None:
            terminal = self.terminals[step.terminal] = Terminal(self.home, self._environment())
        if step.typed == INTERRUPT:
            terminal.interrupt()
        else:
            terminal.settle(within_s=STEP_S)
            terminal.type(self._mine(step.typed))
        if INTERRUPT in step.shown:
            self._expect(page, step, terminal, step.shown[: step.shown.index(INTERRUPT)])
            terminal.interrupt()
        if step.terminal == HERE or INTERRUPT in (step.typed, *step.shown):
            terminal.settle(within_s=STEP_S)
            assert not terminal.busy, f"{page}:{step.line}: {step.typed} does not end\n{terminal.printed}"
        if ASKS.match(step.typed) and step.terminal == HERE and INTERRUPT not in step.shown:
            self._ask_again(terminal, step)
        self._expect(page, step, terminal, step.shown)
        self.transcript.append(f"$ {step.typed}\n{terminal.printed}[{terminal.exit_code}]")

    def _ask_again(self, terminal: Terminal, step: Command) -> None:
        """On a slow machine what the page shows may come a moment later: the question is asked until the answer is the page's."""
        give_up_at = time.monotonic() + STEP_S
        while self._unseen(step.shown, terminal.printed) is not None and time.monotonic() < give_up_at:
            time.sleep(PAUSE_S)
            terminal.type(self._mine(step.typed))
            terminal.settle(within_s=STEP_S)

    def _unseen(self, shown: tuple[str, ...], printed: str) -> str | None:
        return first_unseen(shown, printed.replace(str(self.home), FOLDER))

    def _expect(self, page: str, step: Command, terminal: Terminal, shown: tuple[str, ...]) -> None:
        if terminal.busy:
            terminal.read_until(
                lambda printed: not terminal.busy or self._unseen(shown, printed) is None, within_s=STEP_S
            )
        unseen = self._unseen(shown, terminal.printed)
        assert unseen is None, (
            f"{page}:{step.line}: {step.typed}\nshould print\n{unseen}\nbut printed\n{terminal.printed}"
        )

    def _mine(self, text: str) -> str:
        """A text of the page with this reader's port."""
        return text.replace("127.0.0.1:7070", f"127.0.0.1:{self.port}")

    def _environment(self) -> dict[str, str]:
        folder = Path(sys.executable).parent
        return {
            "HOME": str(self.home),
            "PATH": f"{folder}:{os.defpath}",
            "LANG": "C.UTF-8",
            "FEDERATOR_PORT": str(self.port),
        }


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    reader = Reader(tmp_path)
    yield reader
    reader.close()


@pytest.mark.parametrize("pages", PAGES.values(), ids=PAGES)
def test_the_page_can_be_followed_word_for_word(reader: Reader, pages: tuple[str, ...]) -> None:
    for page in pages:
        reader.follow(page)
    assert reader.transcript
