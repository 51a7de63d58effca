#!/usr/bin/env bash
# Installs the programs the tests use and pip cannot bring: kcat, a Kafka client, and servers of PostgreSQL and MariaDB,
# which the tests start for themselves on free ports; and what root makes networks of. Without them the tests that need them
# are skipped, so failing is no error.
set -euo pipefail

missing=()
command -v kcat >/dev/null 2>&1 || command -v kafkacat >/dev/null 2>&1 || missing+=(kcat)
command -v initdb >/dev/null 2>&1 || compgen -G "/usr/lib/postgresql/*/bin/initdb" >/dev/null || missing+=(postgresql)
# Only programs: the package mariadb-server would start a server of the system's own.
[ -x /usr/sbin/mariadbd ] && [ -x /usr/bin/my_print_defaults ] || missing+=(mariadb-server-core mariadb-client-core)
if [ "$(id -u)" -eq 0 ]; then
    command -v ip >/dev/null 2>&1 && command -v tc >/dev/null 2>&1 || missing+=(iproute2)
    command -v iptables-restore >/dev/null 2>&1 || missing+=(iptables)
fi
if [ "${#missing[@]}" -eq 0 ]; then
    exit 0
fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "Not installed: ${missing[*]}; install them to run the tests that use them." >&2
    exit 0
fi
echo "Installing ${missing[*]}." >&2
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq >/dev/null 2>&1 || true
for package in "${missing[@]}"; do
    if [ "$package" = postgresql ] && [ ! -e /etc/postgresql-common/createcluster.conf ]; then
        # Only the programs are wanted, not a server of the system's own.
        mkdir -p /etc/postgresql-common
        echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf
    fi
    if ! apt-get install -y -qq -o Dpkg::Options::=--force-confold "$package" >/dev/null 2>&1; then
        echo "$package could not be installed; the tests that use it will be skipped." >&2
    fi
done
