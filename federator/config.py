"""Files and environment into settings. The only module of the dispatcher that reads either.

A YAML file gives `Settings`; `FEDERATOR_STATE_DIR`, `FEDERATOR_PORT` and `FEDERATOR_CLOCK` override it, and options of the command line override
both. All that is wrong is told at once, each with its line, key and remedy.
"""

import math
import os
import re
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from federator.exporting.address import read_address
from federator.kernel.clock import Clock, parse_clock
from federator.kernel.errors import Invalid
from federator.kernel.quantities import parse_instant
from federator.kernel.route import Way, is_loopback
from federator.model.identity import Role, read_role
from federator.ports import Provider
from federator.settings import (
    LedgerSettings,
    LimitSettings,
    OidcSettings,
    PersonSettings,
    ReservedSettings,
    S3Settings,
    ServerSettings,
    Settings,
    TraceSettings,
)
from federator.solving.frames import STAGES
from federator.wire.decoding import decode
from federator.wire.faults import read_whole, told_in
from federator.wire.yamltext import read_document

MIN_PROMISE_S = 7 * 86400.0
ANYWHERE = ("0.0.0.0", "::")  # noqa: S104 - refused without a URL of its own
LARGEST_CA_BYTES = 8192
"""Clouds take some 16 KiB with a machine, and there is more to say."""
MOST_LEEWAY_S = 300.0
PAUSES = frozenset({"heartbeat_s", "look_s", "poll_s", "refresh_s", "report_every_s", "sweep_s"})
"""What lies between two rounds of a loop."""
ENVIRONMENT = {"FEDERATOR_STATE_DIR": "state_dir", "FEDERATOR_CLOCK": "clock"}


def load_settings(
    path: Path | None = None, *, state_dir: str | None = None, port: int | None = None
) -> Settings:
    """The settings in force. Raises `Invalid`, naming file and key, or an ExceptionGroup of all that is wrong."""
    overrides = _overrides(state_dir, port)
    check(_overridden(Settings(), overrides))
    if path is None:
        return _overridden(Settings(), overrides)
    try:
        text = path.read_text()
    except OSError as error:
        raise Invalid(
            f"cannot read {path}: {error.strerror}", remedy="give --config a file that exists"
        ) from error
    with told_in(path):
        document = read_document(text)

    def read(value: object) -> Settings:
        settings = _overridden(decode(value or {}, Settings, "$"), overrides)
        check(settings)
        return settings

    return read_whole(read, document, path)


def changed_keys(old: Settings, new: Settings) -> list[str]:
    """The keys, such as `$.turn.solver_limit_s`, whose values differ. Values are left out: some are secret."""

    def differing(was: object, becomes: object, key: str) -> list[str]:
        if not (isinstance(was, dict) and isinstance(becomes, dict)):
            return [] if was == becomes else [key]
        names = sorted(was.keys() | becomes.keys())
        return [
            each for name in names for each in differing(was.get(name), becomes.get(name), f"{key}.{name}")
        ]

    return differing(msgspec.to_builtins(old), msgspec.to_builtins(new), "$")


def _overrides(state_dir: str | None, port: int | None) -> dict[str, str | int]:
    """What the environment and the command line say in place of the file."""
    said: dict[str, str | int] = {
        name: os.environ[variable] for variable, name in ENVIRONMENT.items() if variable in os.environ
    }
    if port is None and "FEDERATOR_PORT" in os.environ:
        port = _port(os.environ["FEDERATOR_PORT"])
    return (
        said
        | ({} if state_dir is None else {"state_dir": state_dir})
        | ({} if port is None else {"port": port})
    )


def _overridden(settings: Settings, overrides: dict[str, str | int]) -> Settings:
    plain = {name: value for name, value in overrides.items() if name != "port"}
    port = overrides.get("port", settings.server.port)
    server = msgspec.structs.replace(settings.server, port=port)
    return msgspec.structs.replace(settings, server=server, **plain)


def _port(text: str) -> int:
    if not text.isdigit():
        raise Invalid(f"{text!r} is not a number", field="FEDERATOR_PORT", remedy="write for example 7070")
    return int(text)


