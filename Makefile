# The commands of this repository. Go and make are all that "run", "demo" and
# "test" need.

.DEFAULT_GOAL := help
.PHONY: help run demo build test lint fmt race fuzz bench bench-tokens generate \
        test-registry test-clients test-readers check-trainers parity kill e2e-real e2e-vllm check-wires \
        libtokenizers tools clean

MODULES := schema tokenizer gateway recorder exporter deploy tests
PATTERNS := $(MODULES:%=./%/...)
TOOLS := bin/golangci-lint bin/buf bin/gofumpt
FUZZTIME ?= 10s

export CGO_ENABLED ?= 0

help: ## show this
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: build ## build, and start everything on this machine with data in ./data
	bin/turnlog up

demo: build ## drive a small agent through it and show the rows that come out
	bin/turnlog demo

build: ## build bin/turnlog
	go build -o bin/turnlog ./deploy/cmd/turnlog

test: $(TOOLS) bin/check ## lint, and every test that needs only Go
	bin/check test

lint: $(TOOLS) ## lint alone
	bin/golangci-lint run --allow-parallel-runners $(PATTERNS)
	cd schema && ../bin/buf lint

fmt: $(TOOLS) ## format all Go files
	bin/golangci-lint fmt $(MODULES)

race: ## every Go test with the race detector
	CGO_ENABLED=1 go test -race $(PATTERNS)

fuzz: bin/check ## every fuzz test for FUZZTIME (10s)
	bin/check fuzz $(FUZZTIME)

bench: ## the benchmarks, next to direct calls in the same run
	go test -run='^$$' -bench=. -benchmem ./tests/...

test-registry: bin/check ## the tests that need npm or the Python index
	bin/check registry

test-clients: ## real agents and SDKs through the gateway (npm)
	tests/clients/run.sh

test-readers: ## shards opened by pyarrow and DuckDB (Python)
	tests/readers/run.sh

check-trainers: ## shards in the trainers' own code, steps of training included (Python 3.12, 6 GB of packages)
	tests/readers/trainers.sh

parity: ## templates and tokenizers against the reference implementations (Python)
	tests/parity/run.sh

kill: ## a thousand SIGKILLs of the all-in-one
	E2E_KILLS=1000 go test -count=1 -timeout=60m -run=NothingThatWasGiven -v ./tests/e2e

e2e-real: ## a real model on llama.cpp, end to end (builds the server)
	tests/e2e/real.sh

e2e-vllm: ## vLLM on CPU with a tiny random model, end to end (10 GB)
	tests/e2e/vllm.sh

check-wires: ## engine wires against the engines' own packages (Python)
	gateway/engine/wires/check.sh

bench-tokens: ## templates and tokenizers beside the original libraries (after make parity)
	tests/parity/bench.sh

libtokenizers: ## build the Rust library for -tags hf, or say where to put an upstream one
	tokenizer/hf/build.sh

generate: bin/buf ## write the generated code again
	cd schema && ../bin/buf generate

tools: $(TOOLS) ## build the tools that are used here

tool_golangci-lint := github.com/golangci/golangci-lint/v2/cmd/golangci-lint
tool_buf := github.com/bufbuild/buf/cmd/buf
tool_gofumpt := mvdan.cc/gofumpt

$(TOOLS): bin/%: tests/tools/go.mod tests/tools/go.sum
	cd tests/tools && GOWORK=off go build -o ../../bin/$* $(tool_$*)

bin/check: $(wildcard tests/cmd/check/*.go)
	go build -o bin/check ./tests/cmd/check

clean: ## remove what was built; data stays
	rm -rf bin
