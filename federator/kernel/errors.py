"""Errors as named situations in four families.

*Permanent*: the request is wrong and will stay wrong. *Transient*: try again later. *Conflict*: the world moved; look
again. *Bug*: we are wrong. Everything else about an error – HTTP status, retry, log level – follows from its family, in
one place each. A message names what is wrong, where, and what would be right.
"""

LONGEST = 2000
"""Characters of each part of an error. What was sent is repeated in it, and answered, logged and kept."""


class FederatorError(Exception):
    """Root of all named situations. `code` is stable and machine-readable; `field` is a path such as `$.resources.gpus`."""

    code = "error"

    def __init__(self, message: str, *, field: str | None = None, remedy: str | None = None) -> None:
        self.message = _cut(message)
        self.field = _cut(field) if field else field
        self.remedy = _cut(remedy) if remedy else remedy
        super().__init__(self.describe())

    def describe(self) -> str:
        """The whole sentence for a person: where, what, and what to do."""
        where = f"{self.field}: " if self.field else ""
        remedy = f" ({self.remedy})" if self.remedy else ""
        return f"{where}{self.message}{remedy}"


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


class Permanent(FederatorError):
    """Repeating the request cannot help."""

    code = "invalid"


class Transient(FederatorError):
    """Repeating the request after `retry_after_s` may help."""

    code = "unavailable"

    def __init__(
        self, message: str, *, retry_after_s: float = 1.0, field: str | None = None, remedy: str | None = None
    ) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(message, field=field, remedy=remedy)


class Conflict(FederatorError):
    """The state that the request was based on is gone."""

    code = "conflict"


class Bug(FederatorError):
    """An assumption of ours does not hold."""

    code = "bug"


class Invalid(Permanent):
    """The input breaks a rule; `field` says where."""

    code = "invalid"


class NotSupported(Permanent):
    """A documented field or verb that this version does not act on yet, and therefore refuses."""

    code = "not-supported-yet"


class NotFound(Permanent):
    """Nothing of that name, or nothing that the caller may see."""

    code = "not-found"


class Unauthenticated(Permanent):
    """No credential, or one that is wrong, expired or revoked. `why` is for the log: who is not known is not told it."""

    code = "unauthenticated"

    def __init__(
        self, message: str, *, why: str = "", field: str | None = None, remedy: str | None = None
    ) -> None:
        self.why = why
        super().__init__(message, field=field, remedy=remedy)


class Untrusted(Permanent):
    """The other side of a connection does not prove who it is: its certificate is not to be believed, or it speaks no TLS."""

    code = "untrusted"


class Forbidden(Permanent):
    """The caller's role does not allow this."""

    code = "forbidden"


class TooLarge(Permanent):
    """Over a published limit."""

    code = "too-large"


class Damaged(Permanent):
    """What we keep ourselves cannot be read any more. Whoever asks is not at fault, and asking again does not help before a person has."""

    code = "damaged"


class TooMany(Transient):
    """A limit on rate or backlog is reached."""

    code = "too-many"


class Unavailable(Transient):
    """A part we depend on does not answer."""

    code = "unavailable"


class NoRoom(Unavailable):
    """The disk has no room for anything new: what is left of it is for ending what runs."""

    code = "no-room"


class NotLeading(Unavailable):
    """Another dispatcher leads; nothing was done. The same request to the one that does will be answered."""

    code = "not-leading"


class OutcomeUnknown(Unavailable):
    """A write was sent and not answered: it may have happened, and may still happen."""


class StoreConflict(Conflict):
    """A transaction's comparison failed; `key` is the first that did."""

    code = "store-conflict"

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"{key} has changed since it was read")


class ClientIdReused(Conflict):
    """A client id was sent again with another body."""

    code = "client-id-reused"


class BadTransition(Bug):
    """A status and an event that the lifecycle tables do not list together."""

    code = "bad-transition"


class NoCapacity(Transient):
    """An offer is sold out for now; it is avoided for a while and another is tried.

    `stock`: what it draws on is used up, so far that with `used` of it taken what takes `each` is not to be had under another name either.
    """

    code = "no-capacity"

    def __init__(
        self,
        message: str,
        *,
        retry_after_s: float = 1.0,
        stock: str = "",
        each: int = 0,
        used: int = 0,
        field: str | None = None,
        remedy: str | None = None,
    ) -> None:
        self.stock, self.each, self.used = stock, each, used
        super().__init__(message, retry_after_s=retry_after_s, field=field, remedy=remedy)
