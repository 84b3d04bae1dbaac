// SPDX-License-Identifier: Apache-2.0

// Package charts has the charts in it, gives the CRDs to the hub, and has parts for atollctl to render. A test that has helm or kubectl
// read them imports it: go then runs the test again when a chart has changed, and takes what it found before when none has.
package charts

import (
	"embed"
	"io/fs"
)

//go:embed all:hub all:worker
var files embed.FS

// CRDs has the CRDs of the chart of workers, by which the hub checks manifests.
//
//go:embed worker/files/crds
var CRDs embed.FS

// ArgoHealth is the script by which Argo CD tells the health of what the hub takes from its cluster.
//
//go:embed hub/files/argocd/health.lua
var ArgoHealth string

// Worker returns the files of the worker's chart that are applied without helm as well: rbac, crds, policies.
func Worker() (fs.FS, error) { return fs.Sub(files, "worker/files") }

// The linker leaves out what is not used, and with it every difference between two test binaries.
var _, _ = files.Open(".")
