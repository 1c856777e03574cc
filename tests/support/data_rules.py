"""The rules of a site whose file says nothing of data."""

from federator_agent.data.allowed import DataRules

ANYWHERE = DataRules(None, ()).check_folder
"""Every folder may be named."""
