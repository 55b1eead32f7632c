# Each target does its own set-up: a bare machine with Python 3.11 or later and this folder are enough.
#   make quickstart   the first run: pre-train, drop the head, fine-tune, score other languages
#   make test         all tests, slow ones too, on TensorFlow, and what JAX computes of the model and its ledger
#   make test-oldest  a quick part of the tests with the oldest releases that setup.py allows
#   make test-newest  the same with the newest releases there are, on Python 3.13 where it is
#   make test-peers   the tests against PyTorch and Hugging Face's transformers, on its versions 4 and 5, and PEFT
#   make test-sinks   the tests of Weights & Biases and MLflow, of runs that are killed and go on
#   make test-tpu     the tests that compile for TPUs that are not here, with their compiler, on JAX
#   make test-readme  the README's commands and the first notebook as a stranger types them, in a clone: half an hour
#   make docs         the site of the documentation, in build/site; warnings are errors
#   make lint         style and types
#   make soak         ten minutes of training that is killed at random moments and must end in the same bits
#   make beam         an environment for Apache Beam, which cannot share one with the rest; `make test` makes it too
#   make notebooks    write the notebooks that Colab opens of their sources in notebooks/
#   make bench-gpu    where a GPU is: the tests of models on it, then training in bfloat16 beside peers, MFU, a profile
#   make bench        this package beside its peers, in one run of about an hour; see benchmarks/README.md

PYTHON ?= python3
VENV ?= .venv
# options for pytest, for example: make test PYTEST="-k ledger"
PYTEST ?=

# what the Model Garden declares it needs, it does not need for its pre-trainer, and would not install beside the rest
MODEL_GARDEN := tf-models-official==2.20.0 tf-keras==2.21.0

# for two cores. Tests of one file share what is expensive to make, and stay together; conftest.py spreads the files with
# slow ones
WORKERS := --numprocesses 2 --dist loadfile --no-loadscope-reorder
BIN := $(VENV)/bin
# some containers forbid compiled modules to be kept, and each of hundreds of processes compiles this package again
unexport PYTHONDONTWRITEBYTECODE
# modules are compiled when they are first imported, of which an environment for tests has a fraction of all
INSTALL := install --quiet --no-compile
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:

.PHONY: help quickstart test test-oldest test-newest test-peers test-sinks test-tpu test-readme docs lint soak beam notebooks bench bench-gpu

help:
	@sed -n 's/^#   //p' Makefile

quickstart: $(VENV)/.installed
	$(BIN)/rembed run recipes/quickstart.gin
	@printf '%s\n' 'Scores and the ledger are in runs/quickstart. How to go on:' \
	  '  . $(VENV)/bin/activate   # puts rembed on your path' \
	  '  rembed report runs/quickstart   # all scores again' \
	  '  rembed inspect recipes/quickstart.gin   # its knobs; run it with KNOB=VALUE' \
	  '  rembed convert runs/quickstart mine --from run --to preset   # for Python' \
	  '  rembed run recipes/overnight.gin --smoke TEXT_DIR=my/text   # with your text'

# what JAX computes of the model and its ledger
ON_JAX := tests/modeling tests/preprocessing tests/analysis/cost/test_ledger.py tests/interop/huggingface/test_folders.py \
  tests/interop/test_golden.py tests/training/distributed/test_meshes.py tests/training/compiling \
  tests/training/optimizers/test_masters.py tests/training/loop/test_resuming.py rembed_keras/modeling

# JAX has what time TensorFlow leaves, where tests wait for processes that they start, and says afterwards what it found,
# unless those on TensorFlow were interrupted
test: $(VENV)/.installed-test
	@$(MAKE) --no-print-directory beam || echo "Apache Beam cannot be installed here: its test will be skipped" >&2
	@said=$$(mktemp); failed=0; \
	KERAS_BACKEND=jax nice -n 19 $(BIN)/python -m pytest $(WORKERS) -m 'not any_backend' $(PYTEST) $(ON_JAX) &>$$said & jax=$$!; \
	trap 'kill $$jax 2>/dev/null || true; rm $$said' EXIT; \
	KERAS_BACKEND=tensorflow $(BIN)/python -m pytest $(WORKERS) $(PYTEST) || failed=$$?; \
	[ $$failed != 2 ] || exit 2; \
	echo "The same on JAX, as far as it computes something of its own"; \
	wait $$jax || failed=$$?; cat $$said; exit $$failed

test-readme: $(VENV)/.installed-test
	FIRST_STEPS=1 $(BIN)/python -m pytest $(PYTEST) tests/docs/test_first_steps.py

docs: .venv-docs/.installed
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/python -m mkdocs build --quiet
	$(BIN)/python -m pytest $(PYTEST) tests/docs/test_site.py

