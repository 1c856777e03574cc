"""Policies: look, compare, check, apply. A set is applied as a whole, with a reason, as a new version."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from federator.cli.columns import policy_columns
from federator.cli.exit_codes import FAILED
from federator.cli.output import ListOutput, Output, show_data, show_rows
from federator.cli.phrases import counted, plain
from federator.cli.policy_files import FileOption, PolicyText, read_set
from federator.cli.policy_replay import replay
from federator.cli.policy_verdicts import show_verdict
from federator.cli.sanitize import harmless
from federator.cli.session import HERE, Connection, ask
from federator.kernel.errors import Invalid
from federator.wire.administration import PolicyVerdict

app = App(name="policy")
app.command(replay)
Files = Annotated[
    Path, Parameter(help="YAML files, or folders of them; together they are the whole new set.")
]
AllowEmpty = Annotated[
    bool,
    Parameter(name="--allow-empty", negative="", help="Accept a set without any policy, which removes all."),
]


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
        text = "---\n".join(document.text.rstrip("\n") + "\n" for document in current.documents)
        print(harmless(text), end="")


@app.command
def validate(
    *files: Files, file: FileOption = (), allow_empty: AllowEmpty = False, connection: Connection = HERE
) -> int:
    """Check a set without applying it."""
    written = read_set((*files, *file), allow_empty=allow_empty)
    verdict, _ = ask(connection, lambda client: client.validate_policies(written.text))
    documents, rules = counted(len(verdict.documents), "document"), counted(verdict.rules, "rule")
    return _show_verdict(verdict, written, f"valid: {documents}, {rules}", verdict.access)


@app.command
def diff(
    *files: Files, file: FileOption = (), output: Output = "table", connection: Connection = HERE
) -> int:
    """Show how a set differs from the one in force: by document, and by what will hold."""
    written = read_set((*files, *file), allow_empty=True)
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
    file: FileOption = (),
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
    written = read_set((*files, *file), allow_empty=allow_empty)
    verdict, _ = ask(connection, lambda client: client.apply_policies(written.text, reason))
    documents = counted(len(verdict.documents), "document")
    return _show_verdict(
        verdict, written, f"version {verdict.version} is in force: {documents}", verdict.access
    )


@app.command
def history(*, output: ListOutput = "table", connection: Connection = HERE) -> None:
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
    return _show_verdict(verdict, PolicyText("", [(1, f"version {version}")]), done)


def _require(reason: str, remedy: str) -> None:
    if not reason.strip():
        raise Invalid("is missing", field="--reason", remedy=remedy)


def _show_verdict(verdict: PolicyVerdict, written: PolicyText, *fine: str) -> int:
    return show_verdict(verdict, *fine, located=written.located)
