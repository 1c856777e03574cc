"""Who has which tokens, as rows for people; never the secrets, which nobody has."""

from federator.control.records import Records
from federator.wire.http import TokenRow


def token_rows(records: Records, now: float) -> list[TokenRow]:
    """All tokens of people, and those for agents that still wait for one; newest first."""
    rows = [
        TokenRow(
            name=token.name,
            role=token.role,
            site=token.site or "",
            default_queue=token.default_queue,
            created_at=token.created_at,
            expires_at=token.expires_at,
            status="revoked" if token.revoked else _status(token.expires_at, now),
        )
        for token in records.tokens.values()
    ]
    rows += [
        TokenRow(
            name=join.member or "",
            site=join.site,
            created_at=join.created_at,
            expires_at=join.expires_at,
            status=_status(join.expires_at, now),
        )
        for join in records.join_tokens.values()
        if join.public_key is None
    ]
    return sorted(rows, key=lambda row: (-row.created_at, row.name))


def _status(expires_at: float | None, now: float) -> str:
    return "expired" if expires_at is not None and expires_at <= now else "valid"
