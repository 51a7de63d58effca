"""Kafka's script names: the same commands with Kafka's options, and text in Kafka's form."""
