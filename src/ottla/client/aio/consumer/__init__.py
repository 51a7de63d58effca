"""The consumer for asyncio, and the engine that both consumers run on."""
