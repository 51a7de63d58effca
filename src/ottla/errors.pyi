from ottla.client.errors import *  # noqa: F403
