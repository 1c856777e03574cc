"""Policy files and folders as the one text that is checked and sent, and back from its lines to those of the files."""

import re
import sys
from pathlib import Path
from typing import Annotated, NamedTuple

from cyclopts import Parameter

from federator.kernel.errors import Invalid, Permanent
from federator.wire.named_files import read_text
from federator.wire.yamltext import read_documents

_LINE = re.compile(r"\bline (\d+)\b")


class PolicyText(NamedTuple):
    """Files as the one text that is sent, and on which of its lines each begins."""

    text: str
    begins: list[tuple[int, str]]

    def where(self, line: int) -> str:
        """The file and its own line, of a line of the text."""
        first, file = next(each for each in reversed(self.begins) if each[0] <= line)
        return f"{file}, line {line - first + 1}"

    def located(self, sentence: str) -> str:
        """The sentence with file and own line in place of the text's line."""
        return _LINE.sub(lambda found: self.where(int(found[1])), sentence)


FileOption = Annotated[
    tuple[Path, ...],
    Parameter(
        name=("-f", "--file"),
        consume_multiple=True,
        negative="",
        show_default=False,
        help="The same, as an option.",
    ),
]


def read_set(files: tuple[Path, ...], *, allow_empty: bool) -> PolicyText:
    """All documents of all files and folders, as one text. Raises `Invalid` where there is nothing or no YAML, or a file cannot be read."""
    found = [inner for file in files for inner in (_in_folder(file) if file.is_dir() else [file])]
    if not found:
        raise Invalid("no policy file", field="FILES", remedy="name one or more YAML files")
    lines: list[str] = []
    begins: list[tuple[int, str]] = []
    for file in found:
        text = sys.stdin.read() if str(file) == "-" else read_text(file)
        if lines:
            lines.append("---")
        inner = text.removeprefix("---\n")
        begins.append((len(lines) + 1 - (inner != text), "standard input" if str(file) == "-" else str(file)))
        lines += inner.rstrip("\n").split("\n")
    if not allow_empty and not any(map(_says_something, lines)):
        raise Invalid(
            "contains no policy: applying it would remove all policies",
            field="FILES",
            remedy="add --allow-empty if that is intended",
        )
    written = PolicyText("\n".join(lines) + "\n", begins)
    try:
        read_documents(written.text)
    except Permanent as error:  # no set at all, so there is nothing to refuse
        raise type(error)(written.located(error.message), field=error.field, remedy=error.remedy) from None
    return written


def _says_something(line: str) -> bool:
    """Whether there is more on it than a comment, or the begin or end of a document."""
    return line.partition("#")[0].strip() not in ("", "---", "...", "{}")


def _in_folder(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.suffix in (".yaml", ".yml"))
