"""Listeners and a sender for asyncio applications: decorated functions with typed payloads, and a life cycle."""

from __future__ import annotations

from ottla.client.app.application import App

__all__ = ["App"]
