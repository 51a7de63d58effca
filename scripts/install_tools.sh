#!/usr/bin/env bash
# Installs kcat, a Kafka client the interoperability tests use. Without it those tests are skipped, so failing is no error.
set -euo pipefail

if command -v kcat >/dev/null 2>&1 || command -v kafkacat >/dev/null 2>&1; then
    exit 0
fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "kcat is not installed; install it to run the tests that use it." >&2
    exit 0
fi
echo "Installing kcat." >&2
export DEBIAN_FRONTEND=noninteractive
if ! { apt-get update -qq && { apt-get install -y -qq kcat || apt-get install -y -qq kafkacat; }; } >/dev/null 2>&1; then
    echo "kcat could not be installed; the tests that use it will be skipped." >&2
fi
