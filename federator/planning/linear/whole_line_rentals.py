"""The rentals that a plan of the whole line leads to, as whole jobs.

A window's own model cannot see most of what competes with it, and its evaluator neither: both take the GPUs of the next hours for freer than they are, so both
put off what should be rented for. The plan of the whole line was made of all of it. Parts of jobs are rounded, the largest first. It is two or three turns old, so what has come
since is not rented for before the next one, some seconds later: cases are made a minute before it would be too late. Who starts on what is there is not taken from that plan: it puts off
whatever a fluid can make up for, and by the time that it is used others stand where it had room.
"""

import numpy as np

from federator.model.snapshot import JobView, Lead
from federator.planning.places.candidates import machines
from federator.planning.scheduling.objective import Evaluator

WHOLE = 1e-6
ROUNDED = 0.2
"""A smaller part of a job is not rented for."""


def lead_starts(evaluator: Evaluator) -> dict[str, int]:
    """What the problem's leads come to: job to choice of an offer."""
    return _Leading(evaluator).starts()


class _Leading:
    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator, self._world = evaluator, evaluator.world
        self._stocks = self._world.stocks.copy()
        self._starts: dict[str, int] = {}

    def starts(self) -> dict[str, int]:
        """So many whole jobs of each lead; then of what is left the largest parts as whole ones."""
        leads = [each for each in self._world.problem.leads if self._known(each)]
        left = [
            (self._give(lead, int(lead.jobs + WHOLE)) - lead.jobs, number)
            for number, lead in enumerate(leads)
        ]
        for short, number in sorted(left):
            if -short >= ROUNDED:
                self._give(leads[number], int(np.ceil(-short - WHOLE)))
        return self._starts

    def _known(self, lead: Lead) -> bool:
        """Whether job, offer and form are still there, and the offer is open to it."""
        job = self._world.by_id.get(lead.job)
        return (
            job is not None
            and lead.place in self._world.named
            and self._choice(lead) in self._world.open_to(job)
        )

    def _choice(self, lead: Lead) -> int:
        return self._world.named[lead.place] + lead.form * len(self._world.places)

    def _give(self, lead: Lead, count: int) -> int:
        """Rent for so many of its class, as far as they have a case and there is one to be had; for how many it is."""
        choice, given = self._choice(lead), 0
        for job in self._world.alike[self._world.key(self._world.by_id[lead.job])] if count else ():
            if given >= count:
                break
            if job.id not in self._starts and self._evaluator.bursting.case_now(job, choice):
                if not self._take(job, choice):
                    break
                self._starts[job.id] = choice
                given += 1
        return given

    def _take(self, job: JobView, choice: int) -> bool:
        """Whether so many machines are still to be had, which are then taken."""
        needed = machines(self._world.as_form(job, choice), self._world.places[choice])
        return self._stocks.take_some(self._world.place_of(choice), needed)
