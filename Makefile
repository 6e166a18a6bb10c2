# Nothing has to be set up first: Go, make and a C compiler (for the race detector) are enough. Tests, quickstart and bench
# find, start or install PostgreSQL and PgBouncer by themselves (internal/pgtest), provider/smtp's also Postfix, matrix npm.

SHELL := bash
.DEFAULT_GOAL := help

TIMEOUT  ?= 20m
FUZZTIME ?= 10s

# Folders below this one with a go.mod of their own. The heavy ones' tests run by their own targets.
NESTED := $(sort $(patsubst ./%/go.mod,%,$(shell find . -mindepth 2 -name go.mod -not -path '*/testdata/*' -not -path './.*')))
HEAVY  := internal/bench internal/browser internal/chaos
LIGHT  := $(filter-out $(HEAVY),$(NESTED))

GOLANGCI_VERSION := v2.15.0
GOLANGCI := $(CURDIR)/.bin/golangci-lint-$(GOLANGCI_VERSION)/golangci-lint

.PHONY: help test lint check quickstart console bench browser chaos chaos-test soak fleet pooler matrix fuzz simulate simulate-mutants

help: ## show this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: ## run all tests with the race detector
	go test -race -shuffle=on -timeout=$(TIMEOUT) ./...
	@set -e; for dir in $(LIGHT); do (set -x; go -C $$dir test -race -shuffle=on -timeout=$(TIMEOUT) ./...); done

lint: $(GOLANGCI) ## run the linters and formatters, changing nothing
	@set -e; for dir in . $(NESTED); do (set -x; cd $$dir; '$(GOLANGCI)' run --allow-serial-runners ./...); done

check: lint ## lint, go vet, and go.mod files that are tidy
	@set -e; for dir in . $(NESTED); do (set -x; go -C $$dir vet ./...; go -C $$dir mod tidy -diff); done

quickstart: ## send one message through a lost answer; the last line is the result
	go run ./examples/quickstart

console: ## serve the operator's console on demonstration data, until Ctrl-C
	go run ./examples/console

browser: ## drive the console in a real Chromium, installed if there is none; SCREENS=folder draws its pages
	go -C internal/browser test -count=1 -timeout=$(TIMEOUT) ./...

bench: ## measure throughput; QUICK=1 for minutes, SMOKE=1 for seconds
	go -C internal/bench test -timeout=$(TIMEOUT) ./...
	go -C internal/bench run . $(if $(SMOKE),-smoke) $(if $(QUICK),-quick)

MESSAGES ?= 20000
SECONDS  ?= 150
MINUTES  ?= 30

chaos: ## strike MESSAGES (20000) messages with real faults for SECONDS (150) from SEED (1); the last line is the result
	go -C internal/chaos run . -messages $(MESSAGES) -seconds $(SECONDS) -seed $(SEED)

chaos-test: ## run the tests of chaos: lost answers through Toxiproxy, the checker, a planted bug
	go -C internal/chaos test -count=1 -timeout=$(TIMEOUT) ./...

soak: ## steady load and faults for MINUTES (30); fails where memory, connections or tables grow
	go -C internal/chaos run . -soak $(MINUTES) -seed $(SEED)

fleet: ## play holds, rates and outages of several processes at full length, in 8 minutes
	DISPATCH_FULL=1 go test -race -count=1 -timeout=$(TIMEOUT) -v -run '^TestFleet' ./outbox

pooler: ## run outbox's and the drivers' tests through a PgBouncer, in each exec mode that goes through one
	@set -e; for mode in cache_describe exec simple_protocol; do (set -x; export DISPATCH_TEST_POOLER=$$mode; \
		go test -count=1 -timeout=$(TIMEOUT) ./outbox; go -C internal/drivers test -count=1 -timeout=$(TIMEOUT) ./...); done
	@PATH="$$PATH:/usr/sbin" pgbouncer --version | head -n 1

# What a version of Postgres may parse, plan or lock in another way, in a minute a version.
MATRIX_SMOKE := ^Test(WholeLife|Hostile|Odd|Migrat|Schema|Claim|Plan|Enqueue|Copy|Twin|EndToEnd|Stats|List|Model)

matrix: ## run outbox's tests on Postgres 14 to 18; SMOKE=1 for those of the SQL, ONLY=14,18 for some versions
	go run ./internal/matrix $(if $(ONLY),-only=$(ONLY)) $(if $(SMOKE),-run='$(MATRIX_SMOKE)')

fuzz: ## run each fuzz test for FUZZTIME (10s)
	@set -e; total=0; \
	dirs=$$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -r -n 1 dirname | sort -u); \
	for dir in $$dirs; do \
		listed=$$(go -C $$dir test -list '^Fuzz' .); \
		for target in $$(grep '^Fuzz' <<<"$$listed"); do \
			(set -x; go -C $$dir test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) .); \
			total=$$((total + 1)); \
		done; \
	done; \
	if [ $$total = 0 ]; then echo 'no fuzz test found' >&2; exit 1; fi; \
	echo "$$total fuzz tests ran for $(FUZZTIME) each"

$(GOLANGCI):
	GOBIN='$(@D)' GOFLAGS= GOWORK=off go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)

HISTORIES ?= 200000
SEED      ?= 1

simulate: ## play HISTORIES (200000) simulated histories from SEED (1); the last line is the result
	go run ./internal/sim/cmd/simulate -histories $(HISTORIES) -seed $(SEED)

simulate-mutants: ## show that each planted bug is caught; the last line is the result
	go run ./internal/sim/cmd/simulate -mutants -histories 20000 -seed $(SEED)
