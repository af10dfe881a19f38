# `make help` lists the targets. Everything is run from .venv, which is made on first use and again when a pin changes.

PYTHON ?= $(shell scripts/find-python 3.11)
VENV := .venv
BIN := $(VENV)/bin
REQUIREMENTS := constraints.txt requirements.txt
DEV_REQUIREMENTS := $(REQUIREMENTS) requirements-test.txt requirements-dev.txt

export ANSIBLE_COLLECTIONS_PATH := $(CURDIR)/playbooks/collections
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help venv demo test unit lint sanity molecule bench kubelet-tables oracle oracle-all variables build clean vm-up vm-ssh vm-down test-vm test-vm-faults test-kubelet

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.run ## build the example fleet, run playbooks/site.yml on it twice, show plans and changes
	$(BIN)/python playbooks/demo/demo.py

test: venv ## everything that needs no root and no virtual machine
	$(BIN)/python scripts/stages.py

unit lint sanity molecule: venv ## one part of `make test`
	$(BIN)/python scripts/stages.py $@

bench: venv ## measure, and print one table of figures
	$(BIN)/python tests/benchmarks

venv: $(VENV)/.dev ## the virtual environment with all that the tests need

vm-up: venv ## boot the virtual machines of tests/vm/nodes.yml, or NODE= only (root, Debian or Ubuntu, QEMU)
	$(BIN)/python tests/vm up $(NODE)

vm-ssh: ## a shell on the virtual machine NODE=
	@$(BIN)/python tests/vm ssh $(NODE)

vm-down: ## end the virtual machines, or NODE= only, and throw their disks away
	$(BIN)/python tests/vm down $(NODE)

test-vm: venv ## provision real NUMA nodes, or NODE= only, through a reboot; some minutes more to build their images once
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python tests/vm test $(NODE)

test-vm-faults: venv ## what goes wrong on a node: killed runs, lost power, a full disk, a wrong clock: half an hour, or CHECKS= only
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python tests/vm faults $(CHECKS)

test-kubelet: venv ## a real kubelet on the plan, in a virtual machine, or CHECKS= only; ten minutes more to build it once (go)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python tests/vm kubelet $(CHECKS)

kubelet-tables: venv ## write kubelet's options and feature gates by minor from kubelet's own tables (go, the module proxy)
	$(BIN)/python tests/oracle/kubelet_tables.py

oracle: venv ## what we say of kubelet against the newest kubelet's own code: minutes, and ten more to build it once (go, the module proxy)
	$(BIN)/python tests/oracle/machine_agreement.py --newest
	$(BIN)/python tests/oracle/configuration_agreement.py --newest
	$(BIN)/python tests/oracle/agreement.py --newest --minutes 2

oracle-all: venv ## the same against every kubelet that the oracle is built for, without a limit of time
	$(BIN)/python tests/oracle/machine_agreement.py
	$(BIN)/python tests/oracle/configuration_agreement.py
	$(BIN)/python tests/oracle/agreement.py

variables: $(VENV)/.run ## write the table of variables in README.md from the code
	$(BIN)/python scripts/variables.py

build: $(VENV)/.run ## the collection as an archive for ansible-galaxy
	$(BIN)/ansible-galaxy collection build --force

clean: ## remove what make made
	rm -rf $(VENV) .cache .ansible .hypothesis .mypy_cache .pytest_cache .ruff_cache gpufleet-node-*.tar.gz
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@test -n "$(PYTHON)" || { scripts/find-python 3.11; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: $(REQUIREMENTS) | $(BIN)/python
	$(BIN)/python -m pip install --quiet -r requirements.txt
	@touch $@

$(VENV)/.dev: $(DEV_REQUIREMENTS) $(VENV)/.run
	$(BIN)/python -m pip install --quiet -r requirements-dev.txt
	@touch $@
