"""The producer for threads: what it does otherwise than that for asyncio, and what is written from that one."""
