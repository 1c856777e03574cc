"""Completion of words for the shells bash, zsh and fish."""

from pathlib import Path
from typing import Literal

from federator.kernel.errors import Invalid


def install_completion(shell: Literal["bash", "zsh", "fish"] | None = None) -> None:
    """Install completion of words for your shell, and print the file that was written.

    It counts from the next shell on. For bash and zsh a line in ~/.bashrc or ~/.zshrc names the file. Repeat the command after an upgrade.

    Parameters
    ----------
    shell:
        For which shell; else for the one that started this command.
    """
    from cyclopts.completion.detect import ShellDetectionError

    from federator.cli.app import build_app

    try:
        file = build_app().install_completion(shell=shell)
    except ShellDetectionError:
        raise Invalid(
            "cannot tell which shell this is", field="SHELL", remedy="write bash, zsh or fish"
        ) from None
    if file.name.startswith("_"):
        _load_completions(Path.home() / ".zshrc")
    print(_short(file))


def _load_completions(zshrc: Path) -> None:
    """A zsh that nobody has set up loads no completions at all; frameworks do it by themselves."""
    text = zshrc.read_text() if zshrc.exists() else ""
    if not any(word in text for word in ("compinit", "oh-my-zsh", "prezto", "zinit", "antidote", "zim")):
        zshrc.write_text(f"{text.rstrip()}\nautoload -Uz compinit && compinit\n")


def _short(file: Path) -> str:
    home = Path.home()
    return f"~/{file.relative_to(home)}" if file.is_relative_to(home) else str(file)
