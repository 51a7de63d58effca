"""DescribeConfigs: every setting of a topic, group or broker, with where its value comes from."""

from __future__ import annotations

from ottla.base.errors import ErrorCode, InvalidRequestError, KafkaError
from ottla.base.options import Type
from ottla.broker.authorizer import ResourceType
from ottla.broker.config.describe import ConfigEntry, ConfigSource
from ottla.broker.handler import RequestContext, message_handler
from ottla.broker.handlers.config_resources import (
    BROKER,
    BROKER_LOGGER,
    GROUP,
    TOPIC,
    broker_id_of,
    require_group_name,
    require_own_id,
    require_topic,
)
from ottla.broker.logs import describe_loggers
from ottla.wire.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


async def respond(context: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Shows what was set before, through whichever broker: the next command of a script may ask another one."""
    await context.broker.dynamic_configs.catch_up()
    results = []
    for resource in request.resources:
        result = DescribeConfigsResult(
            error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        try:
            result.configs = [_entry(entry, request) for entry in _describe(context, resource)]
        except KafkaError as e:
            result.error_code, result.error_message = e.code, e.message
        results.append(result)
    return DescribeConfigsResponse(results=results)


def _describe(context: RequestContext, resource: DescribeConfigsResource) -> list[ConfigEntry]:
    configs = context.broker.dynamic_configs
    # Kafka's own tools ask with an empty list of keys for all of them.
    names = resource.configuration_keys or None
    if resource.resource_type == TOPIC:
        context.require(ResourceType.TOPIC, resource.resource_name)
        require_topic(context, resource.resource_name)
        return configs.describe_topic(configs.topic_overrides_in_force(resource.resource_name), names)
    if resource.resource_type == BROKER:
        context.require(ResourceType.CLUSTER)
        broker_id = broker_id_of(resource.resource_name)
        if broker_id is None:
            return configs.describe_cluster_defaults(names)
        if broker_id != context.broker.broker_id:
            raise InvalidRequestError(
                f"broker {context.broker.broker_id} was asked for the settings of broker {broker_id}"
            )
        return configs.describe_broker(names)
    if resource.resource_type == GROUP:
        context.require(ResourceType.GROUP, resource.resource_name)
        require_group_name(resource.resource_name)
        return configs.describe_group(resource.resource_name, names)
    if resource.resource_type == BROKER_LOGGER:
        context.require(ResourceType.CLUSTER)
        require_own_id(context, resource.resource_name)
        return [_logger_entry(name, level) for name, level in describe_loggers(names).items()]
    raise KafkaError(f"resource type {resource.resource_type} has no settings here", code=ErrorCode.INVALID_REQUEST)


def _logger_entry(name: str, level: str) -> ConfigEntry:
    source = ConfigSource.DYNAMIC_BROKER_LOGGER
    return ConfigEntry(name, level, source, False, False, Type.STRING, [], f"The level of the logger {name}.")


def _entry(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=None if entry.sensitive else entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in (entry.synonyms if request.include_synonyms else ())
        ],
        config_type=entry.type.value,
        documentation=entry.documentation if request.include_documentation else None,
    )


HANDLER = message_handler(DescribeConfigsRequest, (1, 4), respond)
