"""The environment variables all of Ottla's programs know."""

from __future__ import annotations

PREFIX = "OTTLA_"
"""What the variables that set a broker's settings begin with, too."""
KAFKA_PREFIX = "KAFKA_"
"""What they begin with in container images of Kafka."""
BOOTSTRAP_SERVERS = "OTTLA_BOOTSTRAP_SERVERS"
"""Where clients find a broker, unless they are told otherwise."""
