"""Which dispatcher the command and the Python client talk to, and as whom. The only module of theirs that reads the environment.

In order: the options, `FEDERATOR_SERVER`, `FEDERATOR_TOKEN` and `FEDERATOR_CA`, the file `~/.config/federator/config.yaml`, what `federator login` keeps, and last what a
dispatcher on this machine has left in its state directory: whoever may read its admin token there may use it, so that a
first try needs no set-up at all.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from federator.client.credentials import SignIns
from federator.client.transport import DEFAULT_SERVER
from federator.kernel.errors import Invalid

ADDRESS_FILE = "address"
TOKEN_FILE = "admin.token"  # noqa: S105 - the name of a file
CA_FILE = "ca.pem"


class ClientSettings(msgspec.Struct, frozen=True):
    """Where to ask, and with which credential. `source` says where the address came from, for error messages.

    `ca`: PEM file of the certificate authority to trust; empty: this machine's. `proxy`: a URL or `none`; empty: as HTTPS_PROXY and its like say.
    """

    server: str
    token: str | None
    source: str
    ca: str = ""
    proxy: str = ""
    token_source: str = ""
    """Where a token was written that goes before a sign-in; empty: nowhere."""
    signed_in: bool = False
    """Whether the credential is the sign-in that is kept for this address."""


def read_settings(
    server: str | None = None,
    token: str | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    ca: str | None = None,
) -> ClientSettings:
    """Settings from options, environment and files. Raises `Invalid` for a file that cannot be used."""
    environ = os.environ if environ is None else environ
    home = Path(environ.get("HOME") or "/")
    file = _config_file(config_folder(environ) / "config.yaml")
    state_dir = Path(environ.get("FEDERATOR_STATE_DIR") or home / ".local/share/federator").expanduser()
    local = _first_line(state_dir / ADDRESS_FILE)
    sign_ins = SignIns(environ)
    named = (
        (server, "--server"),
        (environ.get("FEDERATOR_SERVER"), "FEDERATOR_SERVER"),
        (file.get("server"), "config.yaml"),
        (sign_ins.current(), "federator login"),
        (local, str(state_dir / ADDRESS_FILE)),
        (DEFAULT_SERVER, "the default"),
    )
    address, source = next((_url(address), source) for address, source in named if address)
    held = sign_ins.find(address)
    # Who has signed in here has said more of this address than a file that names another.
    in_file = file.get("token") if held is None or source == "config.yaml" else None
    given = (
        (token, "--token"),
        (environ.get("FEDERATOR_TOKEN"), "FEDERATOR_TOKEN"),
        (in_file, "config.yaml"),
    )
    token, token_source = next(((each, source) for each, source in given if each), (None, ""))
    ca = ca or environ.get("FEDERATOR_CA") or file.get("ca", "") or (held.server_ca if held else "")
    signed_in = held is not None and not token
    if local is not None and address == _url(local):
        # The local dispatcher's own token is sent to nobody but the local dispatcher.
        token = token or (None if signed_in else _first_line(state_dir / TOKEN_FILE))
        ca = ca or (str(state_dir / CA_FILE) if (state_dir / CA_FILE).exists() else "")
    return ClientSettings(address, token or None, source, ca, file.get("proxy", ""), token_source, signed_in)


def config_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Where what this person has set is kept."""
    environ = os.environ if environ is None else environ
    home = Path(environ.get("HOME") or "/")
    return Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "federator"


def _config_file(path: Path) -> Mapping[str, str]:
    try:
        content = path.read_text()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise Invalid(f"cannot be read: {error.strerror}", field=str(path)) from None
    from federator.wire.fields import known_only, mapping, text
    from federator.wire.yamltext import read_document

    try:
        fields = mapping(read_document(content).value, "$")
        known_only(fields, "$", ("server", "token", "ca", "proxy"))
        read = {key: text(value, f"$.{key}") for key, value in fields.items()}
    except Invalid as error:
        raise Invalid(
            f"{error.field or '$'}: {error.message}", field=str(path), remedy=error.remedy
        ) from None
    return read | ({"ca": str(path.parent / Path(read["ca"]).expanduser())} if "ca" in read else {})


def _first_line(path: Path) -> str | None:
    try:
        return path.read_text().split("\n", 1)[0].strip() or None
    except OSError:
        return None


def _url(address: str) -> str:
    """Addresses, commas in between, each with its scheme and without a last slash; `host:port` means plain HTTP."""
    given = [each.strip() for each in address.split(",") if each.strip()]
    return ",".join((each if "://" in each else f"http://{each}").rstrip("/") for each in given)
