"""What brokers do for each other's copies: connections among them, following leaders, changes of in-sync sets."""
