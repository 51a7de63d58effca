"""Three brokers of ours beside three of Apache Kafka: replicated writes, failover, memory, and growth."""
