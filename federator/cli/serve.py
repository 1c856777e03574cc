"""`serve`: the dispatcher itself. Everything heavy is imported when it is asked for."""

import asyncio
import faulthandler
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from federator.cli.planner import ready_planner


def serve(
    *,
    config: Path | None = None,
    state_dir: Path | None = None,
    port: int | None = None,
    check: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Run the dispatcher until it is told to stop (SIGTERM, Ctrl-C).

    Parameters
    ----------
    config:
        YAML file of settings.
    state_dir:
        Where its records, blobs and logs live.
    port:
        TCP port; 0 takes a free one.
    check:
        Read the settings, say what is wrong with them, and end.
    """
    from federator.app import serve as run_dispatcher
    from federator.config import load_settings

    read = partial(load_settings, config, state_dir=None if state_dir is None else str(state_dir), port=port)
    settings = read()
    if check:
        print(
            f"the settings of federation {settings.federation} have no mistake; state in {settings.state_dir}"
        )
        return
    ready_planner()
    faulthandler.enable()  # a watchdog that ends it leaves in the log where it stood
    asyncio.run(
        run_dispatcher(settings, started=lambda address: _announce(address, settings.state_dir), read=read)
    )


def _announce(address: str, state_dir: str) -> None:
    print(address, flush=True)
    print(f"federator: listening; state in {state_dir}", file=sys.stderr, flush=True)
