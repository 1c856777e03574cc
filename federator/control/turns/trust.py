"""Whose work goes to a site that does not keep jobs apart."""

from collections.abc import Iterable

from federator.model.capacity import Lease
from federator.model.identity import Token, administrators
from federator.model.sites import SHARED_TRUST, SiteReport


def trusted(
    report: SiteReport, site: str, lease: Lease | None, tokens: Iterable[Token]
) -> tuple[str, ...] | None:
    """Whom it trusts, as `model.whose` reads it; None: it takes everybody's work.

    A site that names nobody trusts the administrators. A rented machine is the federation's own: it takes what it was rented for, whoever's that is.
    """
    if report.isolation != SHARED_TRUST:
        return None
    if report.trusts:
        return report.trusts
    return None if lease is not None else administrators(tokens, site)
