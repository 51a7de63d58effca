"""The transaction coordinator's rules (KIP-98, KIP-360, KIP-890) and the partition leader's share in them. No IO."""
