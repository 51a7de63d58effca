"""Names of groups and topics in which pipelines keep notes; others know by them that these are none of theirs."""

from __future__ import annotations

SINK_GROUP = r".*-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:-\d+|-end)?"
"""Matches groups in which sinks keep the numbers of batches: they end with the id of a query, and of a task."""

REDRIVEN_PREFIX = "ottla.redriven."
"""Begins the topics that say which dead letters were sent back."""
