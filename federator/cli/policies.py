"""Policies: look, compare, check, apply. A set is applied as a whole, with a reason, as a new version."""

import json
import re
import sys
from pathlib import Path
from typing import Annotated, NamedTuple

from cyclopts import App, Parameter

from federator.cli.columns import policy_columns
from federator.cli.exits import FAILED
from federator.cli.output import Output, show_data, show_rows
from federator.cli.phrases import counted, plain
from federator.cli.policy_replay import replay
from federator.cli.session import HERE, Connection, ask
from federator.kernel.errors import Invalid
from federator.wire.http import PolicyVerdict
from federator_policies.schema import document_schema

app = App(name="policy", help="Show, check, try and apply policies.")
app.command(replay)
Files = Annotated[
    Path, Parameter(help="YAML files, or folders of them; together they are the whole new set.")
]
AllowEmpty = Annotated[
    bool, Parameter(name="--allow-empty", negative="", help="Take a set without any policy: all go away.")
]
_LINE = re.compile(r"\bline (\d+)\b")


class _Written(NamedTuple):
    """Files as the one text that is sent, and on which of its lines each begins."""

    text: str
    begins: list[tuple[int, str]]

    def where(self, line: int) -> str:
        """The file and its own line, of a line of the text."""
        first, file = next(each for each in reversed(self.begins) if each[0] <= line)
        return f"{file}, line {line - first + 1}"


@app.command
def show(*, output: Output = "table", connection: Connection = HERE) -> None:
    """Print the policies in force, as they were written."""
    current, _ = ask(connection, lambda client: client.policies())
    if output in ("json", "yaml"):
        show_data(current, output)
    elif not current.documents:
        print("# no policies are in force")
    else:
        print(f"# version {current.version}, by {plain(current.author)}: {plain(current.reason)}")
        print("---\n".join(document.text.rstrip("\n") + "\n" for document in current.documents), end="")


@app.command
def validate(*files: Files, allow_empty: AllowEmpty = False, connection: Connection = HERE) -> int:
    """Check a set without applying it."""
    written = _read(files, allow_empty=allow_empty)
    verdict, _ = ask(connection, lambda client: client.validate_policies(written.text))
    documents, rules = counted(len(verdict.documents), "document"), counted(verdict.rules, "rule")
    return _show_verdict(verdict, written, f"valid: {documents}, {rules}")


@app.command
def diff(*files: Files, output: Output = "table", connection: Connection = HERE) -> int:
    """Show how a set differs from the one in force: by document, and by what will hold."""
    written = _read(files, allow_empty=True)
    found, _ = ask(connection, lambda client: client.diff_policies(written.text))
    if output in ("json", "yaml"):
        show_data(found, output)
        return FAILED if found.problems else 0
    if found.problems:
        return _show_verdict(PolicyVerdict(None, problems=found.problems), written, "")
    if not found.documents:
        print(f"no difference from version {found.version}")
        return 0
    for change in found.documents:
        print(f"{change.change}: {plain(change.document)}")
        print("\n".join(f"  {plain(line)}" for line in change.lines))
    if found.added or found.removed:
        print("\neffect:")
        print(
            "\n".join(
                [f"- {plain(line)}" for line in found.removed] + [f"+ {plain(line)}" for line in found.added]
            )
        )
    else:
        print("\nthe effect is the same")
    return 0


@app.command
def apply(
    *files: Files,
    reason: Annotated[str, Parameter(name=("-m", "--reason"))] = "",
    allow_empty: AllowEmpty = False,
    connection: Connection = HERE,
) -> int:
    """Put a set in force in place of the present one.

    Parameters
    ----------
    reason:
        Why; kept with the version.
    """
    _require(reason, "write why, as in -m 'let research burst at night'")
    written = _read(files, allow_empty=allow_empty)
    verdict, _ = ask(connection, lambda client: client.apply_policies(written.text, reason))
    documents = counted(len(verdict.documents), "document")
    return _show_verdict(verdict, written, f"version {verdict.version} is in force: {documents}")


@app.command
def history(*, output: Output = "table", connection: Connection = HERE) -> None:
    """List the versions that have been in force, newest first, with author and reason."""
    versions, now = ask(connection, lambda client: client.policy_history())
    show_rows(versions[::-1], policy_columns(now), output, empty="no policies yet")


@app.command
def rollback(
    version: int,
    *,
    reason: Annotated[str, Parameter(name=("-m", "--reason"))] = "",
    connection: Connection = HERE,
) -> int:
    """Put a former version in force again, as a new version.

    Parameters
    ----------
    version:
        As `federator policy history` lists it.
    reason:
        Why; kept with the new version.
    """
    _require(reason, "write why, as in -m 'the night budget was too low'")
    verdict, _ = ask(connection, lambda client: client.rollback_policies(version, reason))
    done = f"version {verdict.version} is in force: the documents of version {version}"
    return _show_verdict(verdict, _Written("", [(1, f"version {version}")]), done)


@app.command
def schema() -> None:
    """Print the JSON Schema of policy documents, for editors and checks before a commit."""
    print(json.dumps(document_schema(), indent=2, sort_keys=True))


def _require(reason: str, remedy: str) -> None:
    if not reason.strip():
        raise Invalid("is missing", field="--reason", remedy=remedy)


def _read(files: tuple[Path, ...], *, allow_empty: bool) -> _Written:
    """All documents of all files, as one text."""
    found = [inner for file in files for inner in (_in_folder(file) if file.is_dir() else [file])]
    if not found:
        raise Invalid("no policy file", field="FILES", remedy="name one or more YAML files")
    lines: list[str] = []
    begins: list[tuple[int, str]] = []
    for file in found:
        text = sys.stdin.read() if str(file) == "-" else file.read_text()
        if lines:
            lines.append("---")
        inner = text.removeprefix("---\n")
        begins.append((len(lines) + 1 - (inner != text), "standard input" if str(file) == "-" else str(file)))
        lines += inner.rstrip("\n").split("\n")
    if not allow_empty and not any(map(_says_something, lines)):
        raise Invalid(
            "there is no policy in it: applied, it would take all policies away",
            field="FILES",
            remedy="write --allow-empty if that is meant",
        )
    return _Written("\n".join(lines) + "\n", begins)


def _says_something(line: str) -> bool:
    """Whether there is more on it than a comment, or the begin or end of a document."""
    return line.partition("#")[0].strip() not in ("", "---", "...", "{}")


def _in_folder(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.suffix in (".yaml", ".yml"))


def _show_verdict(verdict: PolicyVerdict, written: _Written, fine: str) -> int:
    for problem in verdict.problems:
        where = f"{problem.field}: " if problem.field else ""
        remedy = f" ({problem.remedy})" if problem.remedy else ""
        detail = _LINE.sub(lambda found: written.where(int(found[1])), problem.detail)
        print(f"error: {plain(where + detail + remedy)}", file=sys.stderr)
    if verdict.problems:
        return FAILED
    print(fine)
    return 0
