"""DescribeCluster (KIP-700): the brokers, the controller, the cluster's id."""

from __future__ import annotations

from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.handler import RequestContext, message_handler
from ottla.wire.apis.describe_cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse

_BROKERS = 1
"""The endpoint type of brokers; 2 would ask for KRaft controllers, which this cluster does not have."""


def respond(context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type != _BROKERS:
        known = request.endpoint_type == 2
        raise KafkaError(code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)
    image = context.broker.image
    brokers = []
    for broker in image.brokers.values():
        endpoint = broker.endpoint(context.connection.listener)
        if endpoint is not None:
            brokers.append(
                DescribeClusterBroker(
                    broker_id=broker.broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack
                )
            )
    return DescribeClusterResponse(
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        brokers=brokers,
        cluster_authorized_operations=context.cluster_operations(request.include_cluster_authorized_operations),
    )


HANDLER = message_handler(DescribeClusterRequest, (0, 2), respond)
