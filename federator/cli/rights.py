"""Words for what a person may do in a queue, for `whoami` and lists of queues."""

from federator.cli.phrases import NONE, usd
from federator.wire.rights import QueueRights


def rights_in_words(rights: QueueRights) -> str:
    """What somebody may do in a queue: `priority to 60, no renting, as vision`."""
    if not rights.submit:
        return NONE
    words = ["administer"] if rights.administer else []
    words.append(f"priority to {rights.max_priority}")
    if rights.max_value_usd is not None:
        words.append(f"value to {usd(rights.max_value_usd)}")
    words += ["must"] if rights.must else []
    words += [] if rights.rent else ["no renting"]
    words += [f"as {' or '.join(rights.teams)}"] if rights.teams else []
    return ", ".join(words)
