# SPDX-License-Identifier: Apache-2.0
# `make help` lists the loop. Needs Go and a C compiler (for -race); everything else is built from pinned modules.

SHELL       := /usr/bin/env bash -o pipefail
TOOLS       := $(CURDIR)/bin/tools
GOTOOL      := go tool -modfile=$(CURDIR)/tools/go.mod
VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS     := -s -w -X navix.sh/atoll/pkg/version.Version=$(VERSION)
# What is compiled in one checkout serves the next one as well, wherever it is.
export GOFLAGS := $(strip -trimpath $(GOFLAGS))
# golangci-lint keeps what it found by content, with the path of the run that found it: a cache that checkouts share answers
# with folders that are gone, where no exclusion holds. So each path has its own.
export GOLANGCI_LINT_CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/atoll/golangci-lint$(CURDIR)
# What the charts install unless told otherwise.
APPVERSION  := $(shell sed -n 's/^appVersion: //p' charts/hub/Chart.yaml)
IMAGES      := $(CURDIR)/bin/images
# What e2e and demo run on: planes, or kind (needs kind and kubectl on PATH).
PLANE       ?= planes
# How long fuzz takes for each target (a time, or a number of executions: 1000000x), and which targets it runs: a regular
# expression of their names. STRANGERS are those that decode what a caller sends before it has shown its credentials; FuzzREST sends
# such requests to a server, and is a thousand times slower.
FUZZTIME    ?= 30s
STRANGERS   := ^Fuzz(Shape|Web|Admit|Trace)
TARGETS     ?= ^Fuzz
# How many processes fuzz one target.
FUZZWORKERS ?= $(shell nproc)
# What mutate changes (all of tools/mutate/packages.txt unless given), and how many mutants it tests at once.
PACKAGES    ?=
WORKERS     ?= 1
CLUSTERS    := $(filter planes,$(PLANE))
PROTOPLUGINS := google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc \
	github.com/grpc-ecosystem/grpc-gateway/v2/protoc-gen-grpc-gateway

# What e2e-faults runs: faults by their numbers, seeds of each, claims in one go, and seeds of the simulation.
FAULTS      ?= all
SEEDS       ?= 1,2,3
CLAIMS      ?= 100000
SIMSEEDS    ?= 500

# What adversary runs: rows by a regular expression of their names (or role/name), and below which honest p99 it slows no caller: what one
# claim takes now and then where two processors run all the control planes, hub, workers and callers as well.
ROWS        ?= .
FLOOR       ?= 100ms

# How many packages make test runs at once.
SLOTS       ?= 3

# What test begins with, because it takes minutes.
LONGEST     := $(addprefix ./,worker/internal/runner worker/internal/env hub worker/internal/hosted pkg/simulate worker/internal/podtunnel \
	worker/internal/pool pkg/store)

# The suites of e2e: whole programs, mostly on planes. One of three lists runs in a rotation, each for about as long as the others.
SUITES_0    := federation docs e2b api quickstart
SUITES_1    := joining hosted endings kubeproxy quiet
SUITES_2    := charts allotments upgrade openapi plane audit bench
# These have a target of their own, and a part in each rotation.
ATTACKS     := adversary faults sim
# How many suites run at once.
LANES       ?= 2
SUITES      ?= $(SUITES_0) $(SUITES_1) $(SUITES_2)
ALLSUITES    = $(SUITES_0) $(SUITES_1) $(SUITES_2) $(ATTACKS)

# What rotation runs: by the hash of a commit a third of the suites, two faults, one of replicas and eight attacks; by the day one more fault,
# one simulation and the seed of the faults. The number of a commit would draw the same again and again: many commits land at a time, and
# strides share factors with 25, 5 or 3.
DAY         ?= $(shell date +%Y%m%d)
COMMIT      ?= $(shell printf '%d' "0x$$(git rev-parse --short=7 HEAD)")
ROTATED      = $(shell for n in $(DAY) $$(( $(COMMIT) * 2 )) $$(( $(COMMIT) * 2 + 1 )); do echo $$(( n % 25 + 1 )); done | sort -nu | paste -sd,)
REPLICATED   = $(shell echo $$(( $(COMMIT) % 5 + 31 )))
THIRD        = $(SUITES_$(shell echo $$(( $(COMMIT) % 3 ))))

.DEFAULT_GOAL := help
comma := ,
empty :=
space := $(empty) $(empty)

.PHONY: help generate generate-proto fmt lint test openapi-client e2b-client k9s login-browser fuzz fuzz-strangers mutate e2e e2e-faults adversary rotation bench reach demo verify build images quickstart planes clean

help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

build: ## Build atoll-hub, atoll-worker, atoll-sandboxd and atollctl into bin/
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/atoll-hub ./hub
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/atoll-worker ./worker
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/atoll-sandboxd ./sandboxd
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/atollctl ./cli

