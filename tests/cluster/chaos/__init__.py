"""Three brokers under faults, by the ids of a table: `make chaos` prints it with what has happened."""
