"""What all parts of a world stand on: time, the fault profile, network, truth, and a journal of what happens."""

import random
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.lab.faults.fault_profile import FaultProfile
from tests.lab.faults.journal import Journal
from tests.lab.faults.network import Network
from tests.lab.faults.plan import Plan
from tests.lab.faults.processes import FaultLoop
from tests.lab.faults.truth import Truth


class Scene:
    """Made once for a world."""

    def __init__(self, plan: Plan, loop: FaultLoop, tell: Callable[[str], None] | None) -> None:
        self.plan = plan
        self.loop = loop
        self.journal = Journal(loop, tell)
        self.profile = FaultProfile(loop)
        self.truth = Truth(plan, loop, self.journal)
        self.network = Network(loop, self.profile, self.chance("network"))
        self.has_data = any(host.link is not None for host in plan.hosts)
        self.folder = Path(tempfile.mkdtemp(prefix="faults-")) if self.has_data else Path()
        """Where its members have their disks, in worlds with data."""

    def chance(self, what: str) -> random.Random:
        """Chance of its own for each part, so that one draw does not move another's."""
        return random.Random(f"{self.plan.seed}/{what}")
