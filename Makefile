# One command each; `.ci/run` calls the same ones. Everything is installed into .venv.
PYTHON ?= python3
TEXT ?= The cat sat on the mat because it was tired.
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: story study agreement outputs test check lint types format bench docs-check wheel-test clean

.venv/base: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(PIP) torch==2.13.0
	$(PIP) -e ".[demo]"
	touch $@

.venv/tests: .venv/base
	$(PIP) --group test --group check
	touch $@

# The main job on a real trained model.
story: .venv/base
	$(BIN)/glocal analyze "$(TEXT)" --report story.html

# The whole test suite, one process per core; `make test ARGS="-k report"` for a part of it.
WORKERS ?= auto
test: .venv/tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

check: lint types

lint: .venv/tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/tests
	$(BIN)/pyright --pythonpath $(BIN)/python

format: .venv/tests
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Ratios side by side in one run, never timed tests; takes about ten minutes on a quiet machine.
bench: .venv/tests
	$(BIN)/python -m benchmarks.exact
	$(BIN)/python -m benchmarks.growth
	$(BIN)/python -m benchmarks.sketch
	$(BIN)/python -m benchmarks.many
	$(BIN)/python -m benchmarks.long
	$(PIP) --no-deps -r studies/requirements.txt
	$(BIN)/python -m benchmarks.corpus

# The study of docs/real_study.md: half an hour or more on two cores; continues where it was stopped.
study: .venv/base
	$(PIP) --no-deps -r studies/requirements.txt
	$(BIN)/python -m studies.real

# The tables of docs/which-method.md: ten minutes.
agreement: .venv/base
	$(PIP) --no-deps -r studies/requirements.txt
	$(BIN)/python -m studies.agreement

# The tables about outputs in docs/which-method.md: an hour or more on two cores (it trains a classifier first); continues where it was stopped.
outputs: .venv/base
	$(PIP) --no-deps -r studies/requirements.txt
	$(BIN)/python -m studies.outputs

# A wheel builds, installs into an empty environment and does the main job.
wheel-test: .venv/tests
	rm -rf dist build/wheel-venv
	$(BIN)/python -m build --wheel --outdir dist . > /dev/null
	$(PYTHON) -m venv build/wheel-venv
	build/wheel-venv/bin/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	build/wheel-venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch==2.13.0
	build/wheel-venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt "$$(echo dist/*.whl)[demo]"
	cd build && wheel-venv/bin/glocal analyze "A wheel works." --report wheel.html --out wheel.zarr --overwrite

clean:
	rm -rf .venv dist build story.html .pytest_cache .ruff_cache .hypothesis
