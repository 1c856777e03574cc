"""Pages that lead somewhere: a dead link or a path that exists on one machine only costs a reader more than no page."""

import re
from pathlib import PurePosixPath

from tests.architecture.sources import ROOT, of_each, text, tracked

PAGES = tuple(path for path in tracked() if path.endswith(".md"))
LINK = re.compile(r"(?<!\!)\[[^\]]*\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)|!\[[^\]]*\]\(([^)\s]+)\)")

# Spelled in pieces, so that this file does not contain what it looks for.
INDEX_HOSTS = tuple(
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pypi", "python", "org"),
        ("pythonhosted", "org"),
        ("registry", "npmjs", "org"),
        ("deb", "debian", "org"),
    )
)
MACHINE_PATHS = tuple(
    "/" + "/".join(parts) + "/"
    for parts in (("work", "main"), ("work", "shared"), ("root",), ("opt", "pypi"))
)


def prose(path: str) -> str:
    """A page without its code: what is fenced or quoted is neither heading nor link."""
    unfenced = re.sub(r"^(```|~~~).*?^\1\s*$", "", text(path), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "`code`", unfenced)


def anchors(path: str) -> set[str]:
    """The anchors that a page's headings get, as Git forges make them."""
    unfenced = re.sub(r"^(```|~~~).*?^\1\s*$", "", text(path), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ +(.+?) *#*$", unfenced, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@of_each(PAGES)
def test_links_lead_somewhere(path: str) -> None:
    for target in (first or second for first, second in LINK.findall(prose(path))):
        if re.match(r"[a-z]+:", target):
            continue
        place, _, anchor = target.partition("#")
        found = (ROOT / path).parent / place if place else ROOT / path
        assert found.exists(), f"{path} links to {target}, which does not exist"
        if anchor and found.suffix == ".md":
            known = anchors(str(PurePosixPath(found.resolve().relative_to(ROOT))))
            assert anchor in known, f"{path} links to {target}; that page has no such heading"


@of_each(PAGES)
def test_page_has_one_title(path: str) -> None:
    titles = re.findall(r"^# .+$", prose(path), flags=re.MULTILINE)
    assert len(titles) == 1, f"{path} has {len(titles)} titles: a page is about one thing"


def test_every_page_can_be_found() -> None:
    """A page under docs/ that no other page links to will not be read."""
    linked = set()
    for path in PAGES:
        for target in (first or second for first, second in LINK.findall(prose(path))):
            if not re.match(r"[a-z]+:", target):
                linked.add(((ROOT / path).parent / target.partition("#")[0]).resolve())
    lost = [path for path in PAGES if path.startswith("docs/") and (ROOT / path).resolve() not in linked]
    assert not lost, f"no page links to {', '.join(lost)}"


@of_each(tracked())
def test_nothing_belongs_to_one_machine(path: str) -> None:
    content = (ROOT / path).read_bytes()
    for word in (*INDEX_HOSTS, *MACHINE_PATHS):
        assert word.encode() not in content, f"{path} names {word}: leave it to whoever installs"
