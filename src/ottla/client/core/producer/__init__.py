"""What a producer decides: batches, partitions, sequence numbers, transactions."""
