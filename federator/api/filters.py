"""Names that a list is narrowed down to, and that nobody knows: a name that is misspelt must not read as "there is nothing"."""

from federator.api.exchange import Call
from federator.kernel.errors import Invalid
from federator.model.queues import under

SHOWN = 20


def refuse_unknown(call: Call, *, site: str, queue: str) -> None:
    """Raise `Invalid` for a site or queue that there is not. Asked where nothing was found: what was forgotten since has jobs still."""
    sites = call.core.records.sites
    if site and site not in sites:
        known = ", ".join(sorted(sites)[:SHOWN]) or "none yet"
        raise Invalid(f"there is no site {site!r}", field="?site", remedy=f"sites are: {known}")
    queues = [each.queue for each in call.core.authority.now.queues]
    if queue and not any(under(each, queue) for each in queues):
        known = ", ".join(queues[:SHOWN])
        raise Invalid(f"there is no queue {queue!r}", field="?queue", remedy=f"queues are: {known}")
