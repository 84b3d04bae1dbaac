// SPDX-License-Identifier: Apache-2.0

package podtunnel_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/reach"
	"navix.sh/atoll/worker/internal/podtunnel"
	"navix.sh/atoll/worker/internal/sandboxes"
)

// noted is an Upstream that notes what gets there, and refuses it.
type noted struct{ dialled int }

var errReached = problem.New(problem.Unavailable, "it got there")

func (n *noted) Dial(context.Context, sandboxes.Place, *federationv1.ReachCall) (reach.Tunnel, error) {
	n.dialled++
	return nil, errReached
}

// Callers reach the sandbox's own container, and others that the pool or its Env lists; and no port of a Pod on its node's network.
// What is refused gets to no API server, and is no activity.
func TestI14CallersReachWhatIsTheSandboxs(t *testing.T) {
	upstream := &noted{}
	w := newWorld(t, func(o *podtunnel.Options) { o.Upstream = upstream })
	sidecar := func(p *v1alpha1.SandboxPool) {
		p.Spec.Template.Spec.Containers = append(p.Spec.Template.Spec.Containers, corev1.Container{Name: "side", Image: "test.local/default:1"})
	}
	w.makePool(sidecar, func(p *v1alpha1.SandboxPool) { p.Name = "closed" })
	w.makePool(sidecar, func(p *v1alpha1.SandboxPool) {
		p.Name, p.Annotations = "open", map[string]string{v1alpha1.AllowedContainersAnnotationKey: "side"}
	})
	w.makePool(func(p *v1alpha1.SandboxPool) {
		p.Name = "host"
		p.Spec.Template.Spec.HostNetwork = true
		p.Spec.Template.Spec.SecurityContext = nil // its sysctls are the node's
	})
	exec := func(container string) *federationv1.ReachCall {
		return &federationv1.ReachCall{What: &federationv1.ReachCall_Exec{Exec: &federationv1.ExecReach{Container: container,
			Command: []string{"true"}}}}
	}
	logs := func(container string) *federationv1.ReachCall {
		return &federationv1.ReachCall{What: &federationv1.ReachCall_Logs{Logs: &federationv1.LogsReach{Container: container}}}
	}
	port := &federationv1.ReachCall{What: &federationv1.ReachCall_Port{Port: &federationv1.PortReach{Port: 10250}}}
	ids := map[string]string{}
	for _, pool := range []string{"closed", "open", "host"} {
		ids[pool] = w.claimOf(pool).GetId()
	}
	for _, tc := range []struct {
		pool    string
		what    *federationv1.ReachCall
		refused string
	}{
		{"closed", exec(""), ""},
		{"closed", exec("main"), ""},
		{"closed", exec("side"), `container: "side" is not open to callers, want main;`},
		{"closed", logs("side"), `container: "side" is not open to callers, want main;`},
		{"closed", logs("other"), `container: "other" is not open to callers, want main;`},
		{"closed", logs(""), ""},
		{"closed", port, ""},
		{"open", exec("side"), ""},
		{"open", logs("side"), ""},
		{"open", exec("other"), "want main, side;"},
		{"host", exec(""), ""},
		{"host", port, "the Pod is on its node's network"},
	} {
		name := fmt.Sprintf("%s %v", tc.pool, tc.what)
		before := upstream.dialled
		_, err := w.service.Open(t.Context(), ids[tc.pool], tc.what)
		switch p := problem.FromError(err); {
		case p == nil:
			t.Errorf("%s: opened", name)
		case tc.refused == "" && (p.Message != errReached.Message || upstream.dialled != before+1):
			t.Errorf("%s: %v", name, err)
		case tc.refused != "" && (p.Reason != problem.Forbidden || !strings.Contains(p.Message, tc.refused) || upstream.dialled != before):
			t.Errorf("%s: %v, want %s", name, err, tc.refused)
		}
	}
}
