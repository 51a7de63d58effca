"""Why a setting does nothing here, or must not be set: sentences more than one module of declarations needs."""

from __future__ import annotations

NOT_YET = "nothing acts on it yet"
NO_JVM = "there is no JVM here"
NO_JAVA_CLASSES = "Java classes cannot be loaded here"
NO_KRAFT = "Ottla has no KRaft controllers"
NOTHING_TIERED = "nothing is tiered here"
OLD_FORMATS = "only message format 2 is stored and served"
ONE_LOOP = "one event loop serves the whole broker"

PLAIN_TEXT_ONLY = "this version serves plain text only"
NO_TLS = "this version has no TLS"
NO_AUTHENTICATION = "this version authenticates nobody"
