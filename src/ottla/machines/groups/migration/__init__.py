"""Groups that change their protocol while they have members, and members of both kinds in one group (KIP-848)."""
