# Everything needs only Python ≥ 3.11 and make; PYTHON=python3.12 chooses another one.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# The demo installs less than the tests need; if all of that is installed, it takes it.
READY_DEMO := $(firstword $(wildcard $(READY)) $(READY)-demo)

.PHONY: help demo test check images environments lowest package chaos bench docs docs-preflight preflight-breadth screenshot clean
.DEFAULT_GOAL := help

help:
	@echo "make demo        train the embedded preset and watch it (plain lines when not in a terminal)"
	@echo "make test        run all tests"
	@echo "make check       formatter, linter, strict types and import contracts"
	@echo "make images      resolve the documented install lines beside what Colab, Kaggle and TPU VMs have installed"
	@echo "make environments NAMES=colab  install packages as an image has them, and the console; train, and draw in cells"
	@echo "make lowest      install the oldest packages that are allowed; set up, train, watch and attach with them"
	@echo "make package     build the wheel and the source distribution into dist/, and check their metadata and contents"
	@echo "make chaos       kill and resume training 200 times; takes most of an hour"
	@echo "make bench       measure throughput and latency, and write docs/benchmarks.md"
	@echo "make docs        write docs/configuration.md, events.md and presets.md from the code"
	@echo "make docs-preflight  ask the TPU compiler for the verdicts in docs/preflight.md; takes minutes"
	@echo "make preflight-breadth PART=2/20  compare the preflight with direct compiles of many models; takes hours in all"
	@echo "make screenshot  draw docs/live.svg and docs/setup.svg again; TO=folder draws many screens there"

$(READY): EXTRA := dev
$(READY)-demo: EXTRA := tensorflow
$(READY) $(READY)-demo: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed; $$($(PYTHON) --version) was found. Try: make PYTHON=python3.12"; exit 2; }
	@echo "Installing '.[$(EXTRA)]' into $(VENV)."
	@$(PYTHON) -m venv $(VENV) || \
		{ echo "This Python cannot make environments; on Debian and Ubuntu: apt install python3-venv"; exit 2; }
	@$(BIN)/python -m pip install --disable-pip-version-check --editable '.[$(EXTRA)]'
	@touch $@

demo: $(READY_DEMO)
	@$(BIN)/tpu-console run digits-cnn --detach
	@$(BIN)/tpu-console attach

# Two workers keep two cores busy. With more cores and memory: make test WORKERS=4.
WORKERS ?= 2
# Hundreds of processes import the same modules, so bytecode is written even if the environment says otherwise.
test: $(READY)
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --reruns 1

check: $(READY)
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

# uv has its own environment, because only a few targets need it. UV=uv takes an installed one.
UV := $(VENV)-uv/bin/uv
$(UV):
	@$(PYTHON) -m venv $(VENV)-uv
	@$(VENV)-uv/bin/pip install --quiet --disable-pip-version-check uv

images: $(READY) $(UV)
	@$(BIN)/python -m tests.install_lines $(UV)

environments: $(READY) $(UV)
	@$(BIN)/python -m tests.image_environments $(UV) $(NAMES)

lowest: $(READY) $(UV)
	@$(UV) venv --quiet --clear --python $(PYTHON) $(VENV)-lowest
	@$(UV) pip install --quiet --python $(VENV)-lowest --resolution lowest-direct '.[tensorflow,hub]'
	@$(BIN)/python -m tests.lowest $(VENV)-lowest/bin/tpu-console

package: $(READY) $(UV)
	@rm -rf dist
	@$(BIN)/python -m hatchling build
	@$(UV) tool run twine check --strict dist/*
	@$(UV) tool run check-wheel-contents dist/*.whl

chaos: $(READY)
	@$(BIN)/python -m tests.chaos 200

bench: $(READY)
	@$(BIN)/python -m tests.bench

docs: $(READY)
	@$(BIN)/python docs/reference.py

preflight-breadth: $(READY)
	@KERAS_BACKEND=jax $(BIN)/python -m tests.breadth $(if $(PART),--part $(PART)) $(if $(NAMES),--names $(NAMES))

docs-preflight: $(READY)
	@$(BIN)/python docs/preflight.py

screenshot: $(READY)
	@$(BIN)/python docs/screenshot.py $(TO) $(RUNS)

clean:
	rm -rf $(VENV) $(VENV)-uv $(VENV)-lowest dist
