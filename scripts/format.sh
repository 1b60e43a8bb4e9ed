#!/usr/bin/env bash
# Formats the C++ sources in place; --check only reports what differs.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=(-i)
[ "${1:-}" = --check ] && mode=(--dry-run -Werror)
git ls-files -co --exclude-standard -- '*.h' '*.cpp' | xargs -r clang-format-19 "${mode[@]}"
