"""`serve`: the dispatcher itself. Everything heavy is imported when it is asked for."""

import asyncio
import sys
from pathlib import Path

from federator.cli.planner import ready_planner


def serve(*, config: Path | None = None, state_dir: Path | None = None, port: int | None = None) -> None:
    """Run the dispatcher until it is told to stop (SIGTERM, Ctrl-C).

    Parameters
    ----------
    config:
        YAML file of settings.
    state_dir:
        Where its records, blobs and logs live.
    port:
        TCP port; 0 takes a free one.
    """
    from federator.app import serve as run_dispatcher
    from federator.config import load_settings

    settings = load_settings(config, state_dir=None if state_dir is None else str(state_dir), port=port)
    ready_planner()
    asyncio.run(run_dispatcher(settings, started=lambda address: _announce(address, settings.state_dir)))


def _announce(address: str, state_dir: str) -> None:
    print(address, flush=True)
    print(f"federator: listening; state in {state_dir}", file=sys.stderr, flush=True)
