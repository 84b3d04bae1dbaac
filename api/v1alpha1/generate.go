// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Deepcopy methods.
//go:generate go tool -modfile=../../tools/go.mod controller-gen object:headerFile=boilerplate.go.txt paths=.

// Apply configurations, for writes that must not lose a zero.
//go:generate rm -rf applyconfiguration
//go:generate go tool -modfile=../../tools/go.mod controller-gen applyconfiguration:headerFile=boilerplate.go.txt paths=.

// CRD manifests. The worker's chart ships them; planes apply the same files.
// CEL rules write the empty string as "": gofmt turns two single quotes in a
// comment into a typographic one.
//go:generate go tool -modfile=../../tools/go.mod controller-gen crd paths=. output:crd:dir=../../charts/worker/files/crds

// A member's spec has no default of its image policy (EnvClusterMember); the first one in the Env's schema is there.
//go:generate sed -i "0,/^ *default: IdleImage$/{/^ *default: IdleImage$/d}" ../../charts/worker/files/crds/agents.navix.sh_sandboxenvs.yaml
