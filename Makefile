# Everything a person or CI does to this project. `make help` lists it.

GO ?= go
BIN := $(CURDIR)/dist/hansard
# Pinned, and built by the first run, which takes some minutes; no part of the test.
LINT := $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.11.4 run --config $(CURDIR)/.golangci.yml

.PHONY: help build serve demo try browser test check unit race torture cross lint bench fuzz packages clean

help: ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-10s %s\n", $$1, $$2}'

build: ## build the command into dist/
	$(GO) build -o $(BIN) ./cmd/hansard

serve: build ## the main job: a server with its page, on the embedded store
	$(BIN) serve

demo: build ## fill that store with agents talking, to have something to look at
	$(BIN) demo

try: build ## make a store in a temporary directory and use it
	@scripts/try $(BIN)

test: packages check cross ## everything: what CI runs
	@# Side by side: much of the one is waiting, and the other has work for the cores.
	$(MAKE) -j2 unit race
	$(MAKE) browser
	@scripts/summary

packages: ## install what the tests need (Debian)
	@scripts/packages

browser: ## the page in a real browser
	@test/browser/run

check: ## formatting and vet
	@out=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$out" || { echo "not gofmt'ed:"; echo "$$out"; exit 1; }
	$(GO) vet ./...
	cd test/browser && $(GO) vet -mod=mod ./...

cross: ## build and vet for the other systems
	GOOS=darwin $(GO) vet ./...
	GOOS=windows $(GO) vet ./...

unit: ## all tests, none from the cache: that does not know the programs they build, nor their seeds
	@scripts/gotest -count=1 -timeout 40m ./...

race: ## the contract under the race detector
	CGO_ENABLED=1 $(GO) test -race -count=1 -timeout 15m . ./memstore ./httpd
	CGO_ENABLED=1 $(GO) test -race -count=1 -timeout 15m -run 'TestContract/(append|key|concurrent|exclusive|lease)|TestManyServers|TestCloseLeaves' ./pgstore
	CGO_ENABLED=1 $(GO) test -race -count=1 -timeout 15m -run 'TestContract/(append|concurrent|wait|close|keys?|delete)' ./filestore
	CGO_ENABLED=1 $(GO) test -race -count=1 -timeout 15m -run 'TestContract/turn/(contended|stolen|wait.*)' ./filestore
	CGO_ENABLED=1 $(GO) test -race -count=1 -timeout 15m -run 'Idem|DeleteOnce|ManyWr|Faster|Turns' ./httpd/conversations

torture: packages ## the tests, ten times as much; HANSARD_TORTURE=N for more
	HANSARD_TORTURE=$${HANSARD_TORTURE:-10} $(GO) test -timeout 24h ./...

lint: ## golangci-lint, with what .golangci.yml says
	$(LINT) ./...
	cd test/browser && GOFLAGS=-mod=mod $(LINT) ./...

bench: build ## what this disk can do and what hansard makes of it
	$(BIN) bench

fuzz: ## each fuzz target for FUZZTIME (15s)
	@scripts/fuzz $${FUZZTIME:-15s}

clean:
	rm -rf dist
