"""`federator-agent` as it finds itself after its host was booted anew: `python -m tests.support.other_boot BOOT_ID serve …`.

A test cannot reboot its machine. It ends everything that ran, as a reboot would, and starts the agent here, which is told another boot id.
"""

import sys

from federator_agent.__main__ import main
from federator_agent.local import traces

if __name__ == "__main__":
    traces.boot_id = lambda: sys.argv[1]
    sys.exit(main(sys.argv[2:]))
