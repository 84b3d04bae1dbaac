// SPDX-License-Identifier: Apache-2.0

package env

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/worker/internal/snapshot"
)

func TestEventsOfManyMembersAreFew(t *testing.T) {
	recorder := events.NewFakeRecorder(100)
	env := &v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "wide"}}
	a := &actor{Reconciler: &Reconciler{recorder: recorder}, o: &observation{Source: snapshot.Source{Env: env}}}
	const members, warnings = 10, 6
	for i := range members {
		a.tell(t.Context(), fmt.Sprint("m", i), corev1.EventTypeNormal, v1alpha1.ReasonPoolCreated, verbCreate, "created pool m%d", i)
	}
	a.tell(t.Context(), "m0", corev1.EventTypeNormal, reasonAdmitted, verbAdmit, "rendered m0")
	for i := range warnings {
		a.tell(t.Context(), fmt.Sprint("m", i), corev1.EventTypeWarning, reasonMemberInvalid, verbAdmit, "m%d is refused", i)
	}
	a.tellOfRest()
	close(recorder.Events)
	counts, rest := map[string]int{}, ""
	for event := range recorder.Events {
		fields := strings.Fields(event)
		counts[fields[1]]++
		if strings.Contains(event, "more members") {
			rest = event
		}
	}
	if counts[string(v1alpha1.ReasonPoolCreated)] != mostTold+1 || !strings.Contains(rest, fmt.Sprintf("%d more members", members-mostTold)) {
		t.Errorf("%v, and of the rest %q; want %d and one that counts %d", counts, rest, mostTold, members-mostTold)
	}
	if counts[string(reasonAdmitted)] != 1 || counts[string(reasonMemberInvalid)] != warnings {
		t.Errorf("%v, want one that tells of the one rendering, and all %d warnings", counts, warnings)
	}
}
