"""Reusable sources and sinks for pipelines: files and directories, database tables, every change of a database."""
