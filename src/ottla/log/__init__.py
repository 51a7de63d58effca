"""Partitions on disk, in Kafka's own file formats: segments, indexes, producer state, recovery, log directories.

Knows nothing of sockets, requests or leadership; those who do call `PartitionLog` and `LogDirs`.
"""
