"""Groups of the protocol of KIP-848: the coordinator assigns."""
