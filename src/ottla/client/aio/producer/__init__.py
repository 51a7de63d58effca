"""The producer for asyncio, and the engine that both producers run on."""