.venv-docs/.installed: setup.py | $(VENV)/.installed-test
	@echo "Installing what makes the site into .venv-docs ..."
	$(call venv_on,$(VENV),.venv-docs)
	.venv-docs/bin/pip $(INSTALL) 'mkdocs-material>=9.8,<10' 'mkdocstrings[python]>=1.0.8,<2' 'mkdocs>=1.6.1,<2'
	@touch $@

lint: $(VENV)/.installed-test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

# what touches other packages most: their private parts, files of models, tokenizers, texts in and answers out
QUICK := tests/test_compat.py tests/data/tokenizers tests/modeling/saving tests/modeling/objectives tests/modeling/heads \
  tests/modeling/test_encoder_task.py tests/adaptation/test_distillation.py tests/preprocessing tests/interop/test_packing.py \
  tests/interop/test_convert.py tests/interop/test_pieces.py tests/interop/test_format_0_1.py
# other releases warn of other things than those that pyproject.toml knows
OTHER := -m 'not slow' -W default --disable-warnings
# data sets of Grain with labels in `fit`, and its streams, which keras-hub 0.21 does not take
OLD := -k 'not batches_of_grain'
TOOLS := 'pytest>=9.2,<10' 'pytest-xdist>=3.8.0,<4' 'hypothesis>=6.170,<7'
OLDEST_PYTHON ?= $(PYTHON)
NEWEST_PYTHON ?= $(or $(shell python3.13 -c 'print("python3.13")' 2>/dev/null),$(PYTHON))
FOUND := 'import keras, keras_hub, numpy, platform, tensorflow as tf; print(f"Python {platform.python_version()}, Keras " \
  f"{keras.__version__}, keras-hub {keras_hub.__version__}, TensorFlow {tf.__version__}, NumPy {numpy.__version__}")'

test-oldest: .venv-oldest/.installed
	@KERAS_BACKEND=tensorflow TF_CPP_MIN_LOG_LEVEL=3 .venv-oldest/bin/python -c $(FOUND)
	KERAS_BACKEND=tensorflow .venv-oldest/bin/python -m pytest $(WORKERS) $(OTHER) $(OLD) $(PYTEST) $(QUICK)

test-newest: .venv-newest/.installed
	@KERAS_BACKEND=tensorflow TF_CPP_MIN_LOG_LEVEL=3 .venv-newest/bin/python -c $(FOUND)
	KERAS_BACKEND=tensorflow .venv-newest/bin/python -m pytest $(WORKERS) $(OTHER) $(PYTEST) $(QUICK)

.venv-oldest/.installed: setup.py constraints/oldest.txt
	@echo "Installing the oldest releases that setup.py allows into .venv-oldest ..."
	$(OLDEST_PYTHON) -m venv --clear .venv-oldest
	.venv-oldest/bin/pip $(INSTALL) --constraint constraints/oldest.txt --editable . $(TOOLS)
	@touch $@

.venv-newest/.installed: setup.py
	@echo "Installing the newest releases that setup.py allows into .venv-newest ..."
	$(NEWEST_PYTHON) -m venv --clear .venv-newest
	.venv-newest/bin/pip $(INSTALL) --editable . $(TOOLS)
	@touch $@

soak: $(VENV)/.installed
	$(BIN)/python -m benchmarks.soak --minutes 10

# protobuf: Beam wants one under 7, and constraints/tested.txt has 7, which preparing text does without
BEAM := apache-beam==2.77.0 'array-record<0.9' 'click<9' 'distributed==2026.8.0' 'grain<0.3' \
  'joblib<2' 'lazy-loader<0.7' 'numpy<2.5' 'py3langid<0.5' 'rensa<0.6' 'rich<16' 'sentencepiece<0.3'

beam: .venv-beam/.installed

.venv-beam/.installed: setup.py
	@echo "Installing rembed_keras and Apache Beam into .venv-beam ..."
	$(PYTHON) -m venv --clear .venv-beam
	.venv-beam/bin/pip $(INSTALL) $(BEAM)
	.venv-beam/bin/pip $(INSTALL) --no-deps --editable .
	@touch $@

# built for processors: the wheel for Linux that goes without "+cpu" brings CUDA, gigabytes
TORCH ?= torch==2.13.0$(if $(filter Linux,$(shell uname -s)),+cpu)
TRANSFORMERS_4 := 'transformers>=4.57.6,<5'
TRANSFORMERS_5 := 'transformers>=5.23,<6'
PEFT := 'peft>=0.21.2,<0.22'
VERSIONS := 'import peft, torch, transformers as t; print(f"torch {torch.__version__}, transformers {t.__version__}, " \
  f"PEFT {peft.__version__}")'
# files with tests that need these
COMPARED = $(shell grep -rlw --include='test_*.py' peers tests)
# Hugging Face's asks the network for nothing, and does not load TensorFlow
ALONE := HF_HUB_OFFLINE=1 USE_TF=0 TRANSFORMERS_VERBOSITY=error

