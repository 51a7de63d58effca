"""What the three configuration APIs share: the resources they name."""

from __future__ import annotations

from ottla.base.errors import ErrorCode, InvalidRequestError, KafkaError
from ottla.base.options import OptionSet
from ottla.broker.authorizer import ResourceType
from ottla.broker.config.broker_config import BROKER_OPTIONS
from ottla.broker.config.describe import Alteration, AlterOperation, apply_alterations
from ottla.broker.config.dynamic import Change
from ottla.broker.config.groups import GROUP_OPTIONS
from ottla.broker.config.topics import TOPIC_OPTIONS
from ottla.broker.handler import RequestContext
from ottla.broker.logs import alter_loggers

TOPIC = 2
BROKER = 4
BROKER_LOGGER = 8
GROUP = 32


def broker_id_of(resource_name: str) -> int | None:
    """The broker a resource names; the empty name stands for the defaults of all brokers."""
    if not resource_name:
        return None
    try:
        return int(resource_name)
    except ValueError:
        raise InvalidRequestError(f"{resource_name!r} is not a broker id") from None


def require_own_id(context: RequestContext, resource_name: str) -> None:
    own_id = context.broker.broker_id
    if broker_id_of(resource_name) != own_id:
        raise InvalidRequestError(f"broker {own_id} was asked about the loggers of broker {resource_name!r}")


def require_topic(context: RequestContext, name: str) -> None:
    if name not in context.broker.image.topics:
        raise KafkaError(code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def require_group_name(name: str) -> None:
    """There are no settings of all groups; the broker's own are their defaults."""
    if not name:
        raise InvalidRequestError("the name of the group is empty")


async def alter(
    context: RequestContext,
    resource_type: int,
    resource_name: str,
    alterations: list[Alteration],
    *,
    replace: bool,
    validate_only: bool,
) -> None:
    """Makes the changes; with `replace` whatever is not named goes back to its default."""
    configs = context.broker.dynamic_configs

    def changed(options: OptionSet) -> Change:
        return lambda before: apply_alterations({} if replace else before, alterations, options)

    if resource_type == TOPIC:
        context.require(ResourceType.TOPIC, resource_name)
        require_topic(context, resource_name)
        await configs.change_topic(resource_name, changed(TOPIC_OPTIONS), validate_only=validate_only)
    elif resource_type == BROKER:
        context.require(ResourceType.CLUSTER)
        broker_id = broker_id_of(resource_name)
        await configs.change_broker(broker_id, changed(BROKER_OPTIONS), validate_only=validate_only)
    elif resource_type == GROUP:
        context.require(ResourceType.GROUP, resource_name)
        require_group_name(resource_name)
        await configs.change_group(resource_name, changed(GROUP_OPTIONS), validate_only=validate_only)
    elif resource_type == BROKER_LOGGER:
        context.require(ResourceType.CLUSTER)
        require_own_id(context, resource_name)
        if replace:
            raise InvalidRequestError("levels of loggers are changed by IncrementalAlterConfigs only")
        alter_loggers(alterations, validate_only=validate_only)
    else:
        raise InvalidRequestError(f"resource type {resource_type} has no settings here")


def operation_of(code: int) -> AlterOperation:
    try:
        return AlterOperation(code)
    except ValueError:
        raise InvalidRequestError(f"there is no operation {code} on settings") from None
