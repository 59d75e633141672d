# Two commands: `make run` and `make test`.
.PHONY: run test check

# Where tests keep what they fetch once.
CACHE ?= $(if $(PRISM_TEST_CACHE),$(PRISM_TEST_CACHE),$(HOME)/.cache/prism-tests)
TARGET = $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)

run: ## Build Prism, fetch the embedding model, and run it on the embedded store in $PRISM_HOME (default ~/.prism)
	cargo build --release --locked --bin prism
	$(TARGET)/release/prism model install || echo "Going on without the model: recall will find words but not meaning."
	$(TARGET)/release/prism serve

test: ## Set up what the tests need and run all of them
	cargo build --locked --bin prism
	PRISM_HOME="$(CACHE)/home" $(TARGET)/debug/prism model install
	cargo test --workspace --locked
	PRISM_BIN="$(TARGET)/debug/prism" tests/clients/run

check: ## Format and lint
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
