"""Messages that are kept rather than exchanged: coordinator records, consumer metadata, producer snapshots."""
