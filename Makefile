# Everything that people and CI do with this project. `make help` lists it.

GO ?= go
BIN := $(CURDIR)/dist/hansard
# What `hansard version` prints: the last tag, the number of commits since, the commit. Empty without git: then the program
# prints "dev".
VERSION ?= $(shell git describe --tags --match 'v*' --always --dirty --abbrev=12 2>/dev/null)
# No paths of this machine in the program: the same sources give the same bytes anywhere.
BUILD := -trimpath -ldflags '-X main.version=$(VERSION)'

.PHONY: help build serve demo try quick browser clients adapters test check unit race torture cross lint bench benchtest fuzz packages clean

help: ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-10s %s\n", $$1, $$2}'

build: ## build the command into dist/
	$(GO) build $(BUILD) -o $(BIN) ./cmd/hansard

serve: build ## start the server and its web page, on the embedded store
	$(BIN) serve

demo: build ## fill that store with talking agents, so that there is something to look at
	$(BIN) demo

try: build ## create a store in a temporary directory and use it
	@scripts/try $(BIN)

quick: check ## what to run all day, within two minutes: formatting, vet, the fast tests
	@GO="$(GO)" scripts/quick

test: packages check ## everything: what CI runs; the last line shows the counts
	@scripts/all

packages: ## install what the tests need (Debian)
	@scripts/packages

browser: ## the page in a real browser
	@rm -f dist/browser.log
	@scripts/gotest browser test/browser/run -v

clients: build ## the clients in other languages against the real server
	@rm -f dist/clients.log
	@scripts/gotest clients scripts/clients

adapters: ## the stores for Go frameworks, which are modules of their own
	@rm -f dist/adapters.log
	@scripts/gotest adapters scripts/adapters

check: ## formatting and vet
	@out=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$out" || { echo "not gofmt'ed:"; echo "$$out"; exit 1; }
	$(GO) vet ./...
	cd test/browser && $(GO) vet -mod=mod ./...
	scripts/adapters vet
	cd bench && $(GO) vet -mod=mod ./...

cross: ## build and vet for the other systems
	GOOS=darwin $(GO) vet ./...
	GOOS=windows $(GO) vet ./...

# Packages in which goroutines share memory run under the race detector, and not a second time without it. The others are the command, whose suites start a program for every case,
# which takes half an hour under the detector; packages on SQLite, which is in Go and many times slower there; programs that are built and run; and packages whose tests mostly compute
# (importer, backup, storetest, the file engine's runs and sessionlog), which `go test -race` covers by hand. The engines and the client are in both, each test in one of
# them (internal/halves): simulations run one goroutine at a time, and would take hours under the detector.
RACED := hansard(/(engine|memstore|httpd|mcp|transcript|internal|filestore/internal/(cache|journal|peers))(/|$$)|/(filestore|client|pgstore)$$|$$)
# These come first below, next to the package that takes longest, so that nothing long is
# left for the end.
HALVES := ./pgstore ./filestore ./client
WITHRACE := env CGO_ENABLED=1 $(GO) test -v -race -count=1 -timeout 60m

unit: ## all tests that race does not run; never cached: the cache knows neither the programs they build nor their seeds
	@rm -f dist/unit.log
	@HANSARD_RACE_APART=1 scripts/gotest unit $(GO) test -v -count=1 -timeout 60m ./test $(HALVES) $$($(GO) list ./... | grep -vE '^$(RACED)')

race: ## whole packages under the race detector; of the file engine all but the simulations
	@rm -f dist/race.log
	@scripts/gotest race $(WITHRACE) $(HALVES) $$($(GO) list ./... | grep -E '^$(RACED)')

torture: packages ## the tests, ten times as much; HANSARD_TORTURE=N for more
	HANSARD_TORTURE=$${HANSARD_TORTURE:-10} $(GO) test -timeout 24h ./...

lint: ## run golangci-lint as configured in .golangci.yml
	@GO="$(GO)" scripts/lint

bench: build ## compare hansard with others, on this disk: half an hour; BENCH='-rounds 3 -only w2,w3', '-growth', '-check', '-help'
	@GO="$(GO)" bench/run $(BENCH)

benchtest: ## check that the benchmark still works, with tiny counts
	@rm -f dist/benchtest.log
	@scripts/gotest benchtest $(GO) -C bench test -mod=mod -v -count=1 -timeout 20m ./...

fuzz: ## run each fuzz target for FUZZTIME (15s)
	@scripts/fuzz $${FUZZTIME:-15s}

clean:
	rm -rf dist
