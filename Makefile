# Everything a newcomer, a contributor and CI need. Wants Python 3.11 or newer with its venv module, and make.
#
# PYTHON picks the interpreter (make PYTHON=python3.12 test), VENV the environment, ARGS goes on to the program
# (make demo ARGS=--keep) or to pytest (make unit ARGS="-k lifecycle").

PYTHON ?= python3
VENV ?= .venv
ARGS ?=

BIN := $(VENV)/bin
LOCK_VENV := .venv-lock
DOCS_VENV := .venv-docs
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Compiling all sources anew for each of a thousand processes takes a third of the time.
export PYTHONDONTWRITEBYTECODE :=
# Who takes long is not waited for while others could run.
QUICK := -n 2 --dist worksteal
# They wait more than they work; those that share a cluster take turns, and the longest begin (tests/conftest.py).
REAL := -m "real and not slow" -n 4 --dist loadgroup --no-loadscope-reorder
# With ARGS one of the two parts may have nothing to run, which pytest calls 5.
NONE_IS_FINE = $(if $(ARGS),|| [ $$? = 5 ])
LINTED := federator agents providers policies tests tools docs/conf.py

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help picture images bundle manifests testbed-images testbed-helm testbed-oidc testbed-console testbed-frameworks demo dev test lint fmt unit nightly testbed-kubernetes test-kubernetes test-federation bench sim fuzz histories kills soak docs site lock clean

help:  ## show this list
	@echo "Federator. What you can do here:"
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## */\1|/' \
	  | while IFS='|' read -r name text; do printf '  make %-18s %s\n' "$$name" "$$text"; done

demo: $(VENV)/.demo-installed  ## install what the demo needs, then run it (ARGS=--keep leaves it up)
	@$(BIN)/federator demo $(ARGS)

dev: $(VENV)/.dev-installed  ## install everything that working on Federator needs

test: lint site  ## check everything and run every test; what CI runs
	@echo "== tests without real processes, on two cores"
	@$(BIN)/python -m pytest -m "not real" $(QUICK) $(ARGS) $(NONE_IS_FINE)
	@echo "== tests of real processes, four at a time"
	@$(BIN)/python -m pytest $(REAL) $(ARGS) $(NONE_IS_FINE)

lint: $(VENV)/.dev-installed  ## format, style, types, import contracts, generated pages
	@echo "== ruff: style and format"
	@$(BIN)/ruff check --quiet $(LINTED)
	@$(BIN)/ruff format --quiet --check $(LINTED) \
	  || { echo "Some files are not formatted: run 'make fmt'."; exit 1; }
	@echo "== mypy: types"
	@$(BIN)/mypy
	@echo "== import-linter: who may import whom"
	@$(BIN)/lint-imports --no-logo
	@echo "== generated pages"
	@$(BIN)/python -m tools.generate_docs --check

fmt: $(VENV)/.dev-installed  ## format the code, and mend what can be mended by machine
	@$(BIN)/ruff check --quiet --fix-only $(LINTED)
	@$(BIN)/ruff format --quiet $(LINTED)

unit: $(VENV)/.dev-installed  ## the quick tests only: no real processes, and no property tried on many examples
	@$(BIN)/python -m pytest -m "not real and not slow" $(QUICK) $(ARGS)

nightly: $(VENV)/.dev-installed  ## ten times the examples of each property, every planted bug, and SEEDS=1000 of sim (an hour or two)
	@FEDERATOR_NIGHTLY=1 $(BIN)/python -m pytest -m slow $(QUICK) -o timeout=0 $(ARGS)
	@$(MAKE) sim SEEDS=$(or $(SEEDS),1000)

testbed-kubernetes:  ## build a Kubernetes for the tests, once, outside the tree (ten minutes)
	@tests/testbeds/kubernetes/build.sh

testbed-oidc:  ## install an OpenID Connect provider for the tests, once, outside the tree (half a minute)
	@tests/testbeds/oidc/build.sh

testbed-frameworks:  ## install Open MPI, Dask and Ray for the tests of launchers, once, outside the tree (a quarter of a minute)
	@tests/testbeds/frameworks/build.sh

testbed-images: $(VENV)/.dev-installed  ## get what the tests build images from, once, outside the tree (a minute; wants mmdebstrap)
	@tests/testbeds/images/build.sh

testbed-helm:  ## get helm, once, outside the tree (some seconds)
	@tests/testbeds/helm/build.sh

picture: $(VENV)/.dev-installed  ## take the picture of the plan that the README shows, from the demonstration (a minute)
	@$(BIN)/python -m tests.console.picture docs/plan.png

testbed-console:  ## install what checks the console's types and pages, once, outside the tree; wants Chromium too
	@tests/testbeds/console/build.sh

test-kubernetes: $(VENV)/.dev-installed  ## the Kubernetes runtime at that cluster, or at KUBECONFIG; part of test
	@FEDERATOR_REQUIRE_TESTBEDS=1 $(BIN)/python -m pytest tests/integration/kube tests/contract/runtimes -k "kube" $(ARGS)

