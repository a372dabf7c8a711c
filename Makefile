# Everything happens in .venv, which the first target creates. PYTHON picks the interpreter (3.11 or newer).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
# The pins of the extra `zoo`; read as source only, so their own requirements stay out. Installed after the rest, because
# pip complains of their unmet requirements whenever it installs something that they name.
ZOO = $(shell $(BIN)/python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['zoo'])")

# What the demos walk back to naive: FILE::KERNEL of an installed package (read, never imported), its binding and its problem.
LINEAGE = $(BIN)/kir lineage --on cpu --target sm_90a
# Three walks and a search that need nothing of one another run side by side, the longest walk and what is learned from it before the others; then the report.
DEMO ?= { { $(LINEAGE) skills/experts/gemm/gemm_sm80.cu --bind skills/bindings/gemm_sm80.toml --problem gemm -o demo-out/gemm-cuda && \
	$(BIN)/kir learn demo-out/gemm-cuda -o demo-out/learned --no-trials && \
	$(BIN)/kir skills apply multi-threaded-block.kernel skills/problems/softmax/naive.kir --library demo-out/learned/cards; } & first=$$!; \
	nice $(LINEAGE) flag_gems:ops/mm.py::mm_kernel_general --bind skills/bindings/flag_gems_mm.toml --problem gemm -o demo-out/gemm & second=$$!; \
	nice $(LINEAGE) skills/experts/gemm/tilelang.py --bind skills/bindings/tilelang_gemm.toml --problem gemm -o demo-out/gemm-tilelang & third=$$!; \
	nice $(DEMO_OPTIMIZE) & fourth=$$!; \
	wait $$first && wait $$second && wait $$third && wait $$fourth; } && \
	$(BIN)/kir report demo-out/gemm demo-out/gemm-cuda demo-out/gemm-tilelang -o demo-out/report.html
# A naive product with a bias, which no stored pipeline is of, made fast on the modelled gate with the steps of another kernel.
DEMO_OPTIMIZE ?= $(BIN)/kir optimize --problem addmm:bf16 --surface cuda --no-compile --budget candidates=1,seconds=120 -o demo-out/addmm.cu
DEMO_FULL ?= $(DEMO) && \
	$(LINEAGE) liger_kernel:ops/rms_norm.py::_rms_norm_forward_kernel --bind skills/bindings/liger_rms_norm.toml --problem rmsnorm -o demo-out/rmsnorm && \
	$(LINEAGE) liger_kernel:ops/softmax.py::_softmax_single_block_forward_kernel --bind skills/bindings/liger_softmax.toml --problem softmax -o demo-out/softmax && \
	$(LINEAGE) skills/experts/gemm/triton.py::gemm_persistent --bind skills/bindings/triton_gemm.toml --problem gemm -o demo-out/gemm_persistent
# One more than there are cores, since tests wait for compilers and for processes that are given time; no more than memory holds, at 2 GiB each.
WORKERS ?= $(shell $(PYTHON) -c 'import os; n = getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count() or 1))(0); b = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"); print(max(1, min(len(n) + 1, b >> 31)))')

.NOTPARALLEL:
MINUTES ?= 30
.PHONY: demo demo-full test fuzz lint docs format install full clean help
help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST)

demo: $(VENV)/.core $(VENV)/.zoo ## a matrix product from Triton, CUDA and TileLang walked back to one naive program, and a skill learned from it applied to a softmax
	rm -rf demo-out && mkdir demo-out
	$(DEMO)
	@echo 'the report: demo-out/report.html (and one for each kernel: demo-out/*/report.html)'

demo-full: $(VENV)/.core $(VENV)/.zoo $(VENV)/.full ## the same with everything compiled (installs torch, Triton, TileLang)
	rm -rf demo-out && mkdir demo-out
	$(DEMO_FULL)

test: $(VENV)/.core $(VENV)/.zoo ## the test suite, without what needs a GPU
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal tests -m "not gpu"

fuzz: $(VENV)/.core $(VENV)/.zoo ## random programs for MINUTES=30, on from where the last run ended
	$(BIN)/python -W ignore -m benchmarks.fuzz --minutes $(MINUTES)

lint: $(VENV)/.core ## ruff and mypy --strict
	$(BIN)/python -m ruff check .
	$(BIN)/python -m mypy kir tests

docs: $(VENV)/.core ## the site, build/site/index.html: pages, tables, a gallery of lineages; opens without a server, searches without a network
	$(PIP) --editable '.[docs]'
	$(BIN)/python -m mkdocs build --quiet --strict

format: $(VENV)/.core ## reformat
	$(BIN)/python -m ruff format .

install: $(VENV)/.core ## KIR itself, editable, with what its tests need
full: $(VENV)/.full ## torch, Triton, TileLang, and the clients of models

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "KIR needs Python 3.11 or newer; set PYTHON=")'
	$(PYTHON) -m venv --clear $(VENV)
	@touch $@

$(VENV)/.core: pyproject.toml constraints.txt | $(VENV)/.made
	$(PIP) --editable '.[dev]'
	@$(BIN)/python -m compileall -q -j 0 kir passes frontends backends # so that no command compiles them, whatever the environment says
	@$(BIN)/python -m kir.ir.grammar
	@touch $@

$(VENV)/.zoo: pyproject.toml | $(VENV)/.core
	$(PIP) --no-deps $(ZOO)
	@touch $@

$(VENV)/.full: pyproject.toml constraints.txt | $(VENV)/.core
	$(PIP) --editable '.[triton,tilelang,llm,fast,forecast,mcp,explore]' playwright
	@touch $@

clean: ## remove the environment and what was built
	rm -rf $(VENV) build dist *.egg-info demo-out
