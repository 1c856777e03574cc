"""`store`: what an operator does to the store itself: back it up, restore it, adopt a restored one, move its files to a bucket."""

import asyncio
from pathlib import Path

from cyclopts import App

from federator.kernel.quantities import format_instant

app = App(name="store")


@app.command
def backup(file: Path, *, config: Path | None = None, state_dir: Path | None = None) -> None:
    """Write all records, as they are at one moment, to a file; a dispatcher may run meanwhile.

    The file is read again and checked. Work directories, outputs and logs are not in it: copy the folder `blobs`, or keep the bucket. Nor is the ledger's
    private key. Keep it as you keep secrets: it holds digests of tokens, and what people wrote into their job files.

    Parameters
    ----------
    file:
        A new file.
    config:
        YAML file of settings, as for serve.
    state_dir:
        Where the records are, if no file says so.
    """
    from federator.backups import back_up
    from federator.config import load_settings

    settings = load_settings(config, state_dir=None if state_dir is None else str(state_dir))
    header, trailer = asyncio.run(back_up(settings, file))
    size_mib = file.stat().st_size / 2**20
    print(
        f"{file}: {trailer.rows} records of {header.federation} at revision {header.revision}, {size_mib:.1f} MiB, checked"
    )


@app.command
def upload(folder: Path, *, config: Path | None = None, state_dir: Path | None = None) -> None:
    """Bring work directories, outputs and logs from a folder to the bucket that the settings name.

    Stop all dispatchers first, and start them with `store.s3` afterwards. What is in the bucket already is passed over, so it may be run again.

    Parameters
    ----------
    folder:
        `blobs` in the state directory; with etcd the folder that was `store.etcd.shared_dir`.
    config:
        YAML file of settings with `store.s3`, as for serve.
    state_dir:
        Where the records are, if no file says so.
    """
    from federator.backups import upload as bring
    from federator.config import load_settings

    settings = load_settings(config, state_dir=None if state_dir is None else str(state_dir))
    blobs, logs = asyncio.run(bring(settings, folder))
    print(f"{blobs} work directories and outputs and {logs} logs of {folder} are in the bucket")


@app.command
def restore(
    file: Path, *, replace: bool = False, config: Path | None = None, state_dir: Path | None = None
) -> None:
    """Put the records of a backup in place of all that the store has, and take it for the present one.

    Stop all dispatchers first: a store that is in use is refused. The file is checked before anything is changed. As after `adopt`, the next dispatcher
    places, stops and ends nothing until each site has reported in full or was declared dead.

    Parameters
    ----------
    file:
        What `federator store backup` has written, of the embedded store or of etcd.
    replace:
        Also where the store has records. A file is put aside; those in etcd are removed.
    config:
        YAML file of settings, as for serve.
    state_dir:
        Where the records are, if no file says so.
    """
    from federator.backups import restore as put_back
    from federator.config import load_settings

    settings = load_settings(config, state_dir=None if state_dir is None else str(state_dir))
    header, incarnation = asyncio.run(put_back(settings, file, replace=replace))
    made = format_instant(header.made_at)
    print(f"restored {header.federation} as of {made}: incarnation {incarnation}")
    print("now start the dispatcher, which hears all sites before it acts")


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
    from federator.backups import adopt_store
    from federator.config import load_settings

    settings = load_settings(config, state_dir=None if state_dir is None else str(state_dir))
    incarnation = asyncio.run(adopt_store(settings))
    print(
        f"adopted: incarnation {incarnation}; now start the dispatcher, which hears all sites before it acts"
    )
