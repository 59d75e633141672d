# Two commands: `make run` and `make test`.
.PHONY: run test check

run: ## Build Prism and run it on the embedded store in $PRISM_HOME (default ~/.prism)
	cargo run --release --locked --bin prism -- serve

test: ## Set up what the tests need and run all of them
	cargo test --workspace --locked
	PRISM_BIN="$${CARGO_TARGET_DIR:-target}/debug/prism" tests/clients/run

check: ## Format and lint
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
