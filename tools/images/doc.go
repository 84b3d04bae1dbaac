// SPDX-License-Identifier: Apache-2.0

// Command images builds container images without a container engine.
//
// In: main packages of this module. Out: archives of one-layer images that run a static binary as user 65532, each with a CycloneDX SBOM.
// The same commit and Go version give the same bytes.
//
//	images --out DIR --version V                        # atoll-hub.tar, atoll-worker.tar, …, and their SBOMs
//	images --out DIR --image 'FILE REF PACKAGE ARG...'  # others, with a /tmp; images of one FILE share an archive
package main
