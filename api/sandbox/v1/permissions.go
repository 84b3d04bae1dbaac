// SPDX-License-Identifier: Apache-2.0

package sandboxv1

// MethodPermission is what a method needs, and what audits need to know of it. The table is sandbox_permissions.yaml.
type MethodPermission struct {
	Resource, Verb string
	Reach          Reach
	Changes        bool // it changes something
}

// Reach is the set of callers that a call concerns.
type Reach int

// The reaches.
const (
	ReachOwn   Reach = iota // what the caller may see; the call itself checks that
	ReachTeams              // every team of a namespace
	ReachHub                // every caller
)
