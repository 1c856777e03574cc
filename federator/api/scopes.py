"""Which scope a route wants: from its method, with the exceptions in one table. What is not reading, submitting, changing or entering a job is managing."""

from federator.api.table import Route
from federator.model.identity import Scope

EXCEPTIONS = {
    ("POST", "/v1/jobs"): Scope.SUBMIT,
    ("POST", "/v1/jobs/rerun"): Scope.SUBMIT,
    ("POST", "/v1/preview"): Scope.SUBMIT,
    ("PUT", "/v1/blobs/{hash}"): Scope.SUBMIT,
    ("HEAD", "/v1/blobs/{hash}"): Scope.SUBMIT,
    ("POST", "/v1/services"): Scope.SUBMIT,
    ("GET", "/v1/jobs/{id}/tunnel"): Scope.EXEC,
    ("POST", "/v1/gateway"): Scope.EXEC,
    ("POST", "/v1/policies/validate"): Scope.READ,
    ("POST", "/v1/policies/diff"): Scope.READ,
    ("POST", "/v1/policies/replay"): Scope.READ,
}
JOBS = ("/v1/jobs/", "/v1/series/", "/v1/services/")


def scope_of(route: Route) -> Scope:
    """The one scope that a limited token needs for this route."""
    found = EXCEPTIONS.get((route.method, route.path))
    if found is not None:
        return found
    if route.method in ("GET", "HEAD"):
        return Scope.READ
    return Scope.CHANGE if route.path.startswith(JOBS) else Scope.MANAGE
