# The commands of everyday work. `make` alone lists them; what each does in detail is in tools/.
#
# ARGS is handed on: make up ARGS="--config my.toml", make test ARGS="-p store".
#
# Cargo chooses the features of dependencies by the packages that it is asked to build. So every command here asks for all of them, also
# where it wants one executable: then build, up, test, lint and bench share what was built (tools/lint-features keeps it so).

ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help build up release test kube bench soak lint clean

help: ## list these commands
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

build: ## build everything, for debugging
	@tools/setup build
	cargo build --locked

up: ## start Shipshape here with a simulated fleet at work (needs only a Rust toolchain and a C compiler)
	@tools/setup build
	@exec cargo run --locked --bin shipshape -- up $(if $(findstring --demo,$(ARGS)),,--demo) $(ARGS)

release: ## build the executable for production, stripped, with its debug information beside it
	@tools/setup build
	@tools/release

test: ## run every test once; installs or finds what it needs
	@tools/test $(ARGS)

kube: ## build Kubernetes for tests, once for each user and version; prints where it is
	@tools/kube/build

bench: ## measure the store against its floors, maintenance, API, portal, emulator, creates and machine controllers against their goals, kubesim against the real server, `up` against its goals
	@tools/setup
	cargo bench --locked --bench store -- $(ARGS)
	cargo bench --locked --bench scheduler
	cargo bench --locked --bench actuator
	cargo bench --locked --bench plan
	cargo bench --locked --bench arm
	cargo bench --locked --bench pages
	cargo bench --locked --bench servers
	cargo bench --locked --bench emulator
	cargo bench --locked --bench create
	cargo bench --locked --bench controllers
	cargo run --locked --release --example fleet
	cargo bench --locked --bench up

# The examples are the processes that the tests kill; `cargo test --test` alone does not build them. `-p shipshape` is named for its
# dependencies, so that their features are those of every other command.
soak: ## run the tests of store, actuator, backend and simulator for long: more kills, seeds and mutated requests
	@tools/setup
	cargo build --locked --examples
	SHIPSHAPE_SOAK=1 RUST_TEST_THREADS=$${RUST_TEST_THREADS:-4} cargo test --locked -p shipshape -p store --test conformance -- $(ARGS)
	SHIPSHAPE_SOAK=1 cargo test --locked -p shipshape -p maintenance --lib --test actuator -- $(ARGS)
	SHIPSHAPE_SOAK=1 cargo test --locked -p shipshape -p backend --test operations -- $(ARGS)
	SHIPSHAPE_SOAK=1 cargo test --locked -p shipshape -p kubesim --test server -- hostile

lint: ## check formatting, lints, documentation and scripts
	@tools/setup build
	cargo fmt --all --check
	tools/lint-scripts
	tools/lint-features
	tools/lint-builds
	tools/lint-words
	cargo clippy --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --locked

clean: ## remove everything that was built
	cargo clean
