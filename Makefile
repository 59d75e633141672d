# Two commands: `make run` and `make test`; `make test-full` adds the hosts that are not part of every run.

# What `make test` is made of, one after the other.
PARTS = test-quick test-engines test-clients test-page e2e

# One file of stories for each family of verbs, told on PostgreSQL as well.
FAMILIES = signal_story:: memory_story:: gate_story:: loopback_story:: key_story::

.PHONY: stories-on-postgres faults run page test test-full test-setup $(PARTS) e2e-more check wire
.NOTPARALLEL:

# Where tests keep what they fetch once.
CACHE ?= $(if $(PRISM_TEST_CACHE),$(PRISM_TEST_CACHE),$(HOME)/.cache/prism-tests)
TARGET = $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)

# What npm installed says so in this file; another lock file means another set.
%/node_modules/.package-lock.json: %/package-lock.json
	cd $* && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	touch $@

page: dashboard/node_modules/.package-lock.json ## Build the page that the server carries
	cd dashboard && npm run --silent build

run: ## Build Prism with its page, fetch the embedding model, and run it on the embedded store in $PRISM_HOME (default ~/.prism)
	$(MAKE) page || echo "Going on without the page, which needs Node 20.19 or later: the command line and the API are whole."
	cargo build --release --locked --bin prism
	$(TARGET)/release/prism model install || echo "Going on without the model: recall will find words but not meaning."
	$(TARGET)/release/prism serve

# Each part of the tests is a target of its own and says, pass or fail, how long it took.
timed = @from=$$(date +%s); trap 'set +x; echo "$@ took $$(($$(date +%s) - from)) s"' EXIT; set -ex;

test: $(PARTS) ## Set up what the tests need and run all of them

test-full: test stories-on-postgres faults e2e-more ## All of them, and the hosts that take longer to fetch

test-setup: page ## Build what is tested and fetch the model once
	$(timed) cargo test --workspace --locked --no-run; \
	PRISM_HOME="$(CACHE)/home" $(TARGET)/debug/prism model install

test-quick: test-setup ## The rules of core, and the stories on the embedded store
	$(timed) cargo test --workspace --locked -- --skip engines::

test-engines: test-setup ## The store, and several servers, on a real PostgreSQL and Redis
	$(timed) tests/engines/run -- cargo test --package prism --test it --locked -- engines:: store_suite::; \
	tests/engines/run -- env PRISM_STORIES_ON=postgres cargo test --package prism --test it --locked -- $(FAMILIES)

# All stories but those about files of a home, hosts and terminals.
stories-on-postgres: test-setup ## Every story on PostgreSQL
	$(timed) tests/engines/run -- env PRISM_STORIES_ON=postgres cargo test --package prism --test it --locked -- \
		--skip engines:: --skip store_suite:: --skip connect_story:: --skip launch_story:: --skip cli:: --skip tidy:: --skip deploy:: --skip backup_story::

# In `make test` with fewer signals.
faults: test-setup ## 10,000 signals through two servers while one thing after the other is taken from them
	$(timed) tests/engines/run -- env PRISM_FAULT_SENDS=10000 cargo test --package prism --test it --locked -- engines::fault_story::

test-clients: test-setup ## The binary with real MCP and HTTP clients
	$(timed) PRISM_BIN="$(TARGET)/debug/prism" tests/clients/run

test-page: test-setup ## The page of the binary in Chromium
	$(timed) PRISM_BIN="$(TARGET)/debug/prism" tests/page/run

e2e: test-setup ## The binary in real agent hosts, on scripted loopback models
	$(timed) PRISM_BIN="$(TARGET)/debug/prism" tests/hosts/run

e2e-more: test-setup ## The same in OpenCode and Gemini CLI
	$(timed) PRISM_BIN="$(TARGET)/debug/prism" tests/hosts/run more

check: dashboard/node_modules/.package-lock.json tests/page/node_modules/.package-lock.json ## Format, lint and types
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cd dashboard && npm run --silent check
	cd tests/page && npm run --silent check
	deploy/check

wire: ## Make the page's types from the server's
	cargo run --locked --quiet --bin prism -- wire-types > dashboard/src/wire.ts.new
	mv dashboard/src/wire.ts.new dashboard/src/wire.ts
