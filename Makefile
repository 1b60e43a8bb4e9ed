# make demo    two islands train a model on this machine, then complete code (sets everything up)
# make test    build everything, lint, run the tests                       (sets everything up)
# make build   the command alone, at build/bin/atoll
# make install PREFIX=~/.local   the command, its man page and completions
VENV := $(or $(ATOLL_VENV),$(CURDIR)/.venv)
PYTHON := $(VENV)/bin/python
export ATOLL_VENV = $(VENV)
export CCACHE_BASEDIR = $(CURDIR)
export CCACHE_NOHASHDIR = 1
# Found when the recipe runs: before set-up there may be no Python environment yet.
TORCH_DIR = $${ATOLL_TORCH_DIR:-$$(echo $(VENV)/lib/python3*/site-packages/torch)}
# WERROR=OFF for compilers that know warnings ours does not.
CONFIGURE = cmake --log-level=WARNING -DATOLL_WERROR=$(or $(WERROR),ON) -DATOLL_TORCH_DIR="$(TORCH_DIR)"

.PHONY: build install tests demo test lint bench asan tsan soak claims-main-job claims-methods claims-swarm claims-ecosystem claims-scaling report-methods report-scaling clean

build:
	@scripts/setup.sh build
	@$(CONFIGURE) --preset release -DATOLL_BUILD_TESTS=OFF
	@cmake --build build

tests:
	@scripts/setup.sh test
	@$(CONFIGURE) --preset release -DATOLL_BUILD_TESTS=ON
	@cmake --build build

# Programs, man page and completions; LibTorch stays where it is. DESTDIR is heeded.
install: build
	@cmake --install build --prefix $(or $(PREFIX),/usr/local)

demo: build
	@scripts/demo.sh

lint: tests
	@$(PYTHON) scripts/tidy.py
	@scripts/lint.sh

test: tests lint
	@cd build && ctest --output-on-failure -j2

asan:
	@scripts/setup.sh test
	@$(CONFIGURE) --preset asan
	@cmake --build build-asan
	@cd build-asan && ctest --output-on-failure -j2 -L 'unit|fuzz'

tsan:
	@scripts/setup.sh test
	@$(CONFIGURE) --preset tsan
	@cmake --build build-tsan
	@cd build-tsan && ctest --output-on-failure -j2 -L unit -E '[Gg]rpc'

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
