#!/usr/bin/env bash
# Format, then clang-tidy's allow-list over the sources. A file that passed is not read again until
# it, a header or the rules change.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/format.sh --check
build=${1:-build}
cache=$build/lint
mkdir -p "$cache"
rules=$(cat .clang-tidy $(git ls-files -co --exclude-standard -- '*.h' | sort) | sha256sum | cut -c1-16)
todo=()
while read -r file; do
  case $file in *_test.cpp | *_bench.cpp | *_fuzz.cpp | tests/*) continue ;; esac
  grep -q "\"$PWD/$file\"" "$build/compile_commands.json" || continue
  stamp=$cache/$(sha256sum "$file" | cut -c1-16)-$rules
  [ -e "$stamp" ] || todo+=("$file")
done < <(git ls-files -co --exclude-standard -- 'atoll/*.cpp')
[ ${#todo[@]} -eq 0 ] && { echo "lint: clang-tidy has nothing new to read"; exit 0; }
echo "lint: clang-tidy reads ${#todo[@]} files"
# -fno-openmp: clang has no omp.h of its own here, and the pragmas change nothing that is checked.
export build cache rules
printf '%s\n' "${todo[@]}" | xargs -P "$(nproc)" -I{} bash -c '
  file={}
  output=$(clang-tidy-19 --quiet -p "$build" --extra-arg=-Wno-unknown-warning-option \
    --extra-arg=-fno-openmp --extra-arg=-Wno-gnu-zero-variadic-macro-arguments "$file" 2>/dev/null) || {
    echo "$output"; exit 255; }
  touch "$cache/$(sha256sum "$file" | cut -c1-16)-$rules"'
echo "lint: clean"