test-federation: $(VENV)/.dev-installed  ## every runtime, etcd and a provider in one federation, with faults; part of test
	@$(BIN)/python -m pytest -s tests/federation $(ARGS)

bench: $(VENV)/.dev-installed  ## what the everyday paths cost on this machine, in some ten minutes (ARGS="submit --runs 1")
	@$(BIN)/python -m tests.bench $(ARGS)

sim: $(VENV)/.dev-installed  ## SEEDS=100 federations on virtual time, with everything going wrong, from seed FROM=0
	@$(BIN)/python -m tests.lab faults --seeds $(or $(SEEDS),100) --from $(or $(FROM),0) --jobs 2

fuzz: $(VENV)/.dev-installed  ## N=5000 inputs that nobody would write, for everything that reads from outside
	@FEDERATOR_FUZZ=$(or $(N),2000) $(BIN)/python -m pytest -s tests/attacks/test_fuzzing.py -o timeout=0 $(ARGS)

histories: $(VENV)/.dev-installed  ## SEEDS=200 histories of what clients are told while dispatchers, etcd, links, disks and clocks fail, from seed FROM=0 (half an hour; wants root for disks)
	@$(BIN)/python -m tests.histories --seeds $(or $(SEEDS),200) --from $(or $(FROM),0)

kills: $(VENV)/.dev-installed  ## 200 seeded kills of each kind of process, and a judge (an hour)
	@$(BIN)/python -m tests.kills

soak: $(VENV)/.dev-installed  ## MINUTES=10 of work on real processes, an hour of theirs in each, with memory, descriptors, tasks and rows watched
	@$(BIN)/python -m tests.soak --minutes $(or $(MINUTES),10)

docs: $(VENV)/.dev-installed  ## write the generated pages of docs/reference again, then the site
	@$(BIN)/python -m tools.generate_docs
	@$(MAKE) --no-print-directory site

site: $(DOCS_VENV)/.installed  ## make a site of the documentation in build/site; a broken link is an error
	@$(DOCS_VENV)/bin/python -m sphinx --quiet --fail-on-warning --keep-going -c docs -d build/doctrees . build/site
	@echo "build/site/index.html"

lock: $(LOCK_VENV)/.installed  ## resolve the dependencies again and write requirements/*.txt
	@$(LOCK_VENV)/bin/python tools/lock.py $(ARGS)

images: $(VENV)/.dev-installed  ## build the container images with docker, podman or buildah (BASE=image, NAME=registry.example.org/, ARGS go to the engine)
	@$(BIN)/python -m tools.images $(if $(BASE),--base=$(BASE)) $(if $(NAME),--name=$(NAME)) $(ARGS)

bundle: $(VENV)/.demo-installed  ## make the archive that plain hosts are installed from, in dist (ARGS=--packages for hosts without a network)
	@$(BIN)/python -m tools.bundle $(ARGS)

manifests: $(VENV)/.dev-installed  ## make the plain manifests of deploy/kubernetes from the chart (wants helm, or testbed-helm)
	@$(BIN)/python -m tools.manifests

clean:  ## remove the environments and everything built or cached
	@rm -rf $(VENV) $(LOCK_VENV) $(DOCS_VENV) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# ---------------------------------------------------------------------------------------------------------------------
# Environments. Packages come from the locks, checked by hash; the project itself is then installed in place, without
# its dependencies, because pip refuses hashes together with an editable install.

$(VENV)/.made:
	@$(call require_python)
	@echo "Making a virtual environment in $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.demo-installed: requirements/demo.txt pyproject.toml | $(VENV)/.made
	@echo "Installing what the demo needs (some 90 MB, once; a minute or two) ..."
	@$(PIP) install --require-hashes -r requirements/demo.txt
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev-installed: requirements/dev.txt pyproject.toml | $(VENV)/.made
	@echo "Installing what working on Federator needs (some 145 MB, once; a minute or two) ..."
	@$(PIP) install --require-hashes -r requirements/dev.txt
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(DOCS_VENV)/.installed: requirements/docs.txt
	@$(call require_python)
	@echo "Installing what the documentation's site needs (some 30 MB to load) ..."
	@$(PYTHON) -m venv $(DOCS_VENV)
	@$(DOCS_VENV)/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r requirements/docs.txt
	@touch $@

$(LOCK_VENV)/.installed:
	@$(call require_python)
	@$(PYTHON) -m venv $(LOCK_VENV)
	@$(LOCK_VENV)/bin/python -m pip --disable-pip-version-check --quiet install "pip-tools>=7.5"
	@touch $@

define require_python
command -v $(PYTHON) >/dev/null || { \
  echo "There is no '$(PYTHON)' here. Install Python 3.11 or newer, or name one: make PYTHON=/path/to/python3"; exit 1; }; \
$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
  echo "$$($(PYTHON) --version) is too old: Federator wants 3.11 or newer. Name another: make PYTHON=python3.12"; exit 1; }; \
$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
  echo "This Python comes without its venv module. On Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
endef