def check(settings: Settings) -> None:
    """Rules that types do not say. Raises `Invalid` with the key."""
    try:
        parse_clock(settings.clock)
    except ValueError as error:
        raise Invalid(str(error), field="$.clock") from error
    _check_numbers(settings, "$")
    _check_shares(settings.limits)
    if unknown := [stage for stage in settings.turn.stages if stage not in STAGES]:
        raise Invalid(
            f"there is no stage {unknown[0]!r}",
            field="$.turn.stages",
            remedy=f"leave it out; there are {', '.join(STAGES)}",
        )
    _check_server(settings.server)
    _check_retention(settings)
    _check_etcd(settings)
    if settings.store.s3 is not None:
        _check_s3(settings.store.s3)
    _check_ledger(settings.ledger)
    _check_messages(settings)
    if settings.traces is not None:
        _check_traces(settings.traces)
    if settings.oidc is not None:
        _check_oidc(settings.oidc, settings.clock)
    if settings.leases.slack_s < 4 * settings.leases.poll_s:
        raise Invalid(
            f"is less than four times leases.poll_s ({settings.leases.poll_s:g} s): what has used up its money could not be ended in time",
            field="$.leases.slack_s",
            remedy="raise it, or poll more often",
        )
    for name in settings.providers:
        adapter_of(name, settings, parse_clock(settings.clock))


def adapter_of(name: str, settings: Settings, clock: Clock) -> Provider:
    """The provider of that name, which an entry point of group `federator.providers` makes of its settings. Raises `Invalid`."""
    given, path = settings.providers[name], f"$.providers.{name}"
    if not given.site:
        remedy = "name the cloud site that its instances join"
        raise Invalid("is empty", field=f"{path}.site", remedy=remedy)
    found = entry_points(group="federator.providers")
    if given.type not in found.names:
        types = ", ".join(sorted(found.names))
        raise Invalid(
            f"there is no provider type {given.type!r}", field=f"{path}.type", remedy=f"write {types}"
        )
    _check_reserved(given.reserved, f"{path}.reserved")
    adapter: Provider = found[given.type].load()(name, given.settings, clock)
    return adapter


def _check_reserved(reserved: Sequence[ReservedSettings], path: str) -> None:
    for index, each in enumerate(reserved):
        at = f"{path}[{index}]"
        _check_numbers(each, at)
        foreign = each.committed_usd_h if each.offer else each.machines
        if foreign or bool(each.offer) == bool(each.offers):
            remedy = "write offer and machines, or offers and committed_usd_h"
            raise Invalid(
                "must be machines of one offer, or a commitment for several", field=at, remedy=remedy
            )
        if each.offers:
            _check_commitment(each, at)
        elif each.machines < 1:
            remedy = "leave the entry out where none is reserved"
            raise Invalid("must be at least 1", field=f"{at}.machines", remedy=remedy)
        earlier = {name for other in reserved[:index] for name in (other.offer, *other.offers)}
        for name in earlier.intersection(each.offers or [each.offer]):
            field = f"{at}.offers" if each.offers else f"{at}.offer"
            raise Invalid(f"{name!r} is listed twice", field=field, remedy="add them up")
        try:
            parse_instant(each.until or "2000-01-01T00:00:00Z")
        except ValueError as error:
            raise Invalid(str(error), field=f"{at}.until") from None


def _check_commitment(reserved: ReservedSettings, at: str) -> None:
    for name, usd_h in reserved.offers.items():
        if not 0.01 <= usd_h <= reserved.committed_usd_h:
            raise Invalid(
                "must be at least 0.01, and no more than committed_usd_h",
                field=f"{at}.offers.{name}",
                remedy="write what an hour of one machine takes of the commitment, in USD",
            )


def _check_numbers(record: msgspec.Struct, path: str) -> None:
    """No limit and no time is below nothing; what is done again and again is not done without a pause."""
    for field in msgspec.structs.fields(record):
        value, where = getattr(record, field.name), f"{path}.{field.name}"
        if isinstance(value, msgspec.Struct):
            _check_numbers(value, where)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            least = "above 0" if field.name in PAUSES else "at least 0"
            if not 0 <= value < math.inf or (value == 0 and field.name in PAUSES):
                raise Invalid(
                    f"must be {least}, not {value}", field=where, remedy=f"{field.default} if left out"
                )


def _check_shares(limits: LimitSettings) -> None:
    if limits.person_rate <= 0:
        raise Invalid("must be above 0", field="$.limits.person_rate")
    for name in ("person_share", "team_share"):
        if not 0 < getattr(limits, name) <= 1:
            raise Invalid("must be above 0 and at most 1", field=f"$.limits.{name}")


