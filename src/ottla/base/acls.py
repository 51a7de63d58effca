"""The words of access rules, which clients and brokers share. The numbers are Kafka's."""

from __future__ import annotations

from enum import IntEnum


class AclResourceType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    """For filters only."""
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    """There is one, and its name is `kafka-cluster`."""
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclOperation(IntEnum):
    UNKNOWN = 0
    ANY = 1
    """For filters only; a rule about every operation has ALL."""
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class AclPermission(IntEnum):
    UNKNOWN = 0
    ANY = 1
    """For filters only."""
    DENY = 2
    ALLOW = 3


class AclPattern(IntEnum):
    UNKNOWN = 0
    ANY = 1
    """For filters only: rules whose pattern reads as the name does, of either kind."""
    MATCH = 2
    """For filters only: every rule that a resource of the name comes under, by prefix and wildcard too."""
    LITERAL = 3
    PREFIXED = 4
