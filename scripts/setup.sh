#!/usr/bin/env bash
# Installs what Atoll needs on Debian 12: setup.sh build | test. Called by every make target; once
# done, a second call returns at once (a stamp remembers this file's contents).
#
#   ATOLL_TORCH_DIR  an existing LibTorch (the folder with include/ and lib/), CPU or CUDA build
#   ATOLL_VENV       where the project's Python environment is (default: .venv)
set -euo pipefail
cd "$(dirname "$0")/.."
tier=${1:-build}
venv=${ATOLL_VENV:-.venv}
stamps=$venv/setup-stamps
stamp=$stamps/$tier-$(sha256sum scripts/setup.sh | cut -c1-16)-$(printf %s "${ATOLL_TORCH_DIR:-}" | sha256sum | cut -c1-8)
[ -e "$stamp" ] && exit 0

build_packages="build-essential cmake ninja-build ccache lld pkg-config python3 python3-venv
  protobuf-compiler libprotobuf-dev libexpected-dev libfmt-dev
  nlohmann-json3-dev libtomlplusplus-dev libcli11-dev libssl-dev zlib1g-dev libzstd-dev libxxhash-dev libonig-dev
  libcpp-httplib-dev libyaml-cpp-dev libnlopt-dev libsqlite3-dev libgloo-dev"
test_packages="libgtest-dev libgmock-dev libbenchmark-dev clang-19 clang-format-19 clang-tidy-19
  libclang-rt-19-dev time zstd munge slurm-client slurmctld slurmd nftables iproute2 openssl curl json-schema-test-suite
  chromium"

apt_is_fresh=
install_packages() {
  local missing=()
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  command -v apt-get >/dev/null || {
    echo "setup: this needs Debian packages (${missing[*]}), and there is no apt-get here" >&2
    exit 1
  }
  local sudo=""
  [ "$(id -u)" -eq 0 ] || sudo=sudo
  [ -z "$sudo" ] || command -v sudo >/dev/null || {
    echo "setup: become root or install sudo; missing Debian packages: ${missing[*]}" >&2
    exit 1
  }
  echo "setup: installing ${missing[*]}" >&2
  [ -n "$apt_is_fresh" ] || $sudo apt-get update -qq
  apt_is_fresh=yes
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

pip_install() { "$venv/bin/python" -m pip install -q --disable-pip-version-check "$@"; }

has_torch() {
  "$venv/bin/python" -c 'from importlib.metadata import version; assert version("torch").startswith("2.13.0")' 2>/dev/null
}

# The CPU build of LibTorch, never the CUDA one by accident: first from the indexes pip already
# knows, then from PyTorch's own. More words are for pip.
install_torch() {
  echo "setup: installing LibTorch (torch 2.13.0, CPU build) into $venv" >&2
  pip_install "$@" "torch==2.13.0+cpu" 2>/dev/null ||
    pip_install "$@" --index-url https://download.pytorch.org/whl/cpu "torch==2.13.0+cpu" ||
    {
      echo "setup: no CPU build of torch 2.13.0 found; name a LibTorch with ATOLL_TORCH_DIR=DIR" >&2
      exit 1
    }
}

mkdir -p "$stamps"
exec 9>"$stamps/lock"
flock 9
[ -e "$stamp" ] && exit 0
install_packages python3 python3-venv
"$venv/bin/python" -m pip --version >/dev/null 2>&1 || python3 -m venv "$venv"
torch_job=
if [ -z "${ATOLL_TORCH_DIR:-}" ] && ! has_torch; then
  # Beside the packages. A build wants its headers and libraries, not what its Python half needs.
  install_torch --no-deps --no-compile &
  torch_job=$!
fi
# shellcheck disable=SC2086  # the lists are split on purpose
install_packages $build_packages
[ -z "$torch_job" ] || wait "$torch_job"
if [ "$tier" = test ]; then
  # shellcheck disable=SC2086
  install_packages $test_packages
  # The oracles are PyTorch programs, even when LibTorch comes from elsewhere.
  { has_torch && "$venv/bin/python" -c 'import torch' 2>/dev/null; } || install_torch
  pip_install numpy==2.4.6 tokenizers==0.23.3 safetensors==0.8.0 transformers==5.23.0 unicodedata2==16.0.0 \
    jinja2==3.1.6 'lm_eval[api]==0.4.13' accelerate==1.15.0 peft==0.21.2 datasets==5.2.0 evaluate==0.4.6 \
    sentencepiece==0.2.3 gguf==0.19.0 tiktoken==0.14.0 kubernetes-validate==1.37.0 openai==3.57.0 \
    jsonschema==4.26.0
fi
touch "$stamp"
