"""`store`: what an operator does to the store while no dispatcher runs, such as adopting a restored backup."""

import asyncio
from pathlib import Path

from cyclopts import App

app = App(name="store")


@app.command
def adopt(*, config: Path | None = None, state_dir: Path | None = None) -> None:
    """Take a store that was restored from a backup for the present one.

    Stop all dispatchers first. The store gets another incarnation, so that agents start afresh with it. The next dispatcher places, stops and ends
    nothing until each site has reported in full or was declared dead; work that the store does not know goes on.

    Parameters
    ----------
    config:
        YAML file of settings, as for serve.
    state_dir:
        Where the records are, if no file says so.
    """
    from federator.app import adopt_store
    from federator.config import load_settings

    settings = load_settings(config, state_dir=None if state_dir is None else str(state_dir))
    incarnation = asyncio.run(adopt_store(settings))
    print(
        f"adopted: incarnation {incarnation}; now start the dispatcher, which hears all sites before it acts"
    )
