# The house around the code. `make` alone lists what there is.

PYTHON ?= python3
CARGO ?= cargo
# --locked in .ci/run: there, a lock file that does not fit the manifests is an error, not an edit.
CARGO_FLAGS ?=

venv := .venv/bin
farlink := target/release/farlink
demo_dir := demo
bench_scripts := $(wildcard bench/*.py)
benches := $(basename $(notdir $(bench_scripts)))
python_sources := lab tests bench
FUZZ_SECONDS ?= 60

# How the tests find the binary, and tools what make built.
export FARLINK := $(CURDIR)/$(farlink)

.DEFAULT_GOAL := help
.SUFFIXES:
# One target behind another, except where setup is told what to do beside the Python packages, and for what leaves a processor idle.
ifndef TOGETHER
.NOTPARALLEL:
endif

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z%-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST) | sed 's/-%   /-NAME/'
	@echo "  benches: $(or $(benches),none yet)"

.PHONY: setup
setup: system target/release/farlink-lab ## system packages (apt as root, else the command is printed) and .venv

.PHONY: demo
demo: setup build ## measure a throughput profile in at most eight minutes and write its report
	$(farlink) lab demo --out $(demo_dir)
	@echo "report: $(CURDIR)/$(demo_dir)/report.html"

# Both at once: what they share is compiled once. What the provider does not use, libbpf first of all, is not linked into it.
.PHONY: build
build: target/release/farlink-lab target/release/fabric/libfarlink-fi.so ## the release binary, target/release/farlink, and the libfabric provider
	$(CARGO) build --release $(CARGO_FLAGS) --package farlink-cli --package farlink-fabric

.PHONY: check
check: $(venv)/.installed format lint unit layering documents ## the quick inner loop: format, lints, unit tests, layering, documents

.PHONY: test
test: setup check build doc lab-test end-to-end ## everything, as .ci/run runs it

# The packages take a minute to come, on one processor: the lints that need none of them use the other.
test: export BESIDE_SETUP = clippy

.PHONY: format
format:
	$(CARGO) fmt --all --check
	$(venv)/ruff format --check --quiet $(python_sources)

.PHONY: lint
lint: clippy
	$(venv)/ruff check --quiet $(python_sources)
	$(MAKE) TOGETHER=yes --jobs=2 --output-sync=target types-of-the-lab types-of-the-tests

.PHONY: types-of-the-lab types-of-the-tests
types-of-the-lab:
	cd lab && ../$(venv)/mypy
types-of-the-tests:
	$(venv)/mypy tests bench

.PHONY: clippy
clippy: # on all processors, however many targets are made at once
	MAKEFLAGS= $(CARGO) clippy --workspace --all-targets --features farlink-fuzz/targets $(CARGO_FLAGS) --quiet -- -D warnings

.PHONY: unit
unit: ## Rust tests, and every committed fuzz seed through its decoder
	RUST_TEST_THREADS=4 $(CARGO) test --workspace $(CARGO_FLAGS) --quiet # many wait for a peer most of the time

# Behind `check` stands `build`: tests that are part of it are run as on a machine where nothing is built yet.
layering documents: export FARLINK := nothing-built-yet

.PHONY: layering
layering: $(venv)/.installed ## the invariants of the design: dependencies, purity, unsafe, file sizes and names
	$(venv)/pytest --quiet tests/test_layering.py

.PHONY: documents
documents: $(venv)/.installed ## links, paths and decisions of the documents, as far as no program is needed
	$(venv)/pytest --quiet tests/test_documents.py

.PHONY: doc
doc:
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps $(CARGO_FLAGS) --quiet

# They compute all the time: as many at a time as there are processors, and no threads of the matrix library beside them.
# Those on Spark run in one process: a cluster takes seconds to start.
.PHONY: lab-test
lab-test: $(venv)/.installed # Spark leaves a third of two processors, which the others use
	$(MAKE) TOGETHER=yes --jobs=2 --output-sync=target lab-test-on-spark lab-test-of-the-rest

.PHONY: lab-test-on-spark lab-test-of-the-rest
lab-test-on-spark:
	cd lab && ../$(venv)/pytest --quiet -m spark
lab-test-of-the-rest:
	cd lab && OPENBLAS_NUM_THREADS=1 ../$(venv)/pytest --quiet --numprocesses=auto --dist=worksteal -m 'not spark'

# Most of them wait most of the time, for a packet or for another program: four at a time leave a quarter of two processors.
# Those that are marked `pair` go after them, three at a time, then those that are marked `timed`, two at a time, and those that are
# marked `alone` last, one by one.
.PHONY: end-to-end
end-to-end: build $(venv)/.installed ## the tests that drive the release binary over emulated hosts
	$(venv)/pytest --quiet --numprocesses=4 --dist=worksteal -m 'not alone and not pair and not timed' tests
	$(venv)/pytest --quiet --numprocesses=3 --dist=worksteal -m pair tests
	$(venv)/pytest --quiet --numprocesses=2 --dist=worksteal -m timed tests
	$(venv)/pytest --quiet -m alone tests

.PHONY: docs
docs: build doc ## API pages, man pages and shell completions, under target/
	$(farlink) man target/man
	mkdir -p target/completions
	$(farlink) completions bash > target/completions/farlink.bash
	$(farlink) completions zsh > target/completions/_farlink
	$(farlink) completions fish > target/completions/farlink.fish
	@echo "target/doc/farlink_wire/index.html  target/man  target/completions"

.PHONY: bench-%
bench-%: setup build ## run bench/NAME.py, which writes bench/NAME.md
	$(venv)/python bench/$*.py

.PHONY: fuzz-%
fuzz-%: ## search for FUZZ_SECONDS (60) what breaks fuzz target NAME: needs nightly Rust and cargo-fuzz
	mkdir -p fuzz/corpus/$*
	CARGO_PROFILE_RELEASE_LTO=off $(CARGO) +nightly fuzz run --features libfuzzer $* fuzz/corpus/$* fuzz/seeds/$* -- -max_total_time=$(FUZZ_SECONDS)

.PHONY: fix
fix: $(venv)/.installed ## apply the formatters and the lints' own mends
	$(CARGO) fmt --all
	$(venv)/ruff check --quiet --fix $(python_sources)
	$(venv)/ruff format --quiet $(python_sources)

.PHONY: clean
clean: ## remove what was built; measured data stay (target/bench-*, target/findings, target/referee)
	mkdir -p target
	find target -mindepth 1 -maxdepth 1 ! -name 'bench-*' ! -name findings ! -name referee -exec rm -rf {} +
	rm -rf .venv

.PHONY: system
system:
	@scripts/setup $(PYTHON) make --silent --no-print-directory --jobs=2 TOGETHER=yes $(venv)/.installed $(BESIDE_SETUP)

$(venv)/.installed: lab/pyproject.toml lab/requirements.lock
	@echo "setup: the lab and its tools, into .venv"
	$(PYTHON) -m venv .venv
	$(venv)/pip install --quiet --disable-pip-version-check --constraint lab/requirements.lock --editable 'lab[dev]'
	touch $@

# libfabric looks in a directory (FI_PROVIDER_PATH), for files whose names end in fi.so; cargo names libraries otherwise.
target/release/fabric/libfarlink-fi.so:
	mkdir -p $(@D)
	ln -sfn ../libfarlink_fi.so $@

# `farlink lab` looks for the lab beside the binary.
target/release/farlink-lab:
	mkdir -p $(@D)
	ln -sfn ../../.venv/bin/farlink-lab $@
