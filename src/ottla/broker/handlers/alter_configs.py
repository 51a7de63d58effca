"""AlterConfigs: replaces all settings of a resource at once. Superseded by IncrementalAlterConfigs (KIP-339)."""

from __future__ import annotations

from ottla.base.errors import KafkaError
from ottla.broker.config.describe import Alteration, AlterOperation
from ottla.broker.handler import RequestContext, message_handler
from ottla.broker.handlers.config_resources import alter
from ottla.wire.apis.alter_configs import AlterConfigsRequest, AlterConfigsResourceResponse, AlterConfigsResponse


async def respond(context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    responses = []
    for resource in request.resources:
        response = AlterConfigsResourceResponse(
            error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        try:
            await alter(
                context,
                resource.resource_type,
                resource.resource_name,
                [Alteration(config.name, AlterOperation.SET, config.value) for config in resource.configs],
                replace=True,
                validate_only=request.validate_only,
            )
        except KafkaError as e:
            response.error_code, response.error_message = e.code, e.message
        responses.append(response)
    return AlterConfigsResponse(responses=responses)


HANDLER = message_handler(AlterConfigsRequest, (0, 2), respond)
