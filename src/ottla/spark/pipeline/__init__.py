"""Pipelines: sources, views, sinks and the flows between them, from a file or from Python, run on one Spark session."""
