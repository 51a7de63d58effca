"""How fast a log is compacted: our cleaner, `cp` of the same segments, and Apache Kafka's cleaner on the same log."""
