"""Reads a page as a person would: files are saved, commands are typed into terminals, and what comes back is compared.

A page needs no special syntax for it, only words behind the fence, which no renderer shows:

- `console`: commands after `$ `, each followed by what it prints. `console NAME` is another terminal; its last command may
  go on running. `^C` on a line of its own is Ctrl-C.
- `yaml FILE`, `python FILE`, `sh FILE`: a file to save under that name.
- `console setup`: what has been done already before a test begins (making the environment), so it is not typed.

What is printed may hold more lines than the page; those of the page must come in their order. Ids, times, ports, durations and
fractions differ from run to run, so they are compared by their form; all other words and whole numbers as they are.
"""

import re
from pathlib import Path
from typing import NamedTuple

FENCE = re.compile(r"^```(\w+)(?: +(\S+))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
INTERRUPT = "^C"
CUT = "…"
HERE = ""
SETUP = "setup"


class File(NamedTuple):
    """Something to save."""

    name: str
    content: str


class Command(NamedTuple):
    """Something to type into a terminal, and the lines that a reader is shown below it."""

    terminal: str
    typed: str
    shown: tuple[str, ...]
    line: int


def read_page(path: Path) -> list[File | Command]:
    """The steps of a page, in their order."""
    text = path.read_text(encoding="utf-8")
    steps: list[File | Command] = []
    for fence in FENCE.finditer(text):
        language, word, body = fence.groups()
        if language == "console" and word != SETUP:
            steps += _commands(word or HERE, body, text.count("\n", 0, fence.start()) + 2)
        elif language in ("yaml", "python", "sh") and word:
            steps.append(File(word, body))
    return steps


def _commands(terminal: str, body: str, line: int) -> list[Command]:
    commands: list[Command] = []
    for offset, text in enumerate(body.splitlines()):
        if text.startswith("$ "):
            commands.append(Command(terminal, text.removeprefix("$ "), (), line + offset))
        elif text.startswith("> ") and commands:
            commands[-1] = commands[-1]._replace(typed=f"{commands[-1].typed}\n{text.removeprefix('> ')}")
        elif text.strip() and commands:
            commands[-1] = commands[-1]._replace(shown=(*commands[-1].shown, text))
        elif text.strip():
            raise AssertionError(f"line {line + offset}: output without a command above it: {text}")
    return commands


_FORMS = (
    (re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]"), ""),
    (re.compile(r"\b(job|lease|dec|ses|pl|led)-[0-9a-z]{10,}"), r"\1-ID"),
    (re.compile(r"\b(fed|join)_[\w-]{20,}"), r"\1_SECRET"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(,\d+|Z| UTC)?"), "INSTANT"),
    (re.compile(r"\b\d\d:\d\d(:\d\d)?\b( UTC)?"), "CLOCK"),
    (re.compile(r"(?<=127\.0\.0\.1:)\d+"), "PORT"),
    (re.compile(r"\b(\d+(\.\d+)?(ms|[dhms])\b|\d+(ms|[dhms])(?=\d))+"), "SPAN"),
    (re.compile(r"\bin SPAN\b|\bSPAN ago\b|\bnow\b|\bSPAN\b"), "WHEN"),
    (re.compile(r"\b\d+\.\d+\b"), "FRACTION"),
    (re.compile(r"\b\d+ GPU-seconds"), "GPU-seconds"),
    (re.compile(r"[-+─═│]{3,}"), "---"),
    (re.compile(r"\s+"), " "),
)


def form(line: str) -> str:
    """A line of output without what differs from run to run."""
    for pattern, instead in _FORMS:
        line = pattern.sub(instead, line)
    return line.strip()


def first_unseen(shown: tuple[str, ...], printed: str) -> str | None:
    """The first line of the page that does not come, in its turn, in what was printed.

    Where a line breaks is no difference: a cell of a table is wrapped elsewhere when a neighbour is a letter narrower.
    """
    rest = [line for line in map(form, printed.splitlines()) if line]
    for line in shown:
        if line.strip() in (INTERRUPT, "..."):
            continue
        after = _after(form(line), rest)
        if after is None:
            return line
        rest = after
    return None


def _after(wanted: str, lines: list[str]) -> list[str] | None:
    """What follows the first place where these words stand; None when they do not."""
    printed = " " + " \n ".join(lines) + " "
    words = r"(?: \n)? ".join(re.escape(word) for word in wanted.split(" "))
    match = re.search(f" {words}(?= )", printed)
    if match is None:
        return next(
            (
                lines[at + 1 :]
                for at, line in enumerate(lines)
                if CUT in wanted + line and _cut_alike(wanted, line)
            ),
            None,
        )
    return [line.strip() for line in printed[match.end() :].split("\n") if line.strip()]


def _cut_alike(one: str, other: str) -> bool:
    """Whether two lines differ only in where the width of the terminal cut their cells: a neighbour may be a letter wider."""
    same = next(
        (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
    one, other = one[same:], other[same:]
    if other.startswith(CUT):
        one, other = other, one
    if not one.startswith(CUT):
        return not one and not other
    ends = range((other.find(CUT) + 1 or len(other)) + 1)
    return any(_cut_alike(one.removeprefix(CUT), other[end:]) for end in ends if other[end : end + 1] != CUT)