test-peers: .venv-peers5/.installed
	@echo "The tests against PyTorch and transformers 4, on TensorFlow"
	$(ALONE) .venv-peers/bin/python -c $(VERSIONS)
	$(ALONE) KERAS_BACKEND=tensorflow .venv-peers/bin/python -m pytest -m peers $(WORKERS) $(PYTEST) $(COMPARED)
	@echo "The tests against PyTorch and transformers 5, on JAX"
	$(ALONE) .venv-peers5/bin/python -c $(VERSIONS)
	$(ALONE) KERAS_BACKEND=jax .venv-peers5/bin/python -m pytest -m 'peers and not slow' $(WORKERS) $(PYTEST) $(COMPARED)

# $(call venv_on,BELOW,NEW): a new environment that also sees what BELOW has, where it has no version of its own
venv_on = $(1)/bin/python -m venv --clear $(2); \
  echo "import site; site.addsitedir('$$(echo $(abspath $(1))/lib/python3*/site-packages)')" \
  > $$(echo $(2)/lib/python3*/site-packages)/below.pth

.venv-peers/.installed: setup.py | $(VENV)/.installed-test
	@echo "Installing PyTorch, transformers 4 and PEFT into .venv-peers ..."
	$(call venv_on,$(VENV),.venv-peers)
	.venv-peers/bin/pip $(INSTALL) $(TORCH) || { \
	  echo "Where pip looks is no $(TORCH). Set PIP_EXTRA_INDEX_URL to PyTorch's index of builds for processors;" >&2; \
	  echo "or take its build with CUDA, gigabytes: make test-peers TORCH=torch==2.13.0" >&2; exit 1; }
	.venv-peers/bin/pip $(INSTALL) $(TRANSFORMERS_4) $(PEFT)
	@touch $@

.venv-peers5/.installed: .venv-peers/.installed
	@echo "Installing transformers 5 into .venv-peers5 ..."
	$(call venv_on,.venv-peers,.venv-peers5)
	.venv-peers5/bin/pip $(INSTALL) $(TRANSFORMERS_5)
	@touch $@

test-sinks: .venv-sinks/.installed
	KERAS_BACKEND=tensorflow .venv-sinks/bin/python -m pytest $(PYTEST) tests/training/sinks

.venv-sinks/.installed: setup.py | $(VENV)/.installed-test
	@echo "Installing Weights & Biases and MLflow into .venv-sinks ..."
	$(call venv_on,$(VENV),.venv-sinks)
	.venv-sinks/bin/pip $(INSTALL) 'wandb>=0.31.0,<0.32' 'mlflow-skinny>=3.17.2,<4'
	@touch $@

test-tpu: .venv-tpu/.installed
	KERAS_BACKEND=jax JAX_PLATFORMS=cpu TPU_SKIP_MDS_QUERY=1 ALLOW_MULTIPLE_LIBTPU_LOAD=1 .venv-tpu/bin/python -m pytest $(PYTEST) tests/training/compiling/test_tpu.py

.venv-tpu/.installed: setup.py | $(VENV)/.installed-test
	@echo "Installing the compiler for TPUs, which jax[tpu] names, into .venv-tpu ..."
	$(call venv_on,$(VENV),.venv-tpu)
	.venv-tpu/bin/pip $(INSTALL) 'libtpu>=0.0.42,<0.0.43'
	@touch $@

notebooks:
	$(PYTHON) notebooks/write.py

bench: $(VENV)/.installed-bench
	$(BIN)/python -m benchmarks.rates
	$(BIN)/python -m benchmarks.compare

# with the Python that has the GPU's libraries: make bench-gpu PYTHON=python3
bench-gpu:
	PYTHON=$(PYTHON) bash benchmarks/gpu.sh

# an install is repeated only when setup.py has changed since; an environment that is there is used as it is
$(VENV)/.installed: setup.py constraints/tested.txt | $(BIN)/pip
	@echo "Installing rembed_keras and what it needs into $(VENV) ..."
	$(BIN)/python -m pip install --quiet --constraint constraints/tested.txt --editable .
	@touch $@

$(VENV)/.installed-test: setup.py constraints/tested.txt | $(BIN)/pip
	@echo "Installing rembed_keras, what it needs and the tools of its tests into $(VENV) ..."
	$(BIN)/python -m pip install --quiet --constraint constraints/tested.txt --editable '.[test]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-bench: setup.py | $(BIN)/pip
	@echo "Installing rembed_keras and the peers it is compared with into $(VENV) ..."
	$(BIN)/python -m pip install --quiet --constraint constraints/tested.txt --editable '.[peers]'
	$(BIN)/python -m pip install --quiet --no-deps $(MODEL_GARDEN)
	@touch $@ $(VENV)/.installed

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or later is needed; say where it is: make PYTHON=python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
