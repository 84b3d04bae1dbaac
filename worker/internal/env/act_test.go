// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/worker/internal/snapshot"
)

func TestEventsOfManyMembersAreFew(t *testing.T) {
	recorder := events.NewFakeRecorder(100)
	env := &v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "wide"}}
	a := &actor{Reconciler: &Reconciler{recorder: recorder}, o: &observation{Source: snapshot.Source{Env: env}}}
	const members, warnings = 10, 6
	for i := range members {
		a.logAndRecord(t.Context(), fmt.Sprint("m", i), corev1.EventTypeNormal, v1alpha1.ReasonPoolCreated, verbCreate, "created pool m%d", i)
	}
	a.logAndRecord(t.Context(), "m0", corev1.EventTypeNormal, reasonAdmitted, verbAdmit, "rendered m0")
	for i := range warnings {
		a.logAndRecord(t.Context(), fmt.Sprint("m", i), corev1.EventTypeWarning, reasonMemberInvalid, verbAdmit, "m%d is refused", i)
	}
	a.recordRest()
	close(recorder.Events)
	counts, rest := map[string]int{}, ""
	for event := range recorder.Events {
		fields := strings.Fields(event)
		counts[fields[1]]++
		if strings.Contains(event, "more members") {
			rest = event
		}
	}
	if counts[string(v1alpha1.ReasonPoolCreated)] != maxEvents+1 ||
		!strings.Contains(rest, fmt.Sprintf("%d more members", members-maxEvents)) {
		t.Errorf("%v, and of the rest %q; want %d and one that counts %d", counts, rest, maxEvents, members-maxEvents)
	}
	if counts[string(reasonAdmitted)] != 1 || counts[string(reasonMemberInvalid)] != warnings {
		t.Errorf("%v, want one that tells of the one rendering, and all %d warnings", counts, warnings)
	}
}

// countReads is an API server without the object.
type countReads struct {
	client.Reader
	reads int
}

func (c *countReads) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	c.reads++
	return apierrors.NewNotFound(schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "sandboxenvs"}, key.Name)
}

// Pools that wait for their creation cost no live read, and those of an Env that has changed cost one in all, and one creation.
func TestCreateReadsTheEnvOnce(t *testing.T) {
	live := &countReads{}
	pace := newCreations(testclock.NewFakePassiveClock(time.Unix(1e9, 0)))
	env := &v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "wide"}}
	plan := func() *actor {
		return &actor{Reconciler: &Reconciler{live: live, creations: pace}, o: &observation{Source: snapshot.Source{Env: env}}}
	}
	changed := plan()
	for i := range createdAtOnce {
		if err := changed.create(t.Context(), &memberPlan{name: fmt.Sprint("m", i)}); !errors.Is(err, errStale) {
			t.Fatalf("the Env is gone, and creating a pool returns %v", err)
		}
	}
	if live.reads != 1 {
		t.Errorf("a changed Env was read %d times", live.reads)
	}
	for i := range createdAtOnce - 1 {
		if wait := pace.wait(types.NamespacedName{Namespace: env.Namespace, Name: fmt.Sprint("n", i)}); wait > 0 {
			t.Fatalf("%d creations are left of %d after one read, want all but one", i, createdAtOnce)
		}
	}
	late := plan()
	if err := late.create(t.Context(), &memberPlan{name: "late"}); !errors.Is(err, errLater) || late.later != creationPause {
		t.Errorf("without a creation left: %v, later %s; want to come back after %s", err, late.later, creationPause)
	}
	if live.reads != 1 {
		t.Errorf("a pool that waits was read for: %d reads", live.reads)
	}
}
