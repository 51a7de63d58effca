"""IncrementalAlterConfigs (KIP-339): sets, deletes, appends to and subtracts from single settings."""

from __future__ import annotations

from ottla.base.errors import KafkaError
from ottla.broker.config.describe import Alteration
from ottla.broker.handler import RequestContext, message_handler
from ottla.broker.handlers.config_resources import alter, operation_of
from ottla.wire.apis.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


async def respond(context: RequestContext, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
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
                [Alteration(c.name, operation_of(c.config_operation), c.value) for c in resource.configs],
                replace=False,
                validate_only=request.validate_only,
            )
        except KafkaError as e:
            response.error_code, response.error_message = e.code, e.message
        responses.append(response)
    return IncrementalAlterConfigsResponse(responses=responses)


HANDLER = message_handler(IncrementalAlterConfigsRequest, (0, 1), respond)
