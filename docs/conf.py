"""How Sphinx makes a site of these pages: `make docs` builds it into build/site, with search, and nothing on it is loaded from elsewhere.

The sources stay plain Markdown that forges show as they are. So the menu is read from the index pages (a heading is a caption, its links are the entries), and Mermaid diagrams are drawn
at build time.
"""

import re
from pathlib import Path, PurePosixPath
from typing import ClassVar

import mmdr
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

project = "Federator"
extensions = ["myst_parser"]
root_doc = "docs/README"
include_patterns = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/**"]
exclude_patterns = ["docs/conf.py"]
html_theme = "furo"
html_title = project
html_copy_source = False
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
myst_heading_anchors = 6
myst_fence_as_directive = ["mermaid"]

INDEXES = (root_doc, "docs/reference/README", "docs/decisions/README")


class Mermaid(SphinxDirective):
    """A fenced Mermaid diagram, as SVG on a light ground."""

    has_content: ClassVar[bool] = True

    def run(self) -> list[nodes.Node]:
        """The diagram in place of its text."""
        drawing = mmdr.render("\n".join(self.content)).svg()
        # Its words are to be as large as the page's small ones; what is wider than the page is scrolled.
        drawn = re.search(r'width="100%"(.*?) style="max-width:([\d.]+)px"', drawing)
        width = f'width="{0.65 * float(drawn[2]):.0f}"{drawn[1]}'
        return [
            nodes.raw("", f'<div class="diagram">{drawing.replace(drawn[0], width)}</div>', format="html")
        ]


def add_menu(app: Sphinx, docname: str, source: list[str]) -> None:
    """Give an index page a hidden table of contents: what each of its sections links to. Whoever links to a page first has it."""
    if docname not in INDEXES:
        return
    menus, taken = [], set()
    for section in re.split(r"^##? ", source[0], flags=re.MULTILINE)[1:]:
        caption, _, text = section.partition("\n")
        pages = [
            PurePosixPath("/", docname).parent / link for link in re.findall(r"\]\(([\w./-]+)\.md\)", text)
        ]
        entries = [str(page) for page in pages if str(page) not in taken and not taken.add(str(page))]
        if entries:
            title = f"\n:caption: {caption.strip()}" if docname == root_doc else ""
            menus.append(f"```{{toctree}}{title}\n:hidden:\n\n" + "\n".join(entries) + "\n```\n")
    source[0] += "\n\n" + "\n".join(menus)


def add_front_door(app: Sphinx, failure: Exception | None) -> None:
    """Lead from the top of the site to the first page."""
    if failure is None:
        to = f"{root_doc}.html"
        Path(app.outdir, "index.html").write_text(
            f'<!doctype html><meta http-equiv="refresh" content="0; url={to}"><a href="{to}">{project}</a>\n'
        )


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.add_directive("mermaid", Mermaid)
    app.connect("source-read", add_menu)
    app.connect("build-finished", add_front_door)
