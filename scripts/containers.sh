#!/usr/bin/env bash
# The tests that need containers: on stand-ins of the images where their builder lies beside the checkout and can start
# an engine, else on an engine that answers, else not at all, and it says so.
#
#   STANDIN=path          the builder; default ../shared/tools/standin.sh
#   STANDIN_DIR=/tmp/x    keep engine data and images there; default, a directory that goes at the end
set -euo pipefail
cd "$(dirname "$0")/.."

standin=${STANDIN:-../shared/tools/standin.sh}
start_limit=360
test_limit=900

run_tests() { REQUIRE_CONTAINERS=1 timeout "$test_limit" .venv/bin/pytest -m containers "$@"; }
not_exercised() { echo "containers: not exercised ($1)"; exit 0; }

if [ ! -x "$standin" ]; then
  docker version >/dev/null 2>&1 || not_exercised "no container engine answers, and there is no $standin to start one"
  echo "containers: on the engine that answers"
  run_tests "$@"
  exit
fi

# Short, because the engine's socket lies in it: a socket's path has 107 characters at most.
work=${STANDIN_DIR:-$(mktemp -d /tmp/sdXXXXXX)}
mkdir -p "$work"

leave_nothing() {
  local engine=
  [ -s "$work/dockerd.pid" ] && engine=$(cat "$work/dockerd.pid")
  timeout 60 "$standin" stop "$work" >/dev/null 2>&1 || { [ -n "$engine" ] && kill -KILL "$engine" 2>/dev/null; } || true
  # A builder that was stopped halfway leaves file systems of the machine mounted below its own.
  awk -v below="$work/" 'index($2, below) == 1 { print $2 }' /proc/mounts | sort -r | xargs -r umount || true
  [ -n "${STANDIN_DIR:-}" ] || rm -rf --one-file-system "$work" || true
}
trap leave_nothing EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

echo "containers: starting an engine with stand-ins for the images (from nothing, about 4 minutes and 1.4 GiB)"
SECONDS=0
if ! timeout "$start_limit" "$standin" images "$work" >"$work/standin.log" 2>&1 </dev/null; then
  tail -5 "$work/standin.log"
  not_exercised "no engine with stand-ins came up in $SECONDS s"
fi
echo "containers: stand-ins ready after $SECONDS s"
eval "$("$standin" env "$work")"
run_tests "$@"
