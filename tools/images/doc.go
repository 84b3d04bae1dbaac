// SPDX-License-Identifier: Apache-2.0

// Command images builds container images without a container engine.
//
// In go main packages of the module above; out come one-layer images FROM scratch that run a static binary as user 65532,
// as archives for `docker load` and `kind load image-archive`, and beside each a CycloneDX SBOM of the modules that its
// binary says it was linked from. The same commit and Go version give the same bytes: no time, no path, no order of
// chance.
//
//	images --out DIR --version V                        # atoll-hub.tar, atoll-worker.tar, and their SBOMs
//	images --out DIR --image 'FILE REF PACKAGE ARG...'  # anything else, for tests, with a /tmp; images of one FILE share an archive
package main
