// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
)

func TestTopShowsReplicasWhereThereAreSeveral(t *testing.T) {
	l := &look{
		clusters: &sandboxv1.ListClustersResponse{Clusters: []*sandboxv1.Cluster{{Id: "east", Running: 3}}},
		envs:     &sandboxv1.ListEnvsResponse{},
		replicas: []*sandboxv1.Replica{{Name: "hub-0", Reachable: true, Clusters: 1, Self: true}, {Name: "hub-1"}},
	}
	for _, n := range []int{2, 1} {
		l.replicas = l.replicas[:n]
		var out bytes.Buffer
		must.Succeed(t, l.print(&out, nil))
		for _, name := range []string{"hub-0", "hub-1"} {
			if shown := strings.Contains(out.String(), name); shown != (n == 2) {
				t.Errorf("of %d replicas %s is shown: %t\n%s", n, name, shown, out.String())
			}
		}
		if !strings.Contains(out.String(), "east") || !strings.Contains(out.String(), " 1 cluster, 0 envs, 3 running\n") {
			t.Errorf("printed\n%s", out.String())
		}
	}
}
