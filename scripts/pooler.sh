#!/usr/bin/env bash
# The tests that need a PgBouncer: before the one that ONCEONLY_TEST_PGBOUNCER names or that is on the path, else before
# the one in Debian's package, else not at all, and it says so. The package is unpacked into .cache/pgbouncer and not
# installed: installing it would start a pooler on this machine, and takes root.
set -euo pipefail
cd "$(dirname "$0")/.."

cache=.cache/pgbouncer
limit=300

say() { echo "pooler: $*" >&2; }
starts() { [ -n "$1" ] && timeout 30 "$1" --version >/dev/null 2>&1; }
installed() { dpkg-query --show --showformat '${Status}' "$1" 2>/dev/null | grep -q "ok installed"; }

on_path() {
  local path
  path=$(PATH=$PATH:/usr/sbin command -v pgbouncer) && starts "$path" && echo "$path"
}

cached() { starts "$cache/pgbouncer" && echo "$PWD/$cache/pgbouncer"; }

# Libraries that the program needs and this machine has not.
libraries() {
  local name
  apt-cache depends --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances pgbouncer |
    sed -n 's/^ *Depends: \(lib[^<>]*\)$/\1/p' |
    while read -r name; do installed "$name" || echo "$name"; done
}

from_debian() {
  local package
  command -v apt-get >/dev/null && command -v dpkg >/dev/null || return 1
  say "none is here; apt-get fetches Debian's package into $cache"
  rm -rf "$cache" && mkdir -p "$cache/packages"
  if [ "$(id -u)" = 0 ]; then timeout "$limit" apt-get -qq update >&2 || return 1; fi
  # shellcheck disable=SC2046
  (cd "$cache/packages" && timeout "$limit" apt-get -qq download pgbouncer $(libraries)) >&2 || return 1
  for package in "$cache"/packages/*.deb; do dpkg --extract "$package" "$cache" || return 1; done
  cat >"$cache/pgbouncer" <<'WRAPPER'
#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
LD_LIBRARY_PATH=$(echo "$here"/usr/lib/*-linux-gnu*)
export LD_LIBRARY_PATH
exec "$here/usr/sbin/pgbouncer" "$@"
WRAPPER
  chmod +x "$cache/pgbouncer"
  cached
}

pooler=${ONCEONLY_TEST_PGBOUNCER:-}
if [ -z "$pooler" ]; then
  pooler=$(on_path || cached || from_debian) || {
    echo "pooler: not exercised (no pgbouncer is here, and apt-get could not bring one)"
    exit 0
  }
fi
starts "$pooler" || { say "$pooler does not start"; exit 2; }
say "$pooler"
ONCEONLY_TEST_PGBOUNCER=$pooler .venv/bin/pytest -n 0 tests/sinks/test_postgres_pgbouncer.py -m "not slow" "$@"
