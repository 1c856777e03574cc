"""Variables of a job file that look like credentials. A job file is stored, shown to the team, and sent to whichever site takes the job; secrets are not.

A closed list, and no search for what is random: a refusal has to be one that a person can foresee. Each test looks at one end of a text.
"""

from collections.abc import Mapping

from federator.kernel.errors import Invalid

ENDS = (
    "TOKEN", "PASSWORD", "PASSWD", "PASSPHRASE", "SECRET", "API_KEY", "APIKEY", "ACCESS_KEY", "SECRET_KEY", "PRIVATE_KEY",
    "ACCESS_KEY_ID", "CREDENTIALS",
)  # fmt: skip
"""How names of credentials end."""
NOT_MEANT = frozenset(
    f"{word}_TOKEN" for word in ("BOS", "EOS", "PAD", "UNK", "SEP", "CLS", "MASK", "START", "END", "STOP")
)
"""What language models call the parts of a text."""
BEGINNINGS = (
    "AKIA",
    "ASIA",
    "ghp_",
    "gho_",
    "ghs_",
    "github_pat_",
    "glpat-",
    "hf_",
    "sk-",
    "xoxb-",
    "xoxp-",
    "fed_",
    "AIza",
    "ya29.",
    "npm_",
    "pypi-",
)
"""How well-known keys begin,"""
LEAST = 20
"""and how long they are at least."""
ARMOUR = "-----BEGIN "


def refuse_credentials(env: Mapping[str, str]) -> None:
    """Raise `Invalid` for the first variable whose name or value looks like a credential. An empty value is none."""
    for name, value in env.items():
        found = _looks(name, value)
        if found:
            raise Invalid(
                f"{found}: what is in a job file is stored and shown",
                field=f"$.env.{name}",
                remedy="leave it out and write it under `secrets`, whose values stay at the site; the setting limits.credentials_in_env allows it for all",
            )


def _looks(name: str, value: str) -> str:
    upper, text = name.upper(), value.strip()
    if text and upper not in NOT_MEANT and upper.endswith(ENDS):
        return "has the name of a credential"
    known = text.startswith(BEGINNINGS) and len(text) >= LEAST and " " not in text
    if known or (text.startswith(ARMOUR) and "PRIVATE KEY-----" in text[:100]):
        return "has the value of a credential"
    return ""
