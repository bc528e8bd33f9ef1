#!/bin/sh
# Makes docs/images/report.png, the README's picture, from a run's report: docs/images/report.sh runs/quickstart
set -eu
run=${1:?usage: docs/images/report.sh RUN [HEIGHT]}
height=${2:-3020}
profile=$(mktemp -d)
trap 'rm -rf "$profile"' EXIT
chromium --headless=new --no-sandbox --disable-gpu --no-first-run --hide-scrollbars --disable-sync \
  --disable-background-networking --disable-component-update --disable-quic --user-data-dir="$profile" \
  --window-size="1200,$height" --screenshot="$(dirname "$0")/report.png" "file://$(realpath "$run")/report.html"
