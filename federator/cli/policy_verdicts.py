"""What the dispatcher says of a set of policies, told to a person."""

from collections.abc import Callable

from federator.cli.exit_codes import FAILED
from federator.cli.output import say_error
from federator.cli.phrases import plain
from federator.wire.administration import PolicyVerdict


def show_verdict(verdict: PolicyVerdict, *fine: str, located: Callable[[str], str] = str) -> int:
    """What is wrong with a set, or the lines that say that it is fine; the exit code. `located` finds a problem's line in what the person wrote."""
    for problem in verdict.problems:
        where = f"{problem.field}: " if problem.field else ""
        remedy = f" ({problem.remedy})" if problem.remedy else ""
        detail = located(problem.detail)
        say_error(plain(where + detail + remedy))
    if verdict.problems:
        return FAILED
    print("\n".join(filter(None, fine)))
    return 0
