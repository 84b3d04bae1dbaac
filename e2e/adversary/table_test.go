// SPDX-License-Identifier: Apache-2.0

package adversary_test

import (
	"context"
	"slices"
)

// role is who attacks.
type role string

const (
	anyone  role = "anyone"
	tenant  role = "tenant"
	sandbox role = "sandbox"
	cluster role = "cluster"
	editor  role = "editor"
	reader  role = "reader" // of the hub's disk and backups
)

var roles = []role{anyone, tenant, sandbox, cluster, editor, reader}

// leastRows is how many attacks the table has at least.
const leastRows = 60

// row is one attack.
type row struct {
	name string
	role role
	// attack runs in the attacker's process until ctx ends, or until it has done all. An error means that it could not attack.
	attack func(ctx context.Context, a *attacker) error
	// direct does the same at the API server, without hub and worker; nil: it can only be done at the hub.
	direct func(ctx context.Context, a *attacker) error
	// told are regular expressions: each matches at least one thing that the attacker was told. never match none.
	told, never []string
	// replicas says that the row attacks the ports that replicas of the hub have for each other.
	replicas bool
	// prepare runs before the attack, check after it, in the suite's process. Both may be nil.
	prepare func(ctx context.Context, w *world, g *ground) error
	check   func(ctx context.Context, w *world, g *ground) error
}

// table returns all rows.
func table() []row {
	return slices.Concat(anyoneRows(), linkRows(), replicaRows(), tenantRows(), nodeRows(), sandboxRows(), clusterRows(), editorRows(),
		templateRows(),
		readerRows())
}
