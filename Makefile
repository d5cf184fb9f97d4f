# Treadle. `make run` shows it at work on this machine, `make test` tests it; both do all set-up themselves. Go is all they need.

SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
GO          ?= go
FUNCTIONS   := wake provision lifecycle disruption interruption expiry sweep catalog install
# The functions' architecture: this machine's for the local stack, arm64 for Lambda.
ARCH        ?= $(shell $(GO) env GOARCH)
# One set of flags for everything, so that everything is compiled once.
export CGO_ENABLED := 0
export GOFLAGS     := -trimpath -buildvcs=false
# Shows how far a build is; errors pass through.
PROGRESS    = awk -v what="$(1)" -f $(CURDIR)/infra/progress.awk >&2
# Packages of the local stack that are quick to test; e2e needs the functions and takes minutes.
LOCAL_FAST  = $$($(GO) list ./... | grep -v /e2e)

.DEFAULT_GOAL := help
.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

.PHONY: build
build: $(FUNCTIONS:%=build/%/bootstrap) build/install/crds/.done ## build the functions into build/

# Go knows best what is up to date, so each binary is always asked for.
.PHONY: FORCE
build/%/bootstrap: FORCE
	@GOOS=linux GOARCH=$(ARCH) $(GO) build -v -tags lambda.norpc -ldflags "-s -w -buildid=" -o $@ ./functions/$* 2>&1 | $(call PROGRESS,building $*)

# For Lambda, whatever this machine is.
build/arm64/%/bootstrap: FORCE
	@GOOS=linux GOARCH=arm64 $(GO) build -v -tags lambda.norpc -ldflags "-s -w -buildid=" -o $@ ./functions/$* 2>&1 | $(call PROGRESS,building $* for arm64)

build/arm64/install/crds: build/install/crds/.done
	@mkdir -p $@ && cp build/install/crds/*.yaml $@

# Karpenter's CustomResourceDefinitions are taken from its modules; they are not kept here.
build/install/crds/.done: infra/karpenter/go.mod infra/karpenter/go.sum infra/karpenter/main.go
	@echo "fetching Karpenter's CustomResourceDefinitions" >&2
	@cd infra/karpenter && $(GO) run . -out ../../build/install/crds >/dev/null
	@touch $@

build/local-run: FORCE
	@cd infra/local && $(GO) build -v -o ../../$@ ./run 2>&1 | $(call PROGRESS,building the local stack)

.PHONY: run
run: build build/local-run ## start the local stack, run a workload, go back to zero nodes (ONCE=1: then stop; WORKLOAD=file.yaml: your own)
	@cd infra/local && exec ../../build/local-run -build ../../build $(if $(ONCE),-once) $(if $(WORKLOAD),-workload $(abspath $(WORKLOAD))) $(ARGS)

.PHONY: test test-product test-local test-e2e
test: test-product test-local test-e2e ## run all tests, end-to-end included

test-product: build
	@$(GO) build -v ./shared/... ./functions/... ./events/... 2>&1 | $(call PROGRESS,compiling the product)
	$(GO) test ./...
	cd infra/karpenter && $(GO) test ./...
	@cd infra/conformance && $(GO) test -c -v -o /dev/null . 2>&1 | $(call PROGRESS,compiling Karpenter's API)
	cd infra/conformance && $(GO) test ./...
	@cd infra/cdk && $(GO) test -c -v -o /dev/null ./treadle 2>&1 | $(call PROGRESS,compiling the CDK)
	cd infra/cdk && $(GO) test ./...

test-local: build
	@cd infra/local && $(GO) build -v ./... 2>&1 | $(call PROGRESS,compiling the local stack)
	cd infra/local && $(GO) test $(LOCAL_FAST)

# E2E=TestMainJob runs that one alone. These tests hold a whole cluster to deadlines, which a machine that is busy with something else may
# miss: what failed is run once more, by itself, and then has to pass.
E2E ?= .
test-e2e: build
	@cd infra/local && log=$$(mktemp) && trap 'rm -f "$$log"' EXIT && \
	{ $(GO) test -v -count=1 -timeout 40m -run '$(E2E)' ./e2e 2>&1 | tee "$$log" || { \
		failed=$$(grep -oE '^--- FAIL: [A-Za-z0-9_]+' "$$log" | sed 's/^--- FAIL: //' | paste -sd '|'); \
		[ -n "$$failed" ] || exit 1; \
		echo "FAILED, run once more by itself: $$failed"; \
		$(GO) test -v -count=1 -timeout 20m -parallel 1 -run "^($$failed)\$$" ./e2e; }; }

.PHONY: conformance
# SPECS=regexp runs those specs only, SUITE=performance the other suite.
conformance: build build/local-run ## run Karpenter's own end-to-end suite against Treadle on the local stack
	cd infra/conformance && $(GO) run . -suite $(or $(SUITE),regression) -specs '$(SPECS)' $(ARGS)

.PHONY: cdk synth
cdk: $(FUNCTIONS:%=build/arm64/%/bootstrap) build/arm64/install/crds # what `cdk deploy` deploys
	@cd infra/cdk && $(GO) build -v -o ../../build/cdk-app . 2>&1 | $(call PROGRESS,building the CDK app)

synth: cdk ## the CloudFormation templates, in cdk.out; needs Node.js, and neither an account nor the network
	@rm -rf cdk.out && CDK_OUTDIR=cdk.out build/cdk-app && echo "cdk.out/Treadle.template.json: $$(grep -c '"Type": "AWS::\|"Type": "Custom::' cdk.out/Treadle.template.json) resources"

.PHONY: check lint tidy generate vulnerabilities race
check: lint tidy generate race ## everything that the tests do not say

lint: ## vet and golangci-lint, for each module
	$(GO) vet ./...
	cd infra/local && $(GO) vet ./...
	cd infra/cdk && $(GO) vet ./...
	@cd infra/tools && $(GO) build -v -o ../../build/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint 2>&1 | $(call PROGRESS,building golangci-lint)
	build/golangci-lint run ./...

tidy: ## go.mod and go.sum hold what is needed and no more (infra/karpenter and infra/conformance need modules that nothing there imports, which tidy would drop)
	@for module in . infra/local infra/local/controlplane infra/cdk infra/tools; do \
		echo "go mod tidy -diff in $$module"; (cd $$module && $(GO) mod tidy -diff); done

generate: ## generated files are up to date
	cd infra/local && $(GO) generate ./...
	git diff --exit-code

race: ## the product's tests under the race detector, in random order
	CGO_ENABLED=1 $(GO) test -race -shuffle=on ./...

vulnerabilities: ## govulncheck; needs its database's host
	cd infra/tools && $(GO) build -o ../../build/govulncheck golang.org/x/vuln/cmd/govulncheck
	build/govulncheck ./...

.PHONY: bench
bench: ## speed and memory of the hot paths
	$(GO) test -run '^$$' -bench . -benchmem ./shared/...

.PHONY: clean
clean: ## remove build/
	rm -rf build
