"""`python -m bench.guarded_broker --override NAME=VALUE …`: a broker with rules and quotas that stand in nobody's way.

Everybody may use every topic but a hundred others, and nobody ever reaches the quota: what is measured is the asking.
"""

from __future__ import annotations

import sys

from ottla.base.acls import AclPermission
from ottla.broker.admission import AccessRules
from ottla.broker.app import run_broker
from ottla.broker.authorizer import Operation, ResourceType
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.quotas import DEFAULT, QuotaEntity, QuotaLimits
from ottla.broker.table_authorizer import Rule, TableAuthorizer

_NEVER_REACHED = 1e15
_GUARDED_TYPES = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID)


def access_rules() -> AccessRules:
    allowed = [Rule(AclPermission.ALLOW, Operation.ALL, kind) for kind in _GUARDED_TYPES]
    denied = [Rule(AclPermission.DENY, Operation.ALL, ResourceType.TOPIC, f"secret-{n}") for n in range(100)]
    limits = {QuotaEntity(DEFAULT, DEFAULT): _NEVER_REACHED}
    return AccessRules(TableAuthorizer([*allowed, *denied]), QuotaLimits(producers=limits, consumers=limits))


def main() -> int:
    overrides = [argument for argument in sys.argv[1:] if argument != "--override"]
    return run_broker(BrokerConfig.load(None, overrides), access_rules())


if __name__ == "__main__":
    raise SystemExit(main())
