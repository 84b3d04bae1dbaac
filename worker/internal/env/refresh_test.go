// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/clock"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/worker/internal/admission"
	"navix.sh/atoll/worker/internal/snapshot"
)

// lowered is a limit below what pools hold. It is asked only about growth.
type lowered struct{ refuses admission.Reason }

func (*lowered) Name() string { return "lowered" }

func (l *lowered) PreCreatePool(_ context.Context, c *admission.Change) (admission.Verdict, error) {
	switch {
	case l.refuses != "":
		return admission.Refuse(c.From, l.refuses, "no", 0), nil
	case c.To <= c.From:
		return admission.Admit(c.To), nil
	}
	return admission.Refuse(c.From, admission.QuotaExceeded, "no room", 0), nil
}

// TestARefreshKeepsWhatIsHeld: a lowered limit does not deny a new image to a member whose replicas stay. What its Pods would
// need beyond that is asked for, and a plugin may refuse it.
func TestARefreshKeepsWhatIsHeld(t *testing.T) {
	for name, tc := range map[string]struct {
		snapshot bool
		cpu      string
		refuses  admission.Reason
		want     verb
	}{
		"a new image":                  {true, "1", "", verbAdmit},
		"a new image, and more cpu":    {true, "2", "", verbRefuse},
		"a member that is made":        {false, "1", "", verbRefuse},
		"a new image, which is barred": {true, "1", admission.InvalidSpec, verbRefuse},
	} {
		t.Run(name, func(t *testing.T) {
			container := map[string]any{"name": "main", "image": "x:2", "resources": map[string]any{"limits": map[string]any{"cpu": tc.cpu}}}
			member := v1alpha1.EnvClusterMember{Name: "a"}
			member.Spec.Replicas = 20
			if tc.snapshot {
				member.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: "x:1", Resources: corev1.ResourceRequirements{
					Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}}}
			}
			env := &v1alpha1.SandboxEnv{}
			env.Spec.TemplateRef.Name = "base"
			env.Spec.Clusters = []v1alpha1.EnvClusterSpec{{ClusterID: local, Members: []v1alpha1.EnvClusterMember{member}}}
			o := &observation{
				clusterID: local, Source: snapshot.Source{Env: env, Template: templateOf(t, container)}, now: testTime, since: testTime.Sub,
				explicitReplicas: map[string]int32{"a": 20}, pools: map[string]*v1alpha1.SandboxPool{},
			}
			p, err := decideRefresh(o, refreshRequest{})
			if err != nil || p.members[0].verb != verbAdmit {
				t.Fatalf("%v, %+v", err, p)
			}
			a := &actor{Reconciler: &Reconciler{admission: admission.New(clock.RealClock{}, &lowered{tc.refuses})}, o: o}
			must.Succeed(t, a.admitRefresh(t.Context(), p, false))
			if m := &p.members[0]; m.verb != tc.want || m.replicas != 20 {
				t.Errorf("%s with %d replicas: %s", m.verb, m.replicas, m.message)
			}
		})
	}
}
