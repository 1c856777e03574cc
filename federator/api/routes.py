"""The one table of routes: method, path, handler, who may, what goes in, what comes out. Authorization, the server and the OpenAPI
description are all read from it.
"""

from typing import Any

from federator.api import (
    agents,
    browser_session,
    changes,
    events,
    files,
    fleet,
    governance,
    job_actions,
    jobs,
    logs,
    output_uploads,
    people,
    placement_inputs,
    plans,
    recorded,
    series,
    service,
    services,
    tunnels,
    usage,
)
from federator.api.exchange import JSON, NDJSON, YAML, Call
from federator.api.openapi import description
from federator.api.rates import HEAVY, PLAIN, TUNNEL
from federator.api.table import Gate, Route
from federator.model.events import Event, LedgerEntry
from federator.model.identity import Role
from federator.model.jobs import JobSpec
from federator.model.plans import Explanation
from federator.model.rights import MAY_CHANGE, MAY_EXEC, MAY_READ
from federator.model.rules import PolicySet
from federator.model.sites import Site
from federator.wire import (
    administration,
    contrast,
    decisions,
    http,
    link,
    rights,
    sign_in,
    sites,
    tunnel,
    waiting,
)
from federator.wire import services as of_services
from federator.wire.changes import Change
from federator.wire.recorded import RecordedJobs, RecordedWorld
from federator.wire.timetable import PlanPage
from federator.wire.usage import UsageReport

OPEN, PERSON, JOB, AGENT, SESSION = Gate.OPEN, Gate.PERSON, Gate.JOB, Gate.AGENT, Gate.SESSION
PLATFORM = (Role.PLATFORM,)
SITE_ADMIN = (Role.SITE_ADMIN,)
TAR = "application/gzip"
TEXT = "text/plain"
BYTES = ("application/octet-stream", TAR)
JOB_FILE = dict[str, Any]
Detail = http.JobDetail


async def _describe(_call: Call) -> dict[str, Any]:
    return description(ROUTES)