images: ## Images of hub, worker and sandboxd, as archives in bin/images, with SBOMs (ENGINE=docker or podman: built by that)
	go -C tools run ./images --out '$(IMAGES)' --version '$(VERSION)' --tag '$(APPVERSION)' $(if $(ENGINE),--engine '$(ENGINE)')

quickstart: ## Run docs/quickstart.md in kind clusters, and remove them
	cd tools && GOBIN= go build -o $(TOOLS)/ helm.sh/helm/v4/cmd/helm
	PATH="$(TOOLS):$$PATH" tools/quickstart

generate-proto: ## Regenerate protobuf, REST and OpenAPI alone
	@mkdir -p $(TOOLS)
	cd tools && GOBIN= go build -o $(TOOLS)/ $(PROTOPLUGINS)
	GOBIN= go build -o $(TOOLS)/ ./pkg/serve/protoc-gen-openapi ./pkg/access/protoc-gen-permissions
	cd api && PATH="$(TOOLS):$$PATH" $(GOTOOL) buf generate --template buf.gen.yaml
	cd api/envd && PATH="$(TOOLS):$$PATH" $(GOTOOL) buf generate

generate: generate-proto ## Regenerate protobuf, deepcopy, apply configurations, CRDs, RBAC, and the pictures of simulations
	go generate ./api/... ./worker/... ./pkg/simulate/...

fmt: ## Format
	$(GOTOOL) golangci-lint fmt

lint: ## Lint; show that the import rules and the list of retired words catch a planted breach
	$(GOTOOL) golangci-lint run
	$(GOTOOL) golangci-lint run --build-tags kind ./e2e/...
	$(GOTOOL) golangci-lint run --build-tags atolltest ./pkg/link/... ./pkg/wallclock/...
	cd api && $(GOTOOL) buf lint
	cd api/envd && $(GOTOOL) buf lint
	tools/lint-words
	tools/lint-docs
	tools/lint-breach

planes: ## Build the control-plane binaries that tests and demo run (cached outside the repository)
	go run ./e2e/plane/cmd/planes -binaries

# vet is part of lint. go tests packages in the order it is given: those that take the longest come first, so that none of them runs
# alone at the end.
test: planes ## Units and everything that needs one API server or none, with the race detector
	go test -race -vet=off -timeout 25m -p $(SLOTS) $(LONGEST) $$(go list ./... | grep -vE '/e2e/($(subst $(space),|,$(strip $(ALLSUITES))))$$')
	go -C tools test -count 1 ./images
	go -C tools/openapi test -count 1 .

openapi-client: planes ## Generate a TypeScript client from the OpenAPI document and call a federation with it (needs node 20 and npm)
	go test -tags node -timeout 15m -count 1 -v -run TestTypeScriptClient ./e2e/openapi

e2b-client: planes ## Every call of the stock npm packages e2b of four versions, and code by @e2b/code-interpreter (needs node 20, npm and Debian's python3-ipykernel, python3-matplotlib)
	go test -tags node -timeout 30m -count 1 -v -run TestNpmClient ./e2e/e2b $(if $(UPDATE),-update)

k9s: planes ## List Pods, read a log and open a shell with k9s through a hub (needs k9s)
	go test -tags k9s -timeout 15m -count 1 -v -run TestK9s ./e2e/kubeproxy

login-browser: ## Sign in with atollctl login in headless Chromium, at dex (needs node 20, npm and Debian's package chromium)
	go test -tags browser -timeout 15m -count 1 -v -run 'TestLoginByABrowser' ./cli

fuzz: ## Fuzz every decoder and input (TARGETS), one after the other, each for FUZZTIME; `make test` runs what was found before
	@grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n 1 dirname | sort -u | while read -r package; do \
		for target in $$(go test -list '$(TARGETS)' "$$package" | grep '^Fuzz'); do \
			echo "$$package $$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime '$(FUZZTIME)' -fuzzminimizetime 10x -parallel '$(FUZZWORKERS)' "$$package" || exit 1; \
		done; \
	done

fuzz-strangers: ## Fuzz every decoder before authentication (FUZZTIME=2500000x: ten million executions in all)
	$(MAKE) fuzz TARGETS='$(STRANGERS)' FUZZTIME='$(FUZZTIME)'

mutate: ## Change decisions and the store one token at a time, and list what no test notices (PACKAGES: a regular expression)
	nice -n 10 go -C tools/mutate run . -packages '$(PACKAGES)' -workers '$(WORKERS)'

# A suite that compiles the programs or installs the charts has them in its binary (sources.go, charts/charts.go), so that go
# caches what it found for as long as they are the same. Most suites build the programs with the race detector.
e2e: $(CLUSTERS) ## The end-to-end SUITES (PLANE=kind: those for real clusters, on kind; POLICIES=1: whose CNI enforces NetworkPolicies; SANDBOXIMAGES: in which the daemon is tried as well, SHELLIMAGES: E2B's npm package, loaded from ARCHIVES or pulled)
ifeq ($(PLANE),kind)
	go test -tags kind -timeout 60m -v -count 1 ./e2e/walk -args -images '$(SHELLIMAGES)' -archives '$(ARCHIVES)'
	go test -tags kind -timeout 60m -p 1 -v -count 1 ./e2e/federation ./e2e/upgrade
	go test -tags 'kind $(if $(POLICIES),policies)' -timeout 60m -v -count 1 ./e2e/kubelet -args -images '$(SANDBOXIMAGES)' -archives '$(ARCHIVES)'
