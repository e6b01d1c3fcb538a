#!/usr/bin/env bash
# The tests that need a browser: in the one that ONCEONLY_TEST_BROWSER names or that is on the path, else in one that the
# machine's own package manager or npm can bring, else not at all, and it says so. What npm brings lies in .cache/browser.
set -euo pipefail
cd "$(dirname "$0")/.."

names="chromium chromium-browser google-chrome google-chrome-stable"
cache=.cache/browser
apt_limit=300
npm_limit=300

say() { echo "browser: $*" >&2; }
starts() { [ -n "$1" ] && timeout 30 "$1" --version >/dev/null 2>&1; }

on_path() {
  local name path
  for name in $names; do
    path=$(command -v "$name") && starts "$path" && echo "$path" && return
  done
  return 1
}

from_apt() {
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
  say "none is here; apt-get installs chromium"
  export DEBIAN_FRONTEND=noninteractive
  timeout "$apt_limit" apt-get -qq update >&2 || return 1
  timeout "$apt_limit" apt-get -qq install --yes --no-install-recommends chromium >&2 || return 1
  on_path
}

# The package carries the program itself, compressed; its own unpacking is for another kind of machine.
from_npm() {
  command -v npm >/dev/null && command -v node >/dev/null || return 1
  say "none is here; npm fetches @sparticuz/chromium into $cache"
  mkdir -p "$cache"
  timeout "$npm_limit" npm install --silent --no-audit --no-fund --prefix "$cache" "@sparticuz/chromium@153" >&2 || return 1
  node -e '
    const fs = require("fs"), [from, to] = process.argv.slice(1)
    fs.writeFileSync(to, require("zlib").brotliDecompressSync(fs.readFileSync(from)), {mode: 0o755})
  ' "$cache/node_modules/@sparticuz/chromium/bin/chromium.br" "$cache/chromium" || return 1
  starts "$cache/chromium" && echo "$PWD/$cache/chromium"
}

cached() { starts "$cache/chromium" && echo "$PWD/$cache/chromium"; }

browser=${ONCEONLY_TEST_BROWSER:-}
if [ -z "$browser" ]; then
  browser=$(on_path || cached || from_apt || from_npm) || {
    echo "browser: not exercised (none of $names is here, and neither apt-get nor npm could bring one)"
    exit 0
  }
fi
starts "$browser" || { say "$browser does not start"; exit 2; }
say "$browser"
ONCEONLY_TEST_BROWSER=$browser .venv/bin/pytest -m browser tests "$@"
