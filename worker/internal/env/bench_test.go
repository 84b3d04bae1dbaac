// SPDX-License-Identifier: Apache-2.0

package env

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/utils/clock"

	"navix.sh/atoll/e2e/must"
)

// BenchmarkAtRest is the cost of a reconcile that has nothing to do, without the cache: every Env has one each 10 s.
func BenchmarkAtRest(b *testing.B) {
	const members = 10
	var env, pools strings.Builder
	env.WriteString(`kind: SandboxEnv
metadata: {name: shop, namespace: ns, uid: u1}
spec:
  templateRef: {name: base}
  mode: WarmPool
  clusters:
  - clusterID: east
    members:
`)
	for i := range members {
		fmt.Fprintf(&env, "    - {name: m%d, spec: {replicas: 3, template: {spec: {containers: [{name: main, image: x}]}}}}\n", i)
		fmt.Fprintf(&pools, "\n---\nsnapshotOf: m%d", i)
	}
	o, err := parseObservation(env.String() + pools.String())
	must.Succeed(b, err)
	clk := clock.RealClock{}
	b.ReportAllocs()
	for b.Loop() {
		p := decide(o)
		r := compute(o, &p, clk)
		if p.members[0].verb != verbKeep || r.written(&o.Env.Status) {
			b.Fatal("the Env is not at rest, or has a status")
		}
	}
}