else
	go test -vet=off -timeout 30m -p $(LANES) $(addprefix ./e2e/,$(SUITES))
endif

e2e-faults: planes ## Break everything: 25 faults on planes (FAULTS, SEEDS), every ending with its disk full or worker killed, CLAIMS claims under random faults, SIMSEEDS simulated federations (HUBS=3: faults and claims with replicas)
	go test -timeout 120m -count 1 ./e2e/sim -sim.seeds $(SIMSEEDS)
	go test -race -timeout 30m -count 1 -v ./e2e/endings
	go test -race -timeout 300m -count 1 -v -run TestFaults ./e2e/faults -args -faults '$(FAULTS)' -seeds '$(SEEDS)' $(if $(HUBS),-hubs $(HUBS))
	go test -timeout 600m -count 1 -v -run TestClaims ./e2e/faults -args -claims $(CLAIMS) -crowd 48 -pods 60 -races=false -seeds '$(SEEDS)' $(if $(HUBS),-hubs $(HUBS))

adversary: planes ## Attack a federation in more than sixty ways while callers claim (ROWS, FLOOR, FULL=1, HUBS=3 with replicas); table on stderr, bin/adversary/latest.json
	go test -timeout 90m -count 1 -v -run TestAdversary ./e2e/adversary -args -rows '$(ROWS)' -floor '$(FLOOR)' -nice 19 $(if $(FULL),-full) $(if $(HUBS),-hubs $(HUBS)) \
		-out '$(CURDIR)/bin/adversary/latest.json'

rotation: planes ## A third of the suites, two faults, one with several hubs, and eight attacks by the commit (COMMIT), and one fault and one simulation by the day (DAY)
	@echo "rotation: COMMIT=$(COMMIT) DAY=$(DAY): suites $(THIRD), faults $(ROTATED) and $(REPLICATED)"
	@# On a small machine two suites slow each other down: what fails beside another runs once more by itself, what passed is cached.
	$(MAKE) e2e SUITES='$(THIRD)' || $(MAKE) e2e SUITES='$(THIRD)' LANES=1
	$(if $(filter upgrade,$(THIRD)),go test -vet=off -timeout 30m -count 1 -v ./e2e/upgrade -args -hubs 3)
	@# Memory, streams, results and claims that hang are judged here; latency, which needs a quiet machine, by make adversary.
	go test -vet=off -timeout 30m -count 1 -v -run TestAdversary ./e2e/adversary -args -rotate '$(COMMIT)' -floor 10s
	go test -vet=off -timeout 30m -count 1 ./e2e/sim -sim.seeds 1 -sim.seed $(DAY)
	go test -vet=off -timeout 30m -count 1 -v -run TestFaults ./e2e/faults -args -faults '$(ROTATED)' -seeds '$(DAY)' -kills 10
	go test -vet=off -timeout 30m -count 1 -v -run TestFaults ./e2e/faults -args -hubs 3 -faults '$(REPLICATED)' -seeds '$(DAY)'

bench: planes build ## Measure for about an hour and a quarter (QUICK=1: less of everything); tables on stdout, bin/bench/latest.json; fails when a target is missed
	go run ./e2e/bench $(if $(QUICK),-quick)

reach: ## Measure a hub of 1 GB and two processors at 10 and 100 simulated clusters, in a few minutes (FULL=1: 1000 as well; CATALOGUE=1: 1000 Envs in each of 100; HUBS=3: on replicas; ARGS); bin/reach/latest.json
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/atoll-hub ./hub
	go run ./e2e/bench reach $(if $(FULL),-clusters 10$(comma)100$(comma)1000 -processes 4) \
		$(if $(CATALOGUE),-catalogue -clusters 100 -shared 100 -envs 10 -changed 10 -single 100 -members 1000) $(if $(HUBS),-hubs $(HUBS)) $(ARGS)

demo: $(CLUSTERS) build ## Three clusters, a hub, claims and faults, on this machine (KEEP=1 leaves it running, HUBS=3 for replicas, PLANE=kind on real kubelets)
	go run ./e2e/demo $(if $(KEEP),--keep) $(if $(HUBS),--hubs $(HUBS)) --on $(PLANE)

verify: generate fmt ## Generated code and format are up to date, modules tidy, lint clean
	go mod tidy -diff
	cd tools && go mod tidy -diff
	cd tools/mutate && go mod tidy -diff
	cd tools/openapi && go mod tidy -diff
	@if [ -n "$$(git status --porcelain)" ]; then echo "verify: the tree differs from what is committed:"; git status --short; git diff --stat; exit 1; fi
	$(MAKE) lint

clean: ## Remove bin/
	rm -rf bin
