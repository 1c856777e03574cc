"""Policies: look, compare, check, apply. A set is applied as a whole, with a reason, as a new version."""

import difflib
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from federator.cli.columns import policy_columns
from federator.cli.exits import FAILED
from federator.cli.output import Output, say, show_data, show_rows
from federator.cli.phrases import plain
from federator.cli.session import HERE, Connection, ask
from federator.kernel.errors import Invalid
from federator.wire.http import PolicyVerdict

app = App(name="policy", help="Show, check and apply policies.")
Files = Annotated[
    Path, Parameter(help="YAML files, or folders of them; together they are the whole new set.")
]


@app.command
def show(*, output: Output = "table", connection: Connection = HERE) -> None:
    """Print the policies in force, as they were written."""
    current, _ = ask(connection, lambda client: client.policies())
    if output in ("json", "yaml"):
        show_data(current, output)
    elif not current.documents:
        say("no policies are in force")
    else:
        print(f"# version {current.version}, by {plain(current.author)}: {plain(current.reason)}")
        print("---\n".join(document.text.rstrip("\n") + "\n" for document in current.documents), end="")


@app.command
def validate(*files: Files, connection: Connection = HERE) -> int:
    """Check a set without applying it."""
    text = _read(files)
    verdict, _ = ask(connection, lambda client: client.validate_policies(text))
    return _show_verdict(verdict, f"valid: {len(verdict.documents)} documents, {verdict.rules} rules")


@app.command
def diff(*files: Files, connection: Connection = HERE) -> int:
    """Show how a set differs from the one in force."""
    text = _read(files)
    current, _ = ask(connection, lambda client: client.policies())
    now = "---\n".join(document.text.rstrip("\n") + "\n" for document in current.documents)
    lines = difflib.unified_diff(
        now.splitlines(), text.splitlines(), f"version {current.version}", "new", lineterm=""
    )
    changed = list(lines)
    print("\n".join(changed) if changed else "no difference")
    return 0


@app.command
def apply(
    *files: Files,
    reason: Annotated[str, Parameter(name=("-m", "--reason"))] = "",
    connection: Connection = HERE,
) -> int:
    """Put a set in force in place of the present one.

    Parameters
    ----------
    reason:
        Why; kept with the version.
    """
    if not reason.strip():
        raise Invalid(
            "is missing", field="--reason", remedy="write why, as in -m 'let research burst at night'"
        )
    text = _read(files)
    verdict, _ = ask(connection, lambda client: client.apply_policies(text, reason))
    return _show_verdict(
        verdict, f"version {verdict.version} is in force: {len(verdict.documents)} documents"
    )


@app.command
def history(*, output: Output = "table", connection: Connection = HERE) -> None:
    """List the versions that have been in force, newest first, with author and reason."""
    versions, now = ask(connection, lambda client: client.policy_history())
    show_rows(versions[::-1], policy_columns(now), output, empty="no policies yet")


def _read(files: tuple[Path, ...]) -> str:
    """All documents of all files, as one text."""
    found = [inner for file in files for inner in (_in_folder(file) if file.is_dir() else [file])]
    if not found:
        raise Invalid("no policy file", field="FILES", remedy="name one or more YAML files")
    texts = [sys.stdin.read() if str(file) == "-" else file.read_text() for file in found]
    return "---\n".join(text.removeprefix("---\n").rstrip("\n") + "\n" for text in texts)


def _in_folder(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.suffix in (".yaml", ".yml"))


def _show_verdict(verdict: PolicyVerdict, fine: str) -> int:
    for problem in verdict.problems:
        where = f"{problem.field}: " if problem.field else ""
        remedy = f" ({problem.remedy})" if problem.remedy else ""
        print(f"error: {plain(where + problem.detail + remedy)}", file=sys.stderr)
    if verdict.problems:
        return FAILED
    print(fine)
    return 0
