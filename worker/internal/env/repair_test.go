// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/events"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/worker/internal/snapshot"
)

// A repair that the API server refuses permanently is reported: the member serves, and follows neither template nor replicas. An
// error that may pass is not reported.
func TestARepairThatIsRefusedShows(t *testing.T) {
	tooLong := apierrors.NewInvalid(schema.GroupKind{Kind: "SandboxPool"}, "a",
		field.ErrorList{field.TooLong(field.NewPath("metadata", "annotations"), "", 262144)})
	for name, tc := range map[string]struct {
		err   error
		ready metav1.ConditionStatus
	}{
		"refused for good": {tooLong, metav1.ConditionFalse},
		"forbidden": {apierrors.NewForbidden(schema.GroupResource{Resource: "sandboxpools"}, "a", errors.New("a policy")),
			metav1.ConditionFalse},
		"busy": {apierrors.NewTooManyRequests("busy", 1), metav1.ConditionTrue},
		"none": {nil, metav1.ConditionTrue},
	} {
		t.Run(name, func(t *testing.T) {
			metrics, err := newMetrics(prometheus.NewRegistry())
			must.Succeed(t, err)
			recorder := events.NewFakeRecorder(5)
			o := &observation{clusterID: local, Source: snapshot.Source{Env: &v1alpha1.SandboxEnv{}}, now: testTime, since: testTime.Sub}
			a := &actor{Reconciler: &Reconciler{metrics: metrics, recorder: recorder}, o: o}
			p := &plan{members: []memberPlan{{name: "a", verb: verbRepair, state: v1alpha1.ObservedMemberStateActive}}}
			if got := a.settle(context.Background(), &p.members[0], tc.err); !errors.Is(got, tc.err) {
				t.Fatal(got)
			}
			ready := readyOf(o, p)
			reported := len(recorder.Events)
			if ready.Status != tc.ready || (reported == 1) != (tc.ready == metav1.ConditionFalse) {
				t.Errorf("Ready is %s, %s; %d Events", ready.Status, ready.Message, reported)
			}
			if tc.ready == metav1.ConditionFalse && !strings.Contains(ready.Message, tc.err.Error()) {
				t.Errorf("the condition does not say why: %s", ready.Message)
			}
			o.Env.Status.Conditions = []metav1.Condition{{Type: ready.Type, Status: ready.Status, Message: ready.Message}}
			_ = a.settle(context.Background(), &p.members[0], tc.err)
			if len(recorder.Events) != reported {
				t.Error("reported again, although the Env says so already")
			}
		})
	}
}
