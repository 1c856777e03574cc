"""A signature by a key of the agent, made by a process that ends with it.

cryptography takes 7 MB of memory, and an agent signs once a session: one that idles at an edge site for weeks does not keep it loaded. Read by this process
alone, the key is not in the memory of the agent either. `python -m federator_agent.signing KEYFILE` signs what comes on its standard input.
"""

import asyncio
import subprocess
import sys
from pathlib import Path

from federator.kernel.errors import Unauthenticated
from federator_agent.untraceable import be_untraceable

LONGEST_S = 15.0
"""Real seconds for one signature."""


async def signed(key: Path, message: bytes) -> str:
    """The signature in hex. Raises `Unauthenticated` when the key cannot be used."""
    # Without -P the folder that the agent was started in could stand in for a module.
    command = [sys.executable, "-P", "-m", __name__, str(key)]
    try:
        ran = await asyncio.to_thread(
            subprocess.run, command, input=message, capture_output=True, timeout=LONGEST_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise Unauthenticated(f"signing with {key} took more than {LONGEST_S:g} s") from None
    if ran.returncode:
        why = (ran.stderr.decode(errors="replace").splitlines() or [f"exit code {ran.returncode}"])[-1]
        remedy = "see that this user may read it, or join anew with --new-key"
        raise Unauthenticated(f"the key {key} cannot be used: {why}", remedy=remedy)
    return ran.stdout.decode()


if __name__ == "__main__":
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    be_untraceable()
    _key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(Path(sys.argv[1]).read_text()))
    sys.stdout.write(_key.sign(sys.stdin.buffer.read()).hex())
