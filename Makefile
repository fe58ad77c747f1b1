# weft's front door: installs what is missing, then hands over to CMake and ninja.
# Everything made lives in build/ (release) and build-*/ (the other presets of CMakePresets.json).

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL: # ninja does the parallel part
.SUFFIXES:
MAKEFLAGS += --no-builtin-rules --no-print-directory

presets := debug clang asan tsan fuzz
sources = git ls-files -co --exclude-standard '*.cpp' '*.h'

##@ Use
.PHONY: run test bench web build
run: configured ## a language model answers a question on the best device
	@ninja -C build | { grep --line-buffered -vE 'Entering directory|no work to do|Re-checking globbed' || true; }
	@build/weft chat smollm2 -p "Why is the sky blue?" --temp 0 -n 96

test: build build/.fetched-test ## build, then run every test
	@tests/run.sh 'build -ts=gpu* -sf=*/llm/*' 'build -ts=gpu* -sfe=*/llm/*' 'build -tse=gpu*' # side by side: a driver compiles on one core

bench: build build/.bootstrap-bench build/.fetched-bench ## build, then run the benchmarks
	@for program in build/bench-*; do \
	  if [[ -f $$program && -x $$program ]]; then echo "== $${program#build/}"; "$$program"; fi; done
	@echo "== weft bench-ops"; build/weft bench-ops --device cpu
	@python="$${PYTHON:-python3}"; if "$$python" -c 'import torch' 2>/dev/null; then "$$python" bench/torch_ops.py; \
	else echo "PyTorch is not installed; PYTHON=… make bench names a Python that has it"; fi

web: ## the browser package
	@echo "weft: the browser package is not part of this version" >&2; exit 1

build: configured ## install what is missing and build; the program is build/weft
	@ninja -C build

##@ Develop
.PHONY: sanitize fuzz soak format check
sanitize: build/.fetched-run build/.fetched-test build-asan/build.ninja build-tsan/build.ninja ## tests under ASan+UBSan, and the threaded ones under TSan
	@ninja -C build-asan
	@ninja -C build-tsan
	@tests/run.sh 'build-asan -ts=base*' build-asan 'build-tsan -ts=base*' # the first one looks for leaks too

fuzz: build build/.fetched-test build/.bootstrap-check build-fuzz/build.ninja ## damaged files for every reader; many more random programs than `make test` runs
	@ninja -C build-fuzz fuzzers
	@tests/fuzz/run.sh build-fuzz 60
	@FUZZ_SEEDS=1000000:200000 build/weft_tests --test-suite='base: fuzz'
	@FUZZ_SEEDS=1000000:2000 build/weft_tests --test-suite='gpu fuzz'

soak: build build/.fetched-test ## 100,000 tokens and 200 models one after the other: memory must not grow
	@SOAK=1 build/weft_tests --test-suite='*soak'

format: build/.bootstrap-check ## clang-format every C++ file
	@$(sources) | xargs -r clang-format-19 -i

check: build/.bootstrap-check build-clang/build.ninja ## formatting, clang 19 build, clang-tidy; warnings are errors
	@$(sources) | xargs -r clang-format-19 --dry-run -Werror
	@ninja -C build-clang
	@$(sources) | grep '\.cpp$$' | xargs -r -P "$$(nproc)" -n 1 clang-tidy-19 -p build-clang --quiet 2> >(grep -v 'warnings generated' >&2)

##@ Housekeeping
.PHONY: bootstrap fetch clean distclean help
bootstrap: ## try again to install what could not be installed
	@tools/bootstrap.sh --retry

fetch: ## try again to fetch what could not be fetched
	@tools/fetch.py --retry run test bench

clean: ## remove what was built, keep what was fetched
	@rm -rf $(presets:%=build-%)
	@[[ ! -d build ]] || find build -mindepth 1 -maxdepth 1 ! -name 'webgpu*' ! -name node ! -name llama.cpp ! -name '.bootstrap*' ! -name '.fetch*' -exec rm -rf {} +

distclean: ## remove everything that a fresh clone does not have
	@rm -rf build $(presets:%=build-%)

help: ## this list
	@awk -F ':.*## ' '/^##@/ { print "\n" substr($$0, 5) } /^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

# --- steps behind the targets; each one is a stamp, so that a second call starts none of them ---

.PHONY: configured
configured: build/build.ninja build/.fetched-run

# A bootstrap that had to leave something out writes no stamp; hence order-only below.
build/.bootstrap: tools/bootstrap.sh tools/packages.lock
	@tools/bootstrap.sh

build/.bootstrap-%: tools/bootstrap.sh tools/packages.lock
	@tools/bootstrap.sh $*

configure = CXX="$$(tools/bootstrap.sh compiler)" cmake --preset $(1) && touch $@
build/build.ninja: CMakePresets.json | build/.bootstrap
	@$(call configure,release)

build-%/build.ninja: CMakePresets.json | build/.bootstrap
	@$(call configure,$*)

# Without these weft still works, on the CPU; the script says what is missing.
build/.fetched-%: tools/fetch.py tools/packages.lock | build/.bootstrap
	@if command -v python3 >/dev/null; then tools/fetch.py $* || true; \
	else echo "weft: no python3 here, so no WebGPU library is fetched; weft will use the CPU" >&2; fi