ROUTES = (
    # Jobs
    Route("POST", "/v1/jobs", jobs.submit, PERSON, "Submit one job, or many as NDJSON", body=JOB_FILE, takes=(JSON, YAML[0], NDJSON), answer=http.Submitted, status=201, cost=PLAIN),
    Route("GET", "/v1/jobs", jobs.list_jobs, PERSON, "List jobs", query=jobs.JobsQuery, answer=http.JobPage, cost=PLAIN),
    Route("POST", "/v1/jobs/actions", job_actions.act, PERSON, "Cancel, hold, release or requeue many jobs", body=http.JobAction, answer=list[http.ActedOn], cost=HEAVY),
    Route("POST", "/v1/jobs/rerun", job_actions.rerun, PERSON, "Submit again what has ended", body=http.Rerun, answer=http.Submitted, status=201, cost=PLAIN),
    Route("GET", "/v1/jobs/{id}", jobs.show, PERSON, "Show a job, by id or name", answer=Detail),
    Route("GET", "/v1/jobs/{id}/array", jobs.show_array, PERSON, "Add up the tasks of an array", answer=http.ArrayDetail, cost=PLAIN),
    Route("PATCH", "/v1/jobs/{id}", jobs.update, JOB, "Change a living job", allows=MAY_CHANGE, body=http.JobPatch, answer=Detail, cost=PLAIN),
    Route("POST", "/v1/jobs/{id}/preview", jobs.preview_change, JOB, "Preview a change of a job that waits; nothing is changed", allows=MAY_CHANGE, body=http.JobPatch, answer=http.Preview, cost=HEAVY),
    Route("DELETE", "/v1/jobs/{id}", jobs.cancel, JOB, "Cancel a job", allows=MAY_CHANGE, answer=Detail, status=202, cost=PLAIN),
    Route("GET", "/v1/jobs/{id}/events", events.of_job, PERSON, "Follow a job's events", query=events.FollowQuery, answer=list[Event], content=events.CONTENT_TYPE),
    Route("GET", "/v1/events", events.of_all, PERSON, "Follow all events", query=events.AllQuery, content=events.CONTENT_TYPE),
    Route("GET", "/v1/jobs/{id}/logs", logs.read, JOB, "Read or follow a log", allows=MAY_READ, query=logs.LogsQuery, content=TEXT),
    Route("GET", "/v1/jobs/{id}/outputs", files.outputs, JOB, "Download collected outputs", allows=MAY_READ, content=TAR),
    Route("GET", "/v1/jobs/{id}/outputs/files", files.list_outputs, JOB, "List collected outputs", allows=MAY_READ, answer=http.OutputList, cost=HEAVY),
    Route("GET", "/v1/jobs/{id}/tunnel", tunnels.enter, JOB, "Run a command in a running job, or reach a port of it (WebSocket)", allows=MAY_EXEC, query=tunnels.TunnelQuery, status=101, cost=TUNNEL),
    Route("GET", "/v1/jobs/{id}/gpus", jobs.gpus, PERSON, "Use over time of each GPU of a job", answer=list[http.GpuCurve]),
    Route("GET", "/v1/jobs/{id}/forecasts", jobs.forecasts, PERSON, "What moved the forecast of a job", query=jobs.ForecastsQuery, answer=list[http.ForecastMove], cost=HEAVY),
    Route("GET", "/v1/jobs/{id}/explain", jobs.explain, PERSON, "Explain where a job is, and why", answer=Explanation, cost=HEAVY),
    Route("POST", "/v1/preview", jobs.preview, PERSON, "Preview a job file; nothing is stored", body=JOB_FILE, takes=(JSON, YAML[0]), answer=http.Preview, cost=HEAVY),
    Route("PUT", "/v1/blobs/{hash}", files.put_blob, PERSON, "Upload a work directory", query=files.BlobQuery, body=bytes, takes=BYTES, answer=http.BlobLength, status=201, cost=PLAIN),
    Route("HEAD", "/v1/blobs/{hash}", files.has_blob, PERSON, "Whether you have uploaded a work directory"),
    Route("GET", "/v1/series", series.list_series, PERSON, "List series: jobs that are submitted again and again", query=series.ListQuery, answer=list[http.SeriesRow]),
    Route("GET", "/v1/series/{name}", series.show, PERSON, "Show a series", query=series.WhoseQuery, answer=http.SeriesDetail),
    Route("POST", "/v1/series/{name}/pause", series.pause, PERSON, "Stop submitting runs of a series until it is resumed", query=series.WhoseQuery, answer=http.SeriesDetail, cost=PLAIN),
    Route("POST", "/v1/series/{name}/resume", series.resume, PERSON, "Submit runs of a series again", query=series.WhoseQuery, answer=http.SeriesDetail, cost=PLAIN),
    Route("DELETE", "/v1/series/{name}", series.end, PERSON, "End a series; a run that is there goes on", query=series.WhoseQuery, answer=http.SeriesDetail, cost=PLAIN),
    Route("POST", "/v1/services", services.apply, PERSON, "Begin a service, or give it another file", query=services.ApplyQuery, body=JOB_FILE, takes=(JSON, YAML[0]), answer=of_services.ServiceDetail, cost=PLAIN),
    Route("GET", "/v1/services", services.list_services, PERSON, "List services", query=services.ListQuery, answer=list[of_services.ServiceRow], cost=PLAIN),
    Route("GET", "/v1/services/{name}", services.show, PERSON, "Show a service with its replicas", query=services.WhoseQuery, answer=of_services.ServiceDetail),
    Route("POST", "/v1/services/{name}/promote", services.promote, PERSON, "Let a canary take the place of the former revision", query=services.WhoseQuery, answer=of_services.ServiceDetail, cost=PLAIN),
    Route("POST", "/v1/services/{name}/rollback", services.rollback, PERSON, "Return to the former revision of a service", query=services.WhoseQuery, answer=of_services.ServiceDetail, cost=PLAIN),
    Route("DELETE", "/v1/services/{name}", services.delete, PERSON, "End a service; its replicas finish what they work on", query=services.WhoseQuery, answer=of_services.ServiceDetail, cost=PLAIN),
    Route("POST", "/v1/gateway", services.exchange, PERSON, "What a gateway has seen of the caller's services, and where it sends requests", body=of_services.GatewayReport, answer=of_services.Routed, cost=PLAIN),
    # What there is
    Route("GET", "/v1/sites", fleet.sites, PERSON, "List sites", answer=list[http.SiteRow]),
    Route("GET", "/v1/sites/{name}", fleet.site, PERSON, "Show a site", answer=http.SiteRow),
    Route("GET", "/v1/sites/{name}/statement", fleet.statement, PERSON, "What was used at a site, by owner, queue and GPU model", SITE_ADMIN, query=fleet.StatementQuery, answer=list[http.StatementRow], cost=HEAVY),
    Route("POST", "/v1/sites/{name}/drain", fleet.drain, PERSON, "Start nothing new at a site; with a deadline, stop what still runs by then", SITE_ADMIN, body=sites.DrainRequest, answer=Site),
    Route("POST", "/v1/sites/{name}/drain/preview", fleet.preview_drain, PERSON, "Preview draining a site: what would be stopped, when it is empty, what is lost; nothing is changed", SITE_ADMIN, body=sites.DrainRequest, answer=sites.DrainPreview, cost=HEAVY),
    Route("POST", "/v1/sites/{name}/undrain", fleet.undrain, PERSON, "Start work at a site again", SITE_ADMIN, answer=Site),
    Route("POST", "/v1/sites/{name}/evict", fleet.evict, PERSON, "Have one job, or all, leave a site", SITE_ADMIN, body=sites.EvictRequest, answer=sites.Evicted),
    Route("POST", "/v1/sites/{name}/declare-dead", fleet.declare_dead, PERSON, "Declare that nothing runs at a silent site", SITE_ADMIN, body=sites.DeathNotice, answer=sites.GivenUp),
    Route("POST", "/v1/sites/{name}/members/{member}/revoke", fleet.revoke_key, PERSON, "Revoke a member's key", SITE_ADMIN, status=204),
    Route("POST", "/v1/sites/{name}/members/{member}/trust", fleet.trust_member, PERSON, "Let work start again at a member of which two agents were seen", SITE_ADMIN, status=204),
    Route("DELETE", "/v1/sites/{name}/members/{member}", fleet.remove_member, PERSON, "Forget a host that is gone", (Role.ADMIN,), status=204),
    Route("DELETE", "/v1/sites/{name}", fleet.remove_site, PERSON, "Forget a site that is gone", (Role.ADMIN,), status=204),
    Route("GET", "/v1/queues", fleet.queues, PERSON, "List queues", answer=list[http.QueueRow]),
    Route("GET", "/v1/offers", fleet.offers, PERSON, "List what could be rented", answer=list[http.OfferRow]),
    Route("GET", "/v1/leases", fleet.leases, PERSON, "List what is rented", answer=list[http.LeaseRow]),
    Route("GET", "/v1/budgets", fleet.budgets, PERSON, "List money under caps", answer=list[http.BudgetRow]),
    Route("GET", "/v1/spending", fleet.spending, PERSON, "What was spent under a cap over its present period", query=fleet.SpendingQuery, answer=http.Spending, cost=HEAVY),
    Route("GET", "/v1/plan", plans.show, PERSON, "What runs where and when, as the newest decision foresees it", query=plans.PlanQuery, answer=PlanPage, cost=HEAVY),
    Route("GET", "/v1/overview", fleet.overview, PERSON, "All at once, for a screen", answer=http.Overview),
    Route("GET", "/v1/changes", changes.follow, PERSON, "Follow what there is: sites, queues, leases, budgets, and what changes of them", query=changes.ChangesQuery, answer=Change, content=events.CONTENT_TYPE, cost=PLAIN),
    Route("GET", "/v1/waiting", fleet.waiting, PERSON, "Why jobs wait, added up by reason, and what is kept for whom", answer=waiting.WaitingNow, cost=PLAIN),
    Route("GET", "/v1/alerts", fleet.alerts, PERSON, "List alerts, newest first", answer=list[waiting.AlertRow]),
    Route("GET", "/v1/burst", fleet.burst, PERSON, "Whether and by whom anything may be rented, and what waits for approval", answer=administration.BurstStatus),
    Route("POST", "/v1/burst/approve", fleet.approve_burst, PERSON, "Approve a rental for a job", PLATFORM, body=administration.Approval, status=204),
    Route("POST", "/v1/burst/pause", fleet.pause_burst, PERSON, "Rent nothing new", PLATFORM, status=204),
    Route("POST", "/v1/burst/resume", fleet.resume_burst, PERSON, "Allow renting again", PLATFORM, status=204),
    # Rules and accounts
    Route("GET", "/v1/policies", governance.policies, PERSON, "The policies in force", answer=PolicySet),
    Route("POST", "/v1/policies", governance.apply_policies, PERSON, "Apply a whole policy set", PLATFORM, body=administration.PolicyRequest, answer=administration.PolicyVerdict, cost=HEAVY),
    Route("POST", "/v1/policies/validate", governance.validate_policies, PERSON, "Validate a policy set", body=administration.PolicyRequest, answer=administration.PolicyVerdict, cost=HEAVY),
    Route("POST", "/v1/policies/diff", governance.diff_policies, PERSON, "Compare a policy set with the one in force", body=administration.PolicyRequest, answer=administration.PolicyDiff, cost=HEAVY),
    Route("POST", "/v1/policies/replay", governance.replay_policies, PERSON, "Simulate a policy set on the load of some time, beside the one in force", PLATFORM, body=contrast.ReplayRequest, answer=contrast.PolicyReplay, cost=HEAVY),
    Route("POST", "/v1/policies/rollback", governance.rollback_policies, PERSON, "Put a former policy set in force again", PLATFORM, body=administration.PolicyRollback, answer=administration.PolicyVerdict, cost=HEAVY),
    Route("GET", "/v1/policies/history", governance.policy_history, PERSON, "All versions of the policies", answer=list[PolicySet]),
    Route("GET", "/v1/decisions", governance.decisions, PERSON, "List recorded decisions", query=governance.DecisionsQuery, answer=list[decisions.DecisionRow]),
    Route("GET", "/v1/decisions/{id}", governance.decision, PERSON, "Show a recorded decision", answer=decisions.RecordedDecision),
    Route("GET", "/v1/decisions/{id}/plan", plans.show_recorded, PERSON, "What ran where and when, as a recorded decision foresaw it", query=plans.PlanQuery, answer=PlanPage, cost=HEAVY),
    Route("GET", "/v1/decisions/{id}/told", governance.tell_decision, PERSON, "Show a recorded decision in words", answer=decisions.ToldDecision, cost=HEAVY),
    Route("POST", "/v1/decisions/{id}/replay", governance.replay, PERSON, "Decide again from the record", PLATFORM, answer=decisions.ReplayResult, cost=HEAVY),
    Route("GET", "/v1/recorded/jobs", recorded.jobs, PERSON, "Read the load of some time, for a simulation", PLATFORM, query=recorded.LoadQuery, answer=RecordedJobs),
    Route("GET", "/v1/recorded/world", recorded.world, PERSON, "Read sites and offers, for a simulation", PLATFORM, answer=RecordedWorld),
    Route("GET", "/v1/ledger", governance.ledger, PERSON, "Read the ledger; as a site's admin, what is of that site", (*PLATFORM, *SITE_ADMIN), query=governance.LedgerQuery, answer=list[LedgerEntry], cost=PLAIN),
    Route("GET", "/v1/ledger/export", governance.export_ledger, PERSON, "Read the whole ledger with its seals, to be verified or kept", PLATFORM, content=NDJSON),
    Route("GET", "/v1/usage", usage.usage, PERSON, "Add up what was used and what it cost; your own, or all that you administer", query=usage.UsageQuery, answer=UsageReport, cost=HEAVY),
    Route("GET", "/v1/tokens", governance.tokens, PERSON, "List tokens, without their secrets", (Role.ADMIN,), answer=list[http.TokenRow]),
    Route("POST", "/v1/tokens", governance.create_token, PERSON, "Make a person's or an agent's token", SITE_ADMIN, body=http.TokenRequest, answer=http.TokenAnswer, status=201),
    Route("DELETE", "/v1/tokens/{name}", governance.revoke_tokens, PERSON, "Revoke tokens by name, or one by its id", (Role.ADMIN,), query=governance.RevokeQuery, answer=http.Revoked),
    Route("POST", "/v1/tokens/{name}/rotate", governance.rotate_token, PERSON, "Replace a token with a new one", body=http.TokenRotation, answer=http.TokenAnswer, status=201, cost=PLAIN),
    Route("GET", "/v1/whoami", people.whoami, PERSON, "Who the credential is taken for", answer=sign_in.WhoAmI),
    Route("GET", "/v1/notifications", people.notifications, PERSON, "How you are told of your own jobs", answer=administration.MyNotifications),
    Route("PUT", "/v1/notifications", people.set_notifications, PERSON, "Say where you are told of your own jobs", body=administration.MyAddress, answer=administration.MyNotifications, cost=PLAIN),
    Route("GET", "/v1/teams", people.teams, PERSON, "List teams, who is in them, and what they may do", answer=list[rights.TeamRow]),
    Route("GET", "/v1/sign-in", people.sign_in, OPEN, "Where people sign in", answer=sign_in.SignInWay),
    Route("POST", "/v1/session", browser_session.begin, OPEN, "Begin a browser's session: a cookie that stands for a token", body=sign_in.SessionRequest, answer=sign_in.WhoAmI),
    Route("POST", "/v1/session/start", browser_session.start, OPEN, "Where a browser signs in with OpenID Connect", answer=sign_in.SessionStart),
    Route("DELETE", "/v1/session", browser_session.end, OPEN, "End a browser's session", status=204),
    # Service
    Route("GET", "/healthz", service.alive, OPEN, "Whether the process answers", answer=dict[str, str]),
    Route("GET", "/readyz", service.ready, OPEN, "Whether it can serve", answer=dict[str, str]),
    Route("GET", "/metrics", service.metrics, OPEN, "Metrics for Prometheus", content=TEXT),
    Route("GET", "/v1/schemas/job", service.job_schema, PERSON, "The JSON Schema of job files", answer=dict[str, Any]),
    Route("GET", "/v1/openapi.json", _describe, OPEN, "This description", answer=dict[str, Any]),
    # Agents
    Route("POST", "/agent/v1/join", agents.join, AGENT, "Join an agent by a one-time token", body=link.JoinRequest, answer=link.JoinAnswer),
    Route("POST", "/agent/v1/key", agents.rotate_key, AGENT, "Change an agent's key for one that it has signed", body=link.KeyRequest, answer=link.KeyAnswer),
    Route("GET", link.PATH, agents.open_link, AGENT, "An agent's control connection (WebSocket)", status=101),
    Route("GET", f"{tunnel.PATH}/{{tunnel}}", tunnels.meet, SESSION, "An agent's end of a tunnel into a job (WebSocket)", status=101),
    Route("GET", "/agent/v1/specs/{hash}", agents.spec, SESSION, "A spec to run", answer=JobSpec),
    Route("GET", "/agent/v1/blobs/{hash}", agents.blob, SESSION, "A work directory to unpack", content=TAR),
    Route("GET", "/agent/v1/inputs/{placement}", placement_inputs.found, SESSION, "Which outputs of other jobs a placement reads", answer=link.PlacementInputs),
    Route("GET", "/agent/v1/inputs/{placement}/{job}/{hash}", placement_inputs.archive, SESSION, "Outputs of a job that a placement reads", content=TAR),
    Route("PUT", "/agent/v1/logs/{placement}/{rank}", agents.append_log, SESSION, "Add to a rank's log", query=agents.LogQuery, body=bytes, takes=BYTES, answer=link.LogLength),
    Route("PUT", "/agent/v1/outputs/{placement}", output_uploads.put_outputs, SESSION, "Keep collected outputs", query=output_uploads.OutputQuery, body=bytes, takes=BYTES, answer=link.OutputLength),
)  # fmt: skip
