#!/usr/bin/env bash
# Fetches Kafka's own tools (Java) by name from Maven Central into .tools/kafka-libs, once. Tests let them read our logs.
# Another directory, and another file of names, can be given.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
libs="${1:-$root/.tools/kafka-libs}"
pom="${2:-$root/tests/interop/kafka_tools_pom.xml}"

# Tests that run side by side may all want the tools at once.
mkdir -p "$(dirname "$libs")"
exec 9>"$libs.lock"
flock 9

# The mark is a copy of what was asked for, and is made last: a download that broke off is begun again.
if cmp -s "$pom" "$libs/complete.xml"; then
    exit 0
fi
for tool in java mvn; do
    if ! command -v "$tool" >/dev/null 2>&1; then
        echo "Kafka's tools need $tool, which is not installed." >&2
        exit 1
    fi
done
echo "Fetching Kafka's tools into $libs." >&2
rm -rf "$libs"
mkdir -p "$libs"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! mvn --batch-mode --quiet --file "$pom" dependency:copy-dependencies \
    -DincludeScope=runtime -DoutputDirectory="$libs" >"$log" 2>&1; then
    echo "Kafka's tools could not be fetched: $(grep -m1 ERROR "$log" || tail -n1 "$log")" >&2
    exit 1
fi
cp "$pom" "$libs/complete.xml"
