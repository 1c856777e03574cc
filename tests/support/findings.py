"""What the checker's findings come to."""

from collections.abc import Iterable

from federator.model.plans import Finding, Severity


def fatal_subjects(findings: Iterable[Finding]) -> frozenset[str]:
    """The jobs whose actions may not be committed; the empty word stands for the whole plan."""
    return frozenset(finding.subject for finding in findings if finding.severity is Severity.FATAL)
