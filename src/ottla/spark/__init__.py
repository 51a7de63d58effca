"""Pipelines on Spark: the format "ottla" to read and write topics, and what runs flows made of it.

The only room that knows PySpark. It reaches brokers through the client library alone.
"""
