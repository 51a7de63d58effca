"""The id of an idempotent producer without transactions, which any broker gives."""

from __future__ import annotations

import asyncio

from ottla.base.errors import KafkaError
from ottla.client.aio.cluster_link import ClusterLink
from ottla.client.core.settings import ClientSettings, backoff_ms
from ottla.client.errors import client_error
from ottla.wire.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


class ProducerIds:
    def __init__(self, settings: ClientSettings, link: ClusterLink) -> None:
        self._settings = settings
        self._link = link
        self.error: KafkaError | None = None
        """Why there was none the last time."""

    async def ask(self) -> tuple[int, int]:
        """Id and epoch. What may pass is tried again, for as long as it takes."""
        attempt = 0
        while True:
            attempt += 1
            try:
                found = await self._ask_once()
                self.error = None
                return found
            except KafkaError as e:
                self.error = e
                if not e.retriable:
                    raise
            pause_ms = backoff_ms(attempt, self._settings.retry_backoff_ms, self._settings.retry_backoff_max_ms)
            await asyncio.sleep(pause_ms / 1000)

    async def _ask_once(self) -> tuple[int, int]:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
        response = await self._link.request_any(
            lambda link: (request, link.version_for(InitProducerIdRequest)), InitProducerIdResponse
        )
        if response.error_code:
            raise client_error(response.error_code)
        return response.producer_id, response.producer_epoch