def _check_server(server: ServerSettings) -> None:
    if server.tls is not None and server.insecure:
        raise Invalid("conflicts with server.tls", field="$.server.insecure", remedy="write one of the two")
    if server.tls is None and not server.insecure and not is_loopback(server.host):
        raise Invalid(
            f"{server.host} can be reached from elsewhere, and tokens must not go there in the clear",
            field="$.server.host",
            remedy="give it a certificate with server.tls; or listen on 127.0.0.1; or write server.insecure: true where a proxy in front does the TLS",
        )
    if server.host in ANYWHERE and not server.advertise:
        raise Invalid(
            f"is missing: {server.host} is not an address to connect to",
            field="$.server.advertise",
            remedy="write the URL under which others reach it, for example https://federator.example.org:7070",
        )
    for field, url in (("advertise", server.advertise), *(("others", each) for each in server.others)):
        if url and not re.fullmatch(r"https?://[^/\s,][^\s,]*", url):
            remedy = "write for example https://federator.example.org:7070"
            raise Invalid(f"{url!r} is not a URL", field=f"$.server.{field}", remedy=remedy)
    if server.tls is not None and server.advertise.startswith("http://"):
        raise Invalid(
            "is plain HTTP, but server.tls is set", field="$.server.advertise", remedy="write https://"
        )
    if not 0 <= server.port < 65536:
        raise Invalid(f"cannot be {server.port}", field="$.server.port", remedy="write 0 to 65535")
    if server.ca:
        _check_ca(server.ca)


def _check_ca(name: str) -> None:
    Way(ca=name, ca_field="$.server.ca")
    if (size := Path(name).stat().st_size) > LARGEST_CA_BYTES:
        raise Invalid(
            f"{name} has {size} bytes, and the start data of a rented machine holds {LARGEST_CA_BYTES} of it",
            field="$.server.ca",
            remedy="name a file with the one authority behind the dispatcher's certificate",
        )


def _check_retention(settings: Settings) -> None:
    retention = settings.retention
    if settings.clock == "system" and retention.promised_s < MIN_PROMISE_S:
        raise Invalid(
            "finished jobs are kept for at least 7 days",
            field="$.retention.promised_s",
            remedy="write 604800 or more",
        )
    for name in ("jobs_s", "ledger_s"):
        if getattr(retention, name) < retention.promised_s:
            raise Invalid(
                f"is less than the {retention.promised_s:.0f} s that are promised",
                field=f"$.retention.{name}",
                remedy="write retention.promised_s or more",
            )


def _check_ledger(ledger: LedgerSettings) -> None:
    for number, text in enumerate(ledger.export):
        field = f"$.ledger.export[{number}]"
        read_address(text, field)
        if text in ledger.export[:number]:
            raise Invalid("is listed twice", field=field, remedy="remove one")


def _check_messages(settings: Settings) -> None:
    given, smtp = settings.notifications, settings.notifications.smtp
    if given.per_hour <= 0:
        raise Invalid(
            "must be above 0", field="$.notifications.per_hour", remedy="write 12, or another number"
        )
    alerts = PersonSettings(mail=settings.alerts.mail, webhook=settings.alerts.webhook)
    people = {f"$.notifications.people.{name}": person for name, person in given.people.items()}
    for field, where in {**people, "$.alerts": alerts}.items():
        if where.webhook and urlsplit(where.webhook).scheme not in ("http", "https"):
            raise Invalid("is not a URL", field=f"{field}.webhook", remedy="write https://…")
        if where.mail and smtp is None:
            raise Invalid(
                "is missing, so no mail can be sent",
                field="$.notifications.smtp",
                remedy="name host and sender",
            )
        if where.mail and "@" not in where.mail:
            raise Invalid("is not an address", field=f"{field}.mail", remedy="write NAME@DOMAIN")
    if smtp is not None and smtp.user and smtp.tls == "none" and not is_loopback(smtp.host):
        raise Invalid(
            "would send the password in the clear",
            field="$.notifications.smtp.tls",
            remedy="write starttls or tls",
        )
    if smtp is not None and bool(smtp.user) != bool(smtp.password_file):
        raise Invalid(
            "needs user and password_file together",
            field="$.notifications.smtp",
            remedy="write both, or neither",
        )


def _check_traces(traces: TraceSettings) -> None:
    url = urlsplit(traces.endpoint)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise Invalid(
            "is not a URL",
            field="$.traces.endpoint",
            remedy="write the whole of it, such as http://127.0.0.1:4318/v1/traces",
        )
    if url.username or url.password:
        raise Invalid(
            "holds a password", field="$.traces.endpoint", remedy="write it into traces.headers_file instead"
        )
    if not 0.0 < traces.share <= 1.0:
        raise Invalid("must be above 0 and at most 1", field="$.traces.share")
    Way(ca=traces.ca, ca_field="$.traces.ca")


