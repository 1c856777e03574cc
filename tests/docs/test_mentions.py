"""What pages mention is there: files of the tree, targets of make, verbs and options of the commands, environment variables.

Decisions and the changelog tell of their time and are left out; pages of the reference are generated.
"""

import re
from collections.abc import Iterator
from functools import cache

from tests.architecture.sources import ROOT, of_each, text, tracked

PAGES = tuple(
    path
    for path in tracked()
    if path.endswith(".md")
    and path.startswith(("docs/", "README.md", "CONTRIBUTING.md"))
    and not path.startswith(("docs/decisions/", "docs/reference/"))
)
FOLDERS = (
    "federator",
    "agents",
    "providers",
    "policies",
    "tests",
    "tools",
    "deploy",
    "docs",
    "requirements",
    ".ci",
)
MADE = ("NAME", "…", "*", "{", "<")
"""A path with one of these stands for many."""
LABELS = ("federator/agent", "federator/rented", "federator/status")
"""They look like paths: labels of Kubernetes."""


def spans(page: str) -> Iterator[str]:
    """What a page sets in code: lines of blocks of commands, and what is quoted in sentences."""
    whole = text(page)
    for kind, block in re.findall(r"^```([^\n]*)\n(.*?)^```", whole, flags=re.DOTALL | re.MULTILINE):
        # A command may go on in the next line, and have a remark beside it.
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith("$ ") or (kind in ("", "text") and line.startswith("federator")):
                yield re.split(r"  #|\s{3,}", line.removeprefix("$ "))[0]
    unfenced = re.sub(r"^```.*?^```", "", whole, flags=re.DOTALL | re.MULTILINE)
    yield from re.findall(r"`([^`\n]+)`", unfenced)


@cache
def commands() -> dict[str, frozenset[str]]:
    """The options of every verb of both commands, from the reference, which the code writes."""
    found: dict[str, frozenset[str]] = {}
    for section in re.split(r"^#{1,4} ", text("docs/reference/cli.md"), flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        if title.startswith("federator"):
            # An option is written `--expires-in STR`; a switch also has its opposite, `--no-rich`.
            found[title.strip()] = frozenset(re.findall(r"(?<![\w-])--?[a-z][\w-]*", body))
    for section in re.split(r"^## ", text("docs/reference/agent-cli.md"), flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        found[f"federator-agent {title.strip()}"] = frozenset(re.findall(r"(?<![\w-])--?[a-z][\w-]*", body))
    found["federator-agent"] = frozenset({"-h", "--help"})
    return found


def calls(span: str) -> Iterator[list[str]]:
    """The words of each call of one of our commands in a line of shell, up to what it hands on."""
    for part in re.split(r"\|\|?|&&|;|\$\(|\)", span):
        words = part.split()
        while words and (re.fullmatch(r"\w+=\S*", words[0]) or words[0] in ("sudo", "if", "then")):
            words = words[1:]
        if words and re.fullmatch(r"(\.venv/bin/)?federator(-agent)?", words[0]):
            words[0] = words[0].removeprefix(".venv/bin/")
            yield words[: words.index("--")] if "--" in words else words


@of_each(PAGES)
def test_files_are_there(page: str) -> None:
    for span in spans(page):
        path = span.split("::")[0].rstrip("/")
        if not re.fullmatch(rf"({'|'.join(map(re.escape, FOLDERS))})/[\w./*{{}}<>-]+", path):
            continue
        if not any(sign in path for sign in MADE):
            there = (ROOT / path).exists() or (ROOT / f"{path}.py").exists()
            assert there or path in LABELS, f"{page} names {span}, which is not there"


@of_each(PAGES)
def test_targets_of_make_are_there(page: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", text("Makefile"), flags=re.MULTILINE))
    for span in spans(page):
        for target in re.findall(r"^make ([a-z-]+)", span):
            assert target in targets, f"{page} says make {target}"


@of_each(PAGES)
def test_verbs_and_options_are_there(page: str) -> None:
    known = commands()
    for words in (words for span in spans(page) for words in calls(span)):
        verb = words[0]
        for word in words[1:]:
            if f"{verb} {word}" not in known:
                break
            verb = f"{verb} {word}"
        rest = words[len(verb.split()) :]
        wants_verb = any(each.startswith(f"{verb} ") for each in known)
        stray = rest[0] if wants_verb and rest and re.fullmatch(r"[a-z][a-z-]*", rest[0]) else ""
        assert not stray, f"{page}: {' '.join(words)}: {verb} has no verb {stray}"
        for option in (re.match(r"--?[a-z][\w-]*", word) for word in rest):
            if option is not None:
                assert option[0] in known[verb] | {"--help", "-h"}, f"{page}: {verb} has no {option[0]}"


@of_each(PAGES)
def test_environment_variables_are_known(page: str) -> None:
    known = set(re.findall(r"FEDERATOR_\w+", text("docs/reference/environment.md")))
    testing = set(re.findall(r"FEDERATOR_\w+", "\n".join(text(path) for path in tracked() if path.startswith(("tests/", "Makefile")) and path.endswith((".py", ".sh", "Makefile")))))  # fmt: skip
    for name in re.findall(r"FEDERATOR_[A-Z_]*[A-Z]", text(page)):
        assert name in known | testing, f"{page} names {name}"


def test_what_the_walks_change_is_there_and_what_they_add_is_not() -> None:
    """So a walk of CONTRIBUTING.md that no longer fits the tree is seen at once, without being followed."""
    changed = 0
    for kind, path, block in re.findall(r"^```(\w+) (\S+/\S+|pyproject\.toml)\n(.*?)^```", text("CONTRIBUTING.md"), flags=re.DOTALL | re.MULTILINE):  # fmt: skip
        if kind != "diff":
            assert not (ROOT / path).exists(), f"CONTRIBUTING.md adds {path}, which is there"
            continue
        for out in re.findall(r"(?:^-.*\n)+", block, flags=re.MULTILINE):
            lines = "".join(f"{line[1:]}\n" for line in out.splitlines())
            assert text(path).count(lines) == 1, f"CONTRIBUTING.md takes these out of {path}:\n{lines}"
            changed += 1
    assert changed >= 20


def test_the_rules_find_what_is_wrong() -> None:
    known = commands()
    assert "--file" in known["federator submit"]
    assert "--nonsense" not in known["federator submit"]
    assert "federator token create" in known
    assert "--token" in known["federator-agent join"]
    (words,) = calls("A=1 federator run --gpus 1 -- sh -c 'federator nonsense'")
    assert words == ["federator", "run", "--gpus", "1"]
    assert len(list(calls("federator token create --site x | federator-agent join --token -"))) == 2
