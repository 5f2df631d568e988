# SPDX-License-Identifier: Apache-2.0
# Every target runs tools/setup, which does nothing if everything is present.
#   BUILD=folder  JOBS=n  TORCH=0|1  CUDA=0|1  SANITIZE=address,undefined  PREFIX=folder
SHELL := bash
BUILD ?= build
TORCH ?= 1
CUDA ?= $(if $(shell command -v nvcc),1,0)
PREFIX ?= /usr/local
JOBS ?=
SANITIZE ?=
ifneq ($(wildcard ../shared/data),)
HONE_TEST_DATA ?= $(abspath ../shared/data)
export HONE_TEST_DATA
endif
ifneq ($(wildcard .venv-peers/bin/python),)
HONE_PEER_PYTHON ?= $(abspath .venv-peers/bin/python)
export HONE_PEER_PYTHON
endif
export TORCH CUDA JOBS SANITIZE

no_torch := $(if $(filter 0,$(TORCH)),--no-torch)
program := $(BUILD)/hone
environment := source .cache/hone-setup.env
ctest = "$$(dirname "$$(command -v "$$HONE_CMAKE")")/ctest"

.PHONY: help setup demo build test test-slow lint bench install clean
.DEFAULT_GOAL := help

help:
	@echo 'make demo       train, compress and measure a small model and write a report.html'
	@echo 'make test       build everything and run the tests'
	@echo 'make test-slow  run the long tests'
	@echo 'make build      build $(BUILD)/hone and $(BUILD)/hone-torch'
	@echo 'make lint       check formatting, layers and budgets'
	@echo 'make bench      run side-by-side measurements on this machine'
	@echo 'make install    install to PREFIX ($(PREFIX))'
	@echo 'make clean      remove $(BUILD)'
	@sed -n '3s/^# */variables: /p' Makefile

setup:
	@tools/setup $(no_torch)

demo: build
	$(program) demo

build: setup
	@tools/build $(BUILD) programs

test: setup
	@tools/build $(BUILD)
	@$(environment) && python3 tools/run_tests.py $(BUILD) fast --ctest $(ctest)

test-slow: setup
	@tools/build $(BUILD)
	@$(environment) && python3 tools/run_tests.py $(BUILD) slow --ctest $(ctest)

lint:
	@tools/lint

bench: build
	$(program) bench gemm
ifneq ($(TORCH),0)
	$(program) bench optim
endif

install: setup
	@tools/build $(BUILD) programs
	@$(environment) && "$$HONE_CMAKE" --install $(BUILD) --prefix $(PREFIX)

clean:
	rm -rf $(BUILD)