def _check_oidc(oidc: OidcSettings, clock: str) -> None:
    if clock != "system":
        raise Invalid("needs the real time", field="$.oidc", remedy="write clock: system")
    url = urlsplit(oidc.issuer)
    if not url.hostname or url.query or url.fragment:
        raise Invalid(f"{oidc.issuer!r} is not a URL", field="$.oidc.issuer", remedy="write https://HOST/…")
    if url.scheme != "https" and not (url.scheme == "http" and is_loopback(url.hostname)):
        raise Invalid("is not HTTPS: its keys could be forged on the way", field="$.oidc.issuer")
    for field in ("client_id", "username_claim", "groups_claim", "service_prefix"):
        if not getattr(oidc, field):
            raise Invalid("is empty", field=f"$.oidc.{field}")
    if "openid" not in oidc.scopes:
        raise Invalid("must contain openid", field="$.oidc.scopes", remedy="write [openid, …]")
    if oidc.leeway_s > MOST_LEEWAY_S:
        what = f"is over {MOST_LEEWAY_S:g} s: expired tokens would be good for so long"
        raise Invalid(what, field="$.oidc.leeway_s", remedy="set both clocks right instead")
    _check_roles(oidc)
    Way(ca=oidc.ca, proxy=oidc.proxy, ca_field="$.oidc.ca", proxy_field="$.oidc.proxy")


def _check_roles(oidc: OidcSettings) -> None:
    if not oidc.roles:
        remedy = "write for example {platform-team: admin, '*': user}"
        raise Invalid("is empty, so nobody would have a role", field="$.oidc.roles", remedy=remedy)
    for group, role in oidc.roles.items():
        try:
            read_role(role)
        except ValueError:
            known = ", ".join(each for each in Role if each is not Role.SITE_ADMIN)
            raise Invalid(
                f"there is no role {role!r}",
                field=f"$.oidc.roles.{group}",
                remedy=f"one of {known}, site-admin:SITE",
            ) from None


def _check_etcd(settings: Settings) -> None:
    etcd = settings.store.etcd
    if etcd is None:
        return
    if not etcd.endpoints:
        raise Invalid("names no member", field="$.store.etcd.endpoints", remedy="write [http://HOST:2379, …]")
    if bool(etcd.shared_dir) == (settings.store.s3 is not None):
        fault = "conflicts with store.s3" if etcd.shared_dir else "is empty, and there is no store.s3"
        remedy = "name a folder that all dispatchers share, or a bucket in store.s3"
        raise Invalid(fault, field="$.store.etcd.shared_dir", remedy=remedy)
    if not (etcd.margin_s > 0 and etcd.term_s >= max(2.0, 3 * etcd.margin_s)):
        raise Invalid(
            "is under 2 s, or under three times margin_s, or margin_s is not positive",
            field="$.store.etcd.term_s",
            remedy="write for example term_s: 4 and margin_s: 1",
        )


def _check_s3(s3: S3Settings) -> None:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{1,253}[A-Za-z0-9]", s3.bucket):
        remedy = "write the bucket alone; a folder in it is store.s3.prefix"
        raise Invalid(f"{s3.bucket!r} is not a bucket's name", field="$.store.s3.bucket", remedy=remedy)
    parts = s3.prefix.split("/")
    if not all(re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}", part) for part in parts) or len(parts) > 5:
        remedy = "write up to five parts of letters, digits, '.', '_' and '-' joined by '/'"
        raise Invalid(f"{s3.prefix!r} cannot begin keys", field="$.store.s3.prefix", remedy=remedy)
    url = urlsplit(s3.endpoint)
    if s3.endpoint and (url.scheme not in ("http", "https") or not url.hostname or url.username or url.query):
        remedy = "write https://HOST:PORT, and credentials elsewhere"
        raise Invalid("is not the URL of a server", field="$.store.s3.endpoint", remedy=remedy)
    if s3.kms_key and s3.encryption != "aws:kms":
        remedy = "write encryption: aws:kms"
        raise Invalid("has no effect without that encryption", field="$.store.s3.kms_key", remedy=remedy)
    if s3.timeout_s <= 0:
        raise Invalid("must be above 0", field="$.store.s3.timeout_s", remedy="30 if left out")
    for name in ("credentials_file", "ca_file"):
        path = getattr(s3, name)
        if path and not Path(path).expanduser().is_file():
            raise Invalid(f"there is no file {path}", field=f"$.store.s3.{name}")
