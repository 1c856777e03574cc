"""People at hosts that are cut off: they submit to the agent there, and cancel there, as `federator local` does."""

import asyncio
from collections.abc import Mapping

from federator.kernel.ids import IdSource
from federator.simulation.virtual_time import ORIGIN_AT
from federator.wire.jobfile import encode_spec
from federator_agent.core.events import Event, LocalCancelled, LocalSubmitted
from federator_agent.local_socket import REQUEST_S, admissible
from tests.lab.faults.agents import AgentLife
from tests.lab.faults.hosts import Host
from tests.lab.faults.plan import Deed, JobPlan
from tests.lab.faults.scene import Scene
from tests.lab.faults.users import USER, Users, request_of

TRIES, AGAIN_S = 8, (10.0, 120.0)
NO_ANSWER = "there is no answer"


class LocalUsers:
    """All of them. Who gets no answer does not know whether the job was admitted, and submits another."""

    def __init__(
        self, scene: Scene, hosts: Mapping[str, Host], lives: Mapping[str, AgentLife], users: Users
    ) -> None:
        self._hosts, self._lives, self._users = hosts, lives, users
        self._truth, self._journal, self._loop = scene.truth, scene.journal, scene.loop
        self._chance = scene.chance("local users")

    async def submit(self, job: JobPlan) -> None:
        """Submit a job at its time, a few times where it is refused, and see to it afterwards."""
        await asyncio.sleep(job.submit_s)
        clock = self._hosts[job.admitted_by].clock
        ids = IdSource(clock, self._chance.getrandbits)
        spec = admissible(request_of(job, ORIGIN_AT + self._loop.time()))
        for _ in range(TRIES):
            asked = LocalSubmitted(
                job=ids.new("job"),
                placement=ids.new("pl"),
                owner=USER.name,
                spec=spec,
                text=encode_spec(spec).decode(),
                at=clock.now(),
                max_duration_s=job.max_duration_s,
            )
            refusal = await self._ask(job.admitted_by, asked.placement, asked)
            self._journal.note(job.admitted_by, f"{job.name} is {refusal[:80] or 'admitted'}")
            if not refusal:
                self._truth.accepted[asked.job] = job
                for deed in job.deeds:
                    self._loop.create_task(self._cancel(job.admitted_by, asked, deed))
                return
            await asyncio.sleep(self._chance.uniform(*AGAIN_S))

    async def _cancel(self, member: str, admitted: LocalSubmitted, deed: Deed) -> None:
        """At the host, or else at the dispatcher."""
        await asyncio.sleep(deed.after_s)
        refusal = await self._ask(
            member, admitted.placement, LocalCancelled(admitted.placement, admitted.owner)
        )
        self._journal.note(member, f"cancel {admitted.job[-6:]}: {refusal[:80] or 'done'}")
        if refusal:
            await self._users.change(admitted.job, deed.verb)
        else:
            self._truth.called_off[admitted.job] = member

    async def _ask(self, member: str, placement: str, event: Event) -> str:
        """Have the agent decide; its refusal."""
        life = self._lives.get(member)
        if life is None:
            return NO_ANSWER
        answer: asyncio.Future[str] = self._loop.create_future()
        life.asked[placement] = answer
        life.process.call(life.tell, event)
        try:
            async with asyncio.timeout(REQUEST_S):
                return await answer
        except TimeoutError:
            return NO_ANSWER
