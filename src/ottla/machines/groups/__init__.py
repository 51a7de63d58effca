"""Consumer groups and their committed offsets: the machines behind `__consumer_offsets`."""
