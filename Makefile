# make demo    two islands train a model on this machine, then complete code (sets everything up)
# make demo MODEL=smollm2   two islands train SmolLM2-135M further over 20 Mbit/s, and it is asked again what it was asked before
# make check   what a change may have broken, in minutes: rules, unit tests, clang-tidy of what was touched
# make test    what CI runs: build, lint, all tests that nothing cheaper replaces (sets everything up)
# make nightly what takes hours, in parts; goes on where it stopped
# make build   the command alone, at build/bin/atoll
# make install PREFIX=~/.local   the command, its man page and completions
# make deb     a Debian package of them, with LibTorch and systemd units: build/package/atoll.deb
VENV := $(or $(ATOLL_VENV),$(CURDIR)/.venv)
PYTHON := $(VENV)/bin/python
export ATOLL_VENV = $(VENV)
# Found when the recipe runs: before set-up there may be no Python environment yet.
TORCH_DIR = $${ATOLL_TORCH_DIR:-$$(echo $(VENV)/lib/python3*/site-packages/torch)}
# WERROR=OFF for compilers that know warnings ours does not.
CONFIGURE = cmake --log-level=WARNING -DATOLL_WERROR=$(or $(WERROR),ON) -DATOLL_TORCH_DIR="$(TORCH_DIR)"

CTEST = ctest --test-dir build --output-on-failure -j$(shell nproc)

.PHONY: configured build install deb tests demo rules lint lint-whole check test nightly nightly-tests bench asan-build asan tsan-build tsan soak \
  claims-main-job claims-methods claims-swarm claims-ecosystem claims-scaling claims-house claims-models claims-security claims-serving claims-kv claims-lora claims-speed report-methods report-scaling clean

build:
	@scripts/setup.sh build
	@$(CONFIGURE) --preset release -DATOLL_BUILD_TESTS=OFF
	@cmake --build build

configured:
	@scripts/setup.sh test
	@$(CONFIGURE) --preset release -DATOLL_BUILD_TESTS=ON

tests: configured
	@cmake --build build

# Programs, man page and completions; LibTorch stays where it is. DESTDIR is heeded.
install: build
	@cmake --install build --prefix $(or $(PREFIX),/usr/local)

deb: build
	@cpack --config build/CPackConfig.cmake -B build/package

demo: build
	@case "$(if $(findstring command,$(origin MODEL)),$(MODEL))" in \
	  "") scripts/demo.sh ;; \
	  smollm2) scripts/demo_smollm2.sh ;; \
	  *) echo "make demo: MODEL is smollm2 or nothing, not '$(MODEL)'" >&2; exit 2 ;; \
	esac

rules:
	@scripts/setup.sh test
	@scripts/format.sh --check
	@$(PYTHON) scripts/tidy.py

lint: rules tests
	@$(PYTHON) scripts/lint.py

lint-whole: rules tests
	@$(PYTHON) scripts/lint.py --whole

check: rules tests
	@$(PYTHON) scripts/lint.py --touched
	@$(CTEST) -L 'unit|fuzz'

test: lint
	@$(CTEST)
	@$(PYTHON) scripts/nightly.py --age

# All parts that have not passed with this code yet, or PART alone. Commit bench/results/nightly.json afterwards.
nightly: rules
	@$(PYTHON) scripts/nightly.py $(PART)

nightly-tests: tests
	@LONG=1 $(CTEST)

asan-build:
	@scripts/setup.sh test
	@$(CONFIGURE) --preset asan
	@cmake --build build-asan

asan: asan-build
	@ctest --test-dir build-asan --output-on-failure -j$(shell nproc) -L 'unit|fuzz'

tsan-build:
	@scripts/setup.sh test
	@$(CONFIGURE) --preset tsan
	@cmake --build build-tsan

tsan: tsan-build
	@ctest --test-dir build-tsan --output-on-failure -j$(shell nproc) -L unit -E '_tcp_|net.(tcp|tls|https|stranger)'

bench: tests
	@$(PYTHON) bench/train_speed.py build/bin/atoll
	@$(PYTHON) bench/tokenizer_speed.py build

# Every figure that the docs publish, measured again: claim, figure, target, met or short.
claims-main-job: tests
	@$(PYTHON) bench/claims_main_job.py

claims-methods: tests
	@$(PYTHON) bench/claims_methods.py

claims-swarm: tests
	@$(PYTHON) bench/claims_swarm.py

claims-ecosystem: tests
	@$(PYTHON) bench/claims_ecosystem.py

claims-scaling: tests
	@$(PYTHON) bench/claims_scaling.py

claims-house: tests
	@$(PYTHON) bench/claims_house.py

claims-models: tests
	@$(PYTHON) bench/claims_models.py

claims-security: tests
	@$(PYTHON) bench/claims_security.py

claims-serving: tests
	@$(PYTHON) bench/claims_serving.py

claims-kv: tests
	@short=0; for part in kv_codec kv_reuse kv_links lora; do $(PYTHON) bench/claims_$$part.py || short=1; done; exit $$short

claims-lora: tests
	@$(PYTHON) bench/claims_lora.py

claims-speed: configured
	@cmake --build build --target atoll atoll-wan-link
	@$(PYTHON) bench/claims_speed.py

# Every method on real text, three seeds: bench/results/methods.md. Goes on where it was stopped.
report-methods: build
	@$(PYTHON) bench/report_methods.py

# DiLoCo's laws at small sizes, put to the test: bench/results/scaling.md. Goes on where it was stopped.
report-scaling: build
	@$(PYTHON) bench/report_scaling.py

# Faults from a seed, for MINUTES (60): bench/results/soak.json. Goes on where the last one ended.
soak: tests
	@MINUTES=$(or $(MINUTES),60) $(PYTHON) bench/soak.py

clean:
	rm -rf build build-*
