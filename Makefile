# Treadle. `make run` shows it at work on this machine, `make test` tests it; both do all set-up themselves. Go is all they need.

FUNCTIONS := wake provision lifecycle sweep catalog install
# GOARCH of the functions: this machine's for the local stack, arm64 for Lambda.
ARCH      ?= $(shell go env GOARCH)
GO        ?= go
BUILD     := CGO_ENABLED=0 GOOS=linux GOARCH=$(ARCH) $(GO) build -trimpath -buildvcs=false -tags lambda.norpc -ldflags "-s -w -buildid="

.DEFAULT_GOAL := help
.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

.PHONY: build
build: $(FUNCTIONS:%=build/%/bootstrap) build/install/crds/.done ## build the functions into build/

# Go knows best what is up to date, so each binary is always asked for.
.PHONY: FORCE
build/%/bootstrap: FORCE
	@echo "building $*" >&2
	@$(BUILD) -o $@ ./functions/$*

# Karpenter's CustomResourceDefinitions are taken from its modules; they are not kept here.
build/install/crds/.done: infra/karpenter/go.mod infra/karpenter/go.sum infra/karpenter/main.go
	@echo "fetching Karpenter's CustomResourceDefinitions" >&2
	@cd infra/karpenter && $(GO) run . -out ../../build/install/crds
	@touch $@

.PHONY: run
run: build ## start the local stack, run a workload, go back to zero nodes (ONCE=1: then stop; WORKLOAD=file.yaml: your own)
	@cd infra/local && $(GO) run ./run -build ../../build $(if $(ONCE),-once) $(if $(WORKLOAD),-workload $(abspath $(WORKLOAD)))
