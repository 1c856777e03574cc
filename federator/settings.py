"""Every setting of the dispatcher, as frozen records by topic.

Each field has its unit in its name or type, a default, and a docstring from which the reference page is generated. Files and environment are read by
`federator.config` alone; what runs gets these values.
"""

from typing import Literal

import msgspec

from federator.model.queues import DEFAULT_QUEUE


class TlsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The certificate that the dispatcher shows. Both files are read again when they change, and on SIGHUP."""

    cert: str
    """PEM file: the certificate, and after it those between it and the authority."""
    key: str
    """PEM file of its private key, not encrypted."""


class ServerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the dispatcher listens."""

    host: str = "127.0.0.1"
    """Address to listen on; beyond loopback only with `tls`, or with `insecure`. `0.0.0.0` and `::` are all, and need `advertise`."""
    port: int = 7070
    """TCP port; 0 takes a free one, which is printed and written to `STATE_DIR/address`."""
    advertise: str = ""
    """URL under which others reach this dispatcher; empty: `https://HOST:PORT` of the above, or `http://HOST:PORT` without `tls`."""
    others: tuple[str, ...] = ()
    """URLs of the other dispatchers on the same store: rented machines are given them too."""
    tls: TlsSettings | None = None
    """The certificate to show; without it, plain HTTP."""
    ca: str = ""
    """PEM file of the private authority behind the certificates that others see here: rented machines, and the command on this machine, are given it."""
    insecure: bool = False
    """Plain HTTP also beyond loopback. Only where a proxy in front does the TLS and nobody else can reach the port: tokens go over it as they are."""


class ConnectionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many connections there may be, and how long one may take. Real seconds. What is over a limit displaces the oldest that is idle or has not signed in."""

    most: int = 0
    """Most at once; 0: as many as the process may have open files (at most 65,536), less 512 or a quarter for everything else."""
    strangers: int = 0
    """Most on which nobody has signed in yet; 0: half of all."""
    strangers_each: int = 0
    """Most of them from one address; 0: an eighth of all. Does not count for `proxies`."""
    each: int = 0
    """Most of one user or agent who has signed in; over it the answer is 429. 0: an eighth of all."""
    proxies: tuple[str, ...] = ()
    """Addresses or networks (`10.0.0.5`, `10.1.0.0/16`) of proxies in front that are trusted: all come from them, and their `X-Forwarded-For` is believed."""
    header_s: float = 15.0
    """Within so long a TLS handshake, and then the head of a request, have to be complete."""
    idle_s: float = 75.0
    """A connection without a request is closed after this long; more than a proxy in front keeps one."""
    body_s: float = 60.0
    """So long a body may be waited for in all, and a second more for each `body_rate` bytes that have come; 10 seconds where nobody has signed in."""
    body_rate: int = 1024
    """Bytes a second at which a body must come on average."""


class LimitSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits on what comes from outside; over them the answer is 413 or 429."""

    person_share: float = 0.25
    """Part of `queued_jobs`, `series`, `services`, `retention.jobs`, `retention.archive_jobs`, `retention.logs_mib`, `retention.blobs_mib` and, in `retention.promised_s`, `retention.ledger_lines` that one person may fill; over it their submissions are refused with 429, and those of others are not. 1: all of it."""
    team_share: float = 0.5
    """The same of one team: all that was submitted under it."""

    person_burst: int = 20_000
    """What one person may ask for at once: submissions, changes and lists of jobs cost 1 (many lines in one request as well), what plans or compiles 20, other looks nothing."""
    person_rate: float = 100.0
    """How much of that comes back each real second; over it the answer is 429."""
    heavy_each: int = 4
    """Most previews, explanations, and looks at policies of one person that are under way at once."""
    reserve_mib: int = 512
    """Free room of the disk that is kept for ending what runs. Below it submissions and work directories are refused with 507 and logs leave out what comes; statuses, outputs, cancellations and the ledger go on. 0: none."""
    body_mib: int = 16
    """Largest JSON body, in MiB (one job, a policy set, one chunk of log)."""
    blob_mib: int = 512
    """Largest work directory or output archive, in MiB, compressed."""
    transfers: int = 64
    """Most work directories and outputs that are being sent or fetched at once; over it the answer is 429."""
    transfers_each: int = 8
    """Most of them of one user, or of one agent."""
    tunnels_each: int = 64
    """Most tunnels into running jobs (`exec`, each connection of `port-forward`) of one person that are open at once; over it the answer is 429."""
    tunnels_agent: int = 256
    """Most of them to one agent."""
    tunnel_idle_s: float = 14_400.0
    """Real seconds after which a tunnel through which nothing has come is closed."""
    batch_jobs: int = 100_000
    """Most lines in one NDJSON submission, and most jobs that its lines, arrays among them, may make."""
    array_tasks: int = 10_000
    """Most tasks of one array. It may be raised to 1,000,000."""
    array_waiting: int = 10_000
    """So many tasks of one array wait as jobs at once, which plans see; the rest takes next to no memory, and each becomes a job when one of these has started."""
    queued_jobs: int = 1_000_000
    """Most jobs that are not terminal, of an array at most `array_waiting` that are not jobs yet; over it submissions are refused with 429."""
    site_hosts: int = 65_536
    """Most hosts of one site, over all its members; the report of the member that has more is refused."""
    hosts: int = 262_144
    """Most hosts of all sites together; the report that would make them more is refused."""
    policy_replay_s: float = 90.0
    """Real seconds that a replay of policies at the dispatcher may take; there is one at a time, in a process of its own, which gives way to all others of the host."""
    policy_replay_mib: int = 4096
    """Most memory of that process."""
    policy_replay_jobs: int = 20_000
    """Most jobs that it simulates, the newest of the time that is asked for."""
    credentials_in_env: bool = False
    """Whether a job's `env` may have what looks like a credential, by its name (`…_TOKEN`) or value; else it is refused with the advice to use `secrets`."""
    person_blobs: int = 10_000
    """Most work directories of one person on record; over it uploads of theirs are refused with 429."""
    services: int = 1_000
    """Most services on record; over it new ones are refused with 429."""
    series: int = 10_000
    """Most series (`every`) on record, those among them that have ended and are not forgotten yet; over it new ones are refused with 429."""
    log_mib: int = 64
    """Most that is kept of one rank's log, in MiB: of a longer one three quarters from its beginning, as it grows, and the rest from its end, once it is over; a line in between says how much is left out."""
    job_log_mib: int = 4096
    """Most that is kept of the logs of all ranks of one attempt of a job, in MiB: where it has so many ranks that `log_mib` of each would be more, each rank has an equal part, but at least 128 KiB."""


class TurnSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How often and how hard is planned."""

    coalesce_s: float = 0.010
    """Events are gathered this long (real seconds) before a turn starts, unless the dispatcher was idle: then it starts at once."""
    minimum_gap_s: float = 0.05
    """Real seconds between the starts of two turns while events keep coming."""
    solver: bool = True
    """Whether OR-Tools is asked at all; greedy always plans."""
    window: bool = True
    """Whether of a very long line of waiting jobs a turn looks at a window only, chosen by the order in which jobs are planned."""
    fast_path: bool = True
    """Whether interactive and short work is started by greedy's order before the solver has answered."""
    solver_limit_s: float = 5.0
    """Real seconds after which the solver's child is killed and greedy's plan stands."""
    stages: tuple[str, ...] = ("greedy", "lead", "lp")
    """Stages that the solver may run, in order; each has a work limit of its own."""
    certify_every: int = 100
    """Once in so many turns, while a core is idle, a process of its own proves how good the last decision was: `federator_decision_gap_ratio`, `federator_decision_bound_usd`, and `federator decisions show` for that decision. 0: never."""
    learn: bool = True
    """Whether estimates are corrected by how earlier ones of the same name and owner have turned out, and speeds by how long runs on other GPU models took."""
    first_forecasts: bool = True
    """Whether what was expected first of a job that waits is kept with it, one write a job, so that `show` and `usage` say what came of it."""
    heartbeat_s: float = 30.0
    """A turn happens at least this often (clock seconds), events or not."""


class LinkSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Between dispatcher and agents. Clock seconds."""

    report_every_s: float = 5.0
    """How often an agent reports when nothing changes."""
    unreachable_after_s: float = 30.0
    """Silence after which a member is UNREACHABLE and gets no new work."""
    look_s: float = 1.0
    """How often it is looked for work that must be over because its site was cut off (`stop_within`)."""


class LeaseSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How rented capacity is kept. Clock seconds."""

    idle_s: float = 300.0
    """An idle lease drains after this long, or after its boot and teardown where these are shorter; not before what is billed at least has passed."""
    warm_s: float = 3600.0
    """It is kept for up to so long, within what was committed for it, where what was needed lately says that this costs less than renting again; 0: never."""
    join_within_s: float = 1800.0
    """A lease whose agent has not joined this long after its expected boot is ended and its offer avoided."""
    drain_within_s: float = 600.0
    """A draining lease is ended after this long even if results are missing; that is recorded as a loss."""
    avoid_s: float = 900.0
    """A failed offer is avoided for this long."""
    poll_s: float = 15.0
    """How often providers are listed."""
    slack_s: float = 300.0
    """Rent that a rental's worst case holds beyond boot, limit, grace and teardown: for a late boot, staging, results on their way home, and polling. At
    least four times `poll_s`. What has used it up is ended, whatever runs there."""


class ReservedSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Machines that are paid for already: so many of one offer (`offer`, `machines`), or of several that share a commitment, such as a savings plan (`offers`, `committed_usd_h`)."""

    offer: str = ""
    """Name of the offer, as `federator offers` shows it without them."""
    machines: int = 0
    """How many; at least 1."""
    offers: dict[str, float] = {}
    """Names of the offers that share a commitment, each with what an hour of one machine takes of it, in USD: its price under the plan."""
    committed_usd_h: float = 0.0
    """What is committed, and so paid whether it is used or not, in USD an hour. Machines count as reserved while what they take fits; further ones have the normal price."""
    price_usd_h: float = 0.0
    """What an hour of one still costs."""
    until: str = ""
    """When the reservation ends, such as `2027-06-30T00:00:00Z`: its machines are given back in the ten minutes before. Empty: it does not."""


class ProviderSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One provider: `type` names the adapter (an entry point of `federator.providers`), `site` the cloud site its instances join."""

    type: str
    """The adapter, by its name among the entry points of `federator.providers`."""
    site: str
    """The cloud site that its instances join."""
    region: str = "local"
    """Where the capacity is; policies may choose by it."""
    labels: dict[str, str] = {}
    """Labels of the cloud site, for placement by label."""
    reserved: tuple[ReservedSettings, ...] = ()
    """What is paid for already: as offers of their own, which are cheaper than further machines and so are taken first."""
    settings: dict[str, object] = {}
    """What the adapter itself wants to know: see the settings of each provider below."""


MessageFormat = Literal["json", "slack", "teams"]


class AlertSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who is told of budgets that fill, deadlines at risk, sites that are lost, machines that never joined, and rentals that wait for approval."""

    webhook: str = ""
    """URL that each alert is posted to; empty: none. It may hold a secret: logs name its host only."""
    format: MessageFormat = "json"
    """What is posted: `json`, all fields with a `text`; `slack`, a message for an incoming webhook; `teams`, an adaptive card for a workflow's webhook."""
    mail: str = ""
    """Address that each alert is sent to by `notifications.smtp`; empty: none."""
    attempts: int = 5
    """How often an alert is posted before it is given up, twice as long after each failure."""
    idle_gpus_s: float = 1800.0
    """A job whose GPUs do nothing for so long (clock seconds) is told of, on its timeline and as an alert; 0: none is."""
    lost_site_s: float = 600.0
    """A site with a host that is not heard for so long (clock seconds) is told of, once a day; 0: none is."""
    sick_gpu_s: float = 600.0
    """A GPU that takes no new work for so long is told of, once a day; 0: none is."""
    stuck_queue_s: float = 4 * 3600.0
    """A queue of which nothing has run for so long, though jobs of it could start, is told of, once a day; 0: none is."""
    look_s: float = 30.0
    """How often it is looked for alerts (clock seconds); 0: never."""


class SmtpSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The mail server that takes what is sent."""

    host: str
    """Its name."""
    sender: str
    """Address that mail comes from, such as `federator@example.org`."""
    port: int = 587
    """TCP port."""
    tls: Literal["starttls", "tls", "none"] = "starttls"
    """`starttls`: TLS after the greeting; `tls`: from the first byte on (port 465); `none`: without, and then without a password unless the server is on this machine."""
    ca: str = ""
    """PEM file of a private authority behind its certificate; empty: those of the system."""
    user: str = ""
    """Whom to sign in as; empty: nobody."""
    password_file: str = ""
    """File that holds the password, read for each mail."""
    timeout_s: float = 20.0
    """Real seconds that one mail may take before it is cut off; it is tried three times."""


class PersonSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where one person is reached. Both, if both are given."""

    mail: str = ""
    """Address; empty: by `notifications.mail_domain`."""
    webhook: str = ""
    """URL that messages are posted to; empty: none. It may hold a secret: logs name its host only."""
    format: MessageFormat = "json"
    """What is posted; see `alerts.format`."""


class NotificationSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How people hear of their jobs: what a job file asks for with `notify` goes to whoever submitted it."""

    smtp: SmtpSettings | None = None
    """The mail server; without it, no mail is sent."""
    mail_domain: str = ""
    """Whoever is not named under `people` has the address NAME@DOMAIN; empty: none."""
    people: dict[str, PersonSettings] = {}
    """Where people are reached, by their names."""
    own_mail_domains: tuple[str, ...] = ()
    """Domains in which people may name a mail address of their own, by `federator notifications`: NAME@DOMAIN, or what their sign-in says (the claim `email`, with `email_verified`); empty: nowhere."""
    own_webhook_hosts: tuple[str, ...] = ()
    """Hosts, such as `hooks.slack.com`, at which people may name an https webhook of their own; empty: nowhere."""
    gather_s: float = 5.0
    """What happens within so many real seconds is told in one message."""
    per_hour: float = 12.0
    """Most messages to one person: a third of them as things happen, the others evenly after that. What comes in between waits for the next one, which tells all of it."""


class RetentionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long records stay, and how much of them. Clock seconds.

    A finished job's record and events move to the archive when there are more than `recent_jobs`, or at `jobs_s`; its logs and outputs go at `jobs_s`. What is younger than `promised_s` is never dropped: when a
    limit by size cannot be kept without that, new submissions are refused until it can.
    """

    promised_s: float = 7 * 86400.0
    """Least age at which a finished job or a line of the ledger may be dropped; never under 7 days on a system clock."""
    jobs_s: float = 30 * 86400.0
    """Logs and outputs of finished jobs are dropped at this age; without an archive the jobs themselves, too."""
    recent_jobs: int = 50_000
    """So many finished jobs are kept in memory, at some 3 KiB each; of more the oldest move to the archive, where lists, `show` and `usage` find them as before. 0, or where DuckDB (`federator[archive]`) is not installed: there is no archive."""
    archive_s: float = 400 * 86400.0
    """Jobs in the archive are dropped at this age, a file together."""
    archive_jobs: int = 20_000_000
    """Most jobs in the archive, at some 500 bytes of disk each; over it the oldest go before `archive_s`."""
    jobs: int = 1_000_000
    """Most finished jobs beside those in the archive; over it the oldest go before `jobs_s`."""
    logs_mib: int = 100 * 1024
    """Most MiB of all logs together; over it the oldest finished jobs go."""
    blobs_mib: int = 100 * 1024
    """Most MiB of all work directories and outputs together; over it the oldest finished jobs go, and nothing new is taken."""
    unused_blob_s: float = 86400.0
    """A work directory or output that no record names is dropped when nobody has used it for this long."""
    ledger_s: float = 400 * 86400.0
    """Lines of the ledger are dropped at this age."""
    ledger_lines: int = 10_000_000
    """Most lines of the ledger; over it the oldest go before `ledger_s`."""
    decisions_s: float = 30 * 86400.0
    """Recorded decisions are dropped at this age, a checkpoint together with all that was recorded against it."""
    decisions: int = 10_000
    """Most recorded decisions; over it the oldest go, whatever their age. 0: none is recorded."""
    decisions_checkpoint_s: float = 300.0
    """A decision is recorded as what changed since the one before; after so long, as a checkpoint that needs no other."""
    decisions_mib: int = 256
    """Most MiB of recorded decisions; over it the oldest go, whatever their age."""
    sweep_s: float = 60.0
    """How often the sweeper looks for what to drop and for leaked capacity."""


class EtcdSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An etcd cluster as the store, for several dispatchers of which one leads. Real seconds."""

    endpoints: tuple[str, ...]
    """Its members, such as `http://10.0.0.1:2379`, or all with `https://`. Another one is asked when one does not answer."""
    shared_dir: str = ""
    """Folder on storage that all dispatchers share, for what is too large for etcd: work directories, outputs, logs, large records. Empty where `store.s3` keeps them."""
    prefix: str = "/federator"
    """What every key begins with; two federations on one cluster need two."""
    ca_file: str = ""
    """PEM file of the authority that signed the members' certificates; empty: the system's."""
    cert_file: str = ""
    """PEM file of our certificate, where the cluster asks for one."""
    key_file: str = ""
    """PEM file of its private key."""
    term_s: float = 4.0
    """For so long a leader leads after its last renewal; a successor starts after it. Whole seconds count."""
    margin_s: float = 1.0
    """So much earlier a leader that could not renew stops acting: more than clocks drift apart in a term."""
    patience_s: float = 6.0
    """For so long a request is repeated, at one member after another, before it counts as failed."""
    size_mib: int = 1536
    """Beyond this size of what is in use, nothing new is accepted: some three quarters of the cluster's own quota (2 GiB by default)."""
    compact_after_s: float = 600.0
    """History older than this is compacted; 0 leaves it to the cluster's own auto-compaction."""


class OidcSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An OpenID Connect provider whose signed tokens are believed, beside those made here."""

    issuer: str
    """URL of the provider, exactly as its tokens name it (`iss`). HTTPS, but on this machine itself."""
    client_id: str
    """What the command is registered as at the provider: a public client with PKCE, and the device code if that is wanted."""
    audience: str = ""
    """What tokens must be made for (`aud`). Empty: `client_id`, and the command shows its ID token; else its access token."""
    scopes: tuple[str, ...] = ("openid", "profile", "email", "offline_access")
    """What the command asks for when somebody signs in. `offline_access` gives a refresh token at most providers."""
    parameters: dict[str, str] = {}
    """More that the command sends with a sign-in, where a provider wants it, such as `resource` or `audience`."""
    client_secret: str = ""
    """Only where a provider wants one of installed programs too. It is no secret: everybody who asks where to sign in is told it."""
    username_claim: str = "preferred_username"
    """The claim that names a person: the owner of what they submit. Take one that people cannot change themselves."""
    username_prefix: str = ""
    """Put before each person's name: keeps them apart from the names of tokens made here. Empty: the same name is the same person."""
    service_claim: str = ""
    """The claim that names a service, in tokens without the claim of people's names, such as `client_id` or `azp`. Empty: services are refused."""
    service_prefix: str = "service-"
    """Put before each service's name; a person's may not begin so. A service without groups is in the group of its own name."""
    groups_claim: str = "groups"
    """The claim that lists groups; with dots a path, such as `realm_access.roles`."""
    roles: dict[str, str] = {}
    """Role by group: `user`, `platform`, `admin`, or `site-admin:SITE`; `*` is everybody who signs in. Of several the highest counts; who has none is refused."""
    required_groups: tuple[str, ...] = ()
    """If given, only members of at least one of these are let in."""
    required_claims: dict[str, str] = {}
    """Claims that a token must have with exactly this value, such as `hd: example.org`."""
    default_queue: str = DEFAULT_QUEUE
    """Queue of the jobs that name none."""
    ca: str = ""
    """PEM file of the private authority behind the provider's certificate; empty: the system's."""
    proxy: str = ""
    """URL of the HTTP proxy on the way to the provider; empty: none."""
    absent_s: float = 30 * 86400.0
    """So long after its owner's last sign-in a series goes on that nobody's token made here stands for; then it is paused until they sign in again."""
    leeway_s: float = 30.0
    """So much may the provider's clock differ from ours."""
    refresh_s: float = 3600.0
    """How often the provider's keys are fetched (real seconds); also when a token names one that is not known."""


class TokenSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tokens that are made here for people. Clock seconds."""

    lifetime_s: float = 90 * 86400.0
    """How long one is good where nobody says otherwise; 0: for ever. The first admin's does not expire."""


class LedgerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What becomes of the ledger outside of the store."""

    export: tuple[str, ...] = ()
    """Where sealed lines are also kept, as JSON lines: `file:///PATH`, `syslog:///dev/log`, `syslog://HOST:PORT` (UDP), `syslog+tcp://HOST:PORT`, `s3://BUCKET/PREFIX`."""


class TraceSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A trace of each job to an OpenTelemetry collector, by OTLP over HTTP. Real seconds."""

    endpoint: str
    """URL that spans are posted to, such as `http://127.0.0.1:4318/v1/traces`."""
    headers_file: str = ""
    """File with headers of each request, such as a token: `NAME: VALUE`, one a line. Read at the start."""
    ca: str = ""
    """PEM file of a private authority behind its certificate; empty: those of the system."""
    share: float = 1.0
    """Share of all jobs that are traced, above 0 and up to 1; chosen by their ids."""
    every_s: float = 2.0
    """Spans are sent so often."""
    timeout_s: float = 10.0
    """A request may take so long, with all its attempts; then its spans are dropped."""


class VisibilitySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What people are shown of others' work."""

    jobs: Literal["everybody", "team"] = "everybody"
    """`everybody`: all who sign in see which jobs there are, by name, owner and size. `team`: only who stands in a relation to a job sees it: its
    owner, members of its team, who administers its queue, the roles platform and admin, and the administrator of the site where it is placed."""


class S3Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A bucket of Amazon S3, or of what speaks like it, for work directories, outputs and logs, in place of a folder. Real seconds.

    Credentials are those that boto3 finds: the environment (`AWS_…`), the file below, or the role of the machine or pod.
    """

    bucket: str
    """Its name. It has to be there."""
    prefix: str = "federator"
    """What every key begins with; two federations in one bucket need two."""
    region: str = ""
    """Of the bucket; empty: what boto3 finds, or us-east-1."""
    endpoint: str = ""
    """URL of a server other than Amazon's, such as `https://minio.example.org:9000`; empty: Amazon's."""
    path_style: bool = False
    """Whether the bucket stands in the path and not in the host's name, as many servers other than Amazon's want it."""
    credentials_file: str = ""
    """File with credentials, in the form of `~/.aws/credentials`; empty: boto3 looks for them itself."""
    profile: str = ""
    """Which credentials of the file are taken; empty: `default`."""
    ca_file: str = ""
    """PEM file of the authority behind the server's certificate; empty: the well-known ones."""
    encryption: Literal["", "AES256", "aws:kms"] = ""
    """How the server is asked to encrypt what it keeps; empty: as the bucket is set."""
    kms_key: str = ""
    """Key for `aws:kms`; empty: the account's own."""
    timeout_s: float = 30.0
    """So long the server may be silent within a request."""
    patience_s: float = 60.0
    """For so long a request is repeated that met a fault which may pass, before it counts as failed."""


class StoreSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where records are kept: in one file below `state_dir`, or in etcd; and where that is kept which is too large for records."""

    etcd: EtcdSettings | None = None
    """An etcd cluster; without it, the embedded store, for one dispatcher."""
    s3: S3Settings | None = None
    """A bucket for work directories, outputs and logs; without it, a folder below `state_dir`, or `etcd.shared_dir`."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All settings of `federator serve`."""

    state_dir: str = "~/.local/share/federator"
    """Where the store, blobs and logs live."""
    federation: str = "federation"
    """Name of this federation: the tag on everything it rents."""
    clock: str = "system"
    """`system`, or `scaled:FACTOR@ORIGIN` for demonstrations; agents must be given the same."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Logs go to standard error and never hold a secret."""
    log_format: Literal["text", "json"] = "text"
    """`text`: lines for people; `json`: one object a line, with `trace_id` where it is about one job."""
    server: ServerSettings = ServerSettings()
    store: StoreSettings = StoreSettings()
    connections: ConnectionSettings = ConnectionSettings()
    limits: LimitSettings = LimitSettings()
    turn: TurnSettings = TurnSettings()
    link: LinkSettings = LinkSettings()
    leases: LeaseSettings = LeaseSettings()
    retention: RetentionSettings = RetentionSettings()
    alerts: AlertSettings = AlertSettings()
    notifications: NotificationSettings = NotificationSettings()
    tokens: TokenSettings = TokenSettings()
    ledger: LedgerSettings = LedgerSettings()
    visibility: VisibilitySettings = VisibilitySettings()
    traces: TraceSettings | None = None
    """Traces of jobs; without it, none are made."""
    oidc: OidcSettings | None = None
    """An OpenID Connect provider; without it, people sign in with tokens made here alone."""
    providers: dict[str, ProviderSettings] = {}
    """Providers by name."""
