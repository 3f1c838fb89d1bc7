# The commands of everyday work. `make` alone lists them; what each does in detail is in tools/.
#
# ARGS is handed on: make up ARGS="--config my.toml", make test ARGS="-p store".

ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help build up test kube bench soak lint clean

help: ## list these commands
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

build: ## build everything, for debugging
	@tools/setup build
	cargo build --workspace --locked

up: ## start Shipshape here with a simulated fleet at work (needs only a Rust toolchain and a C compiler)
	@tools/setup build
	@exec cargo run --locked -p shipshape -- up --demo $(ARGS)

test: ## run every test once; installs or finds what it needs
	@tools/test $(ARGS)

kube: ## build Kubernetes for tests, once for each user and version; prints where it is
	@tools/kube/build

bench: ## measure the store against its floors, maintenance, API and portal against their goals, kubesim against the real server
	@tools/setup
	cargo bench --locked -p store --bench keel -- $(ARGS)
	cargo bench --locked -p maintenance --bench scheduler
	cargo bench --locked -p maintenance --bench actuator
	cargo bench --locked -p upkeep --bench plan
	cargo bench --locked -p frontend --bench arm
	cargo bench --locked -p portal --bench pages
	cargo bench --locked -p kubesim --bench servers
	cargo run --locked --release -p kubesim --example fleet

# The examples are the processes that the tests kill; `cargo test --test` alone does not build them.
soak: ## run the tests of store, actuator, backend and simulator for long: more kills, seeds and mutated requests
	@tools/setup
	cargo build --locked -p store -p maintenance -p backend --examples
	SHIPSHAPE_SOAK=1 RUST_TEST_THREADS=$${RUST_TEST_THREADS:-4} cargo test --locked -p store --test conformance -- $(ARGS)
	SHIPSHAPE_SOAK=1 cargo test --locked -p maintenance --lib --test actuator -- $(ARGS)
	SHIPSHAPE_SOAK=1 cargo test --locked -p backend --test operations -- $(ARGS)
	SHIPSHAPE_SOAK=1 cargo test --locked -p kubesim --test server -- hostile

lint: ## check formatting, lints, documentation and scripts
	@tools/setup build
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked
	tools/lint-scripts

clean: ## remove everything that was built
	cargo clean
