# SPDX-License-Identifier: Apache-2.0
# Every target runs tools/setup, which does nothing if everything is present.
#   BUILD=folder  JOBS=n  TORCH=0|1  CUDA=0|1  ISA=native|all  SANITIZE=address,undefined
#   PREFIX=folder  LABEL=part
#   T=folder of tests  F=filter of googletest, both of `make t`
SHELL := bash
BUILD ?= build
TORCH ?= 1
CUDA ?=
ISA ?=
PREFIX ?= /usr/local
JOBS ?=
SANITIZE ?=
LABEL ?=
T ?=
F ?= *
ifneq ($(wildcard ../shared/data),)
HONE_TEST_DATA ?= $(abspath ../shared/data)
export HONE_TEST_DATA
endif
ifneq ($(wildcard .venv-peers/bin/python),)
HONE_PEER_PYTHON ?= $(abspath .venv-peers/bin/python)
export HONE_PEER_PYTHON
endif
export TORCH CUDA ISA JOBS SANITIZE

no_torch := $(if $(filter 0,$(TORCH)),--no-torch)
label := $(if $(LABEL),--label $(LABEL))
program := $(BUILD)/hone
environment := source .cache/hone-setup.env
ctest = "$$(dirname "$$(command -v "$$HONE_CMAKE")")/ctest"

.PHONY: help setup demo build t test test-avx2 test-slow soak lint bench install clean
.DEFAULT_GOAL := help

help:
	@echo 'make demo       train, compress and measure a small model and write a report.html'
	@echo 'make test       build everything and run the tests'
	@echo 'make t          build and run the tests of one folder: make t T=infer/sched F=Batch*'
	@echo 'make test-avx2  the same, limited to the instructions of a machine with AVX2 only'
	@echo 'make test-slow  run the long tests'
	@echo 'make soak       load and attack the server for 20 minutes, with sanitizers'
	@echo 'make build      build $(BUILD)/hone and $(BUILD)/hone-torch'
	@echo 'make lint       check formatting, layers and budgets'
	@echo 'make bench      run side-by-side measurements on this machine'
	@echo 'make install    install to PREFIX ($(PREFIX))'
	@echo 'make clean      remove $(BUILD)'
	@sed -n '3,4s/^# */variables: /p' Makefile

setup:
	@tools/setup $(no_torch)

demo: build
	$(program) demo

build: setup
	@tools/build $(BUILD) programs

t: setup
	@test -n '$(T)' || { echo 'make t: expected a folder of tests, as T=infer/sched' >&2; exit 2; }
	@tools/build $(BUILD) test_$(subst /,_,$(T))
	@$(BUILD)/test_$(subst /,_,$(T)) --gtest_filter='$(F)' --gtest_brief=1

test test-avx2: setup
	@tools/build $(BUILD)
	@$(environment) && python3 tools/run_tests.py $(BUILD) fast --ctest $(ctest) $(label)

# As hone, LibTorch, oneDNN and MKL call it.
test-avx2: export HONE_FORCE_ISA := avx2
test-avx2: export ATEN_CPU_CAPABILITY := avx2
test-avx2: export ONEDNN_MAX_CPU_ISA := AVX2
test-avx2: export MKL_ENABLE_INSTRUCTIONS := AVX2

test-slow: setup
	@tools/build $(BUILD)
	@$(environment) && python3 tools/run_tests.py $(BUILD) slow --ctest $(ctest) $(label)

# Mutations of requests, templates, tools and schemas under sanitizers, then a server under load.
# Each entry has the seconds of a test, then the tests. Each of the four takes about two minutes.
fuzzed = '120 *Http*' '20 *Template*' '10 *Tool*:*Style*' '9 *Schema*:*Format*:*Pattern*'
soak: setup
	@tools/build $(BUILD) hone
	@SANITIZE=address,undefined TORCH=0 tools/build build-sanitized test_fuzz
	@for one in $(fuzzed); do \
	  HONE_FUZZ_SECONDS=$${one%% *} build-sanitized/test_fuzz --gtest_filter="$${one#* }" \
	    --gtest_brief=1 || exit 1; done
	@python3 tests/soak/soak.py $(BUILD)/hone $(HONE_TEST_DATA)/lm/stories260K.bin \
	  --tokenizer $(HONE_TEST_DATA)/lm/tok512.bin --minutes 10

lint:
	@tools/lint

bench: build
	$(program) bench gemm
ifneq ($(TORCH),0)
	$(program) bench optim
endif

# What is installed may run anywhere.
install: export ISA := $(if $(ISA),$(ISA),all)
install: setup
	@tools/build $(BUILD) programs
	@$(environment) && "$$HONE_CMAKE" --install $(BUILD) --prefix $(PREFIX)

clean:
	rm -rf $(BUILD)
