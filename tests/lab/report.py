"""`python -m tests.lab report`: the page of a study with plots."""

from pathlib import Path

import msgspec

from federator.cli.contrasting import put
from federator.kernel.errors import Invalid
from tests.lab.study_page import page_of


def report(figures: Path, *, out: Path = Path("report.html")) -> None:
    """Write the report of a simulation as a page with plots; it opens without a network.

    Parameters
    ----------
    figures:
        What `federator simulate` or `federator policy replay` has written with --json.
    out:
        The HTML file.
    """
    try:
        page = page_of(figures.read_bytes())
    except msgspec.MsgspecError as error:
        raise Invalid(
            f"has no figures of a simulation: {error}",
            field=str(figures),
            remedy="write it with federator simulate --json",
        ) from None
    put(out, page)
