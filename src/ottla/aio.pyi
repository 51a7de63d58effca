from ottla.client.aio import *  # noqa: F403
