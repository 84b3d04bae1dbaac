// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/worker/internal/history"
	"navix.sh/atoll/worker/internal/sandbox"
)

func TestJudge(t *testing.T) {
	pods, pod := schema.GroupResource{Resource: "pods"}, schema.GroupKind{Kind: "Pod"}
	for name, tc := range map[string]struct {
		err  error
		want outcome
	}{
		"success":     {nil, written},
		"failed test": {apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", "testing path", 0, false), lost},
		"invalid": {apierrors.NewInvalid(pod, "p", field.ErrorList{
			field.Invalid(field.NewPath("metadata", "labels"), "x y", "no"),
		}), faulty},
		"conflict":              {apierrors.NewConflict(pods, "p", errors.New("modified")), lost},
		"not found":             {apierrors.NewNotFound(pods, "p"), gone},
		"bad patch":             {apierrors.NewBadRequest("no JSON"), faulty},
		"too many operations":   {apierrors.NewRequestEntityTooLargeError("10000"), faulty},
		"forbidden":             {apierrors.NewForbidden(pods, "p", errors.New("policy")), denied},
		"overload":              {apierrors.NewTooManyRequests("later", 1), denied},
		"server's timeout":      {apierrors.NewServerTimeout(pods, "patch", 1), unclear},
		"gateway's timeout":     {apierrors.NewTimeoutError("late", 1), unclear},
		"internal error":        {apierrors.NewInternalError(errors.New("etcd")), unclear},
		"unavailable":           {apierrors.NewServiceUnavailable("down"), unclear},
		"connection lost":       {errors.New("EOF"), unclear},
		"no answer in time":     {context.DeadlineExceeded, unclear},
		"wrapped":               {fmt.Errorf("patching: %w", apierrors.NewNotFound(pods, "p")), gone},
		"status that says less": {&apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusTeapot}}, unclear},
	} {
		if got := judge(tc.err); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// Whatever is answered to a repetition, a try that was unclear is not made undone by a denial.
func TestAtRepeat(t *testing.T) {
	for got, want := range map[outcome]outcome{
		written: written, lost: lost, gone: gone, faulty: faulty, denied: unclear, unclear: unclear,
	} {
		if is := atRepeat(got); is != want {
			t.Errorf("%s after an unclear try: %s, want %s", got, is, want)
		}
	}
}

func TestAdmit(t *testing.T) {
	for name, tc := range map[string]struct {
		asking asking
		want   admission
	}{
		"a Pod is idle":                     {asking{left: 1, idle: true, capacity: 3}, takesPod},
		"a Pod is idle, no queue":           {asking{left: 1, idle: true, noQueue: true}, takesPod},
		"none is":                           {asking{left: 1, capacity: 3}, waits},
		"the last place":                    {asking{left: 1, waiting: 2, capacity: 3, own: 2, most: 2}, waits},
		"none is, no queue":                 {asking{left: 1, capacity: 3, noQueue: true}, noneIdle},
		"none is any more, no queue":        {asking{left: 1, capacity: 3, noQueue: true, again: true}, noneIdle},
		"full of its own claims":            {asking{left: 1, waiting: 3, capacity: 3, own: 3, most: 3}, full},
		"full of another's":                 {asking{left: 1, waiting: 3, capacity: 3, most: 3}, displaces},
		"full, one less than another":       {asking{left: 1, waiting: 3, capacity: 3, own: 1, most: 2}, full},
		"full, two less than another":       {asking{left: 1, waiting: 4, capacity: 4, own: 1, most: 3}, displaces},
		"full, one place each":              {asking{left: 1, waiting: 3, capacity: 3, most: 1}, full},
		"full of claims that lost Pods":     {asking{left: 1, waiting: 3, capacity: 3}, full},
		"full, lost its Pod":                {asking{left: 1, waiting: 3, capacity: 3, own: 3, most: 3, again: true}, waits},
		"a place is left for a long wait":   {asking{left: 1, waiting: 8191, capacity: 8192, own: 8191, most: 8191}, waits},
		"its deadline is now":               {asking{capacity: 3}, tooLate},
		"its deadline has passed":           {asking{left: -1, idle: true, capacity: 3}, tooLate},
		"lost its Pod, and time is up":      {asking{capacity: 3, again: true}, tooLate},
		"the pool is being removed":         {asking{left: 1, idle: true, closing: true, capacity: 3}, closing},
		"no Pod can come in time":           {asking{left: 5, capacity: 3, empty: true, saturated: 5}, hopeless},
		"one may come in time":              {asking{left: 5, capacity: 3, empty: true, saturated: 4}, waits},
		"saturated, with Pods":              {asking{left: 5, capacity: 3, saturated: 9}, waits},
		"no Pods, not saturated":            {asking{left: 5, capacity: 3, empty: true}, waits},
		"canceled":                          {asking{left: 1, idle: true, canceled: true, capacity: 3}, canceled},
		"canceled, and the pool is removed": {asking{canceled: true, closing: true}, canceled},
	} {
		if got := admit(&tc.asking); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// I2: what a claim of attempt 3 finds.
func TestMeet(t *testing.T) {
	for name, tc := range map[string]struct {
		known known
		want  meeting
	}{
		"nothing":                             {known{}, startAnew},
		"earlier attempt waits":               {known{pending: 2}, startAnew},
		"earlier attempt holds a Pod":         {known{held: 2}, startAnew},
		"earlier attempt has ended":           {known{ended: 2}, startAnew},
		"earlier attempt was refused":         {known{refused: 2}, startAnew},
		"waits":                               {known{pending: 3}, joinClaim},
		"waits, earlier one refused":          {known{pending: 3, refused: 2}, joinClaim},
		"holds a Pod":                         {known{held: 3}, answerHolder},
		"holds a Pod, another still written":  {known{held: 3, pending: 3}, answerHolder},
		"has ended":                           {known{ended: 3}, answerRecord},
		"was canceled and has ended":          {known{ended: 3, refused: 3}, answerRecord},
		"was refused":                         {known{refused: 3}, refuseAgain},
		"a later attempt was canceled":        {known{refused: 4}, refuseAgain},
		"was canceled while its Pod is there": {known{refused: 3, held: 3}, refuseAgain},
		"later attempt waits":                 {known{pending: 4}, outdated},
		"later attempt holds a Pod":           {known{held: 4, ended: 2}, outdated},
		"later attempt has ended":             {known{ended: 4}, outdated},
	} {
		if got := meet(tc.known, 3); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// I2: of two Pods with one key exactly one stays.
func TestOutranks(t *testing.T) {
	ranked := []sandbox.State{ // best first
		{Attempt: 2, Incarnation: 1, ID: "a"},
		{Attempt: 1, Incarnation: 9, ID: "a"},
		{Attempt: 1, Incarnation: 3, ID: "c"},
		{Attempt: 1, Incarnation: 3, ID: "b"},
	}
	for i := range ranked {
		for j := range ranked {
			if got := outranks(&ranked[i], &ranked[j]); got != (i < j) {
				t.Errorf("%+v outranks %+v: %v", ranked[i], ranked[j], got)
			}
		}
	}
}

func TestDisposition(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want federationv1.Disposition
	}{
		{nil, federationv1.Disposition_DONE},
		{refuse(problem.NoCapacity, "none"), federationv1.Disposition_REFUSED},
		{fmt.Errorf("claiming: %w", refuse(problem.NoCapacity, "none")), federationv1.Disposition_REFUSED},
		{fault(problem.New(problem.Invalid, "no")), federationv1.Disposition_DONE},
		{doubt("who knows"), federationv1.Disposition_UNCLEAR},
		{notServing(), federationv1.Disposition_STALE_SESSION},
		{errors.New("anything else"), federationv1.Disposition_UNCLEAR},
		{context.Canceled, federationv1.Disposition_UNCLEAR},
	} {
		if got := Disposition(tc.err); got != tc.want {
			t.Errorf("%v: %s, want %s", tc.err, got, tc.want)
		}
	}
	var p *problem.Error
	if err := refuse(problem.QueueFull, "full"); !errors.As(err, &p) || p.Reason != problem.QueueFull || p.RetryAfter == 0 {
		t.Errorf("the problem in a refusal is %v", p)
	}
}

func TestMemoryForgets(t *testing.T) {
	start := time.Now()
	m := newMemory[int](10*time.Minute, 2)
	var dropped []string
	m.onDrop = func(key string, _ int) { dropped = append(dropped, key) }
	m.put(start, "a", 1)
	m.put(start.Add(time.Minute), "b", 2)
	m.put(start.Add(2*time.Minute), "a", 3) // counts anew
	m.put(start.Add(3*time.Minute), "c", 4) // one too many: the oldest goes
	if _, ok := m.get(start.Add(3*time.Minute), "b"); ok || m.len() != 2 {
		t.Errorf("b is remembered, of %d", m.len())
	}
	if v, ok := m.get(start.Add(11*time.Minute), "a"); !ok || v != 3 {
		t.Errorf("a is %d, %v", v, ok)
	}
	if _, ok := m.get(start.Add(12*time.Minute), "a"); ok {
		t.Error("a is remembered for longer than it should")
	}
	if m.get(start.Add(time.Hour), "c"); m.len() != 0 || fmt.Sprint(dropped) != "[b a c]" {
		t.Errorf("%d left; dropped %v", m.len(), dropped)
	}
}

func TestEndedMemoryKeepsTheLatestAttempt(t *testing.T) {
	now := time.Now()
	store := newEndedStore()
	put := func(id string, attempt int32) {
		store.put(now, history.Record{Sandbox: &sandboxv1.Sandbox{Id: id}, KeyHash: "k", Attempt: attempt})
	}
	put("two", 2)
	put("one", 1)
	if got, attempt := store.byKey(now, "k"); got.GetId() != "two" || attempt != 2 {
		t.Errorf("the key's record is %v of attempt %d", got, attempt)
	}
	if got, _ := store.byKey(now.Add(endedMemory), "k"); got != nil || len(store.keys) != 0 {
		t.Errorf("after its time: %v, %d keys", got, len(store.keys))
	}
}

func TestIdlePodsArePreferredByImage(t *testing.T) {
	var q idleQueue
	entries := map[string]*entry{}
	for i, image := range []string{"a:1", "b:1", "a:1"} {
		e := &entry{pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint(i))},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Image: image}}},
		}}
		entries[fmt.Sprint(i)] = e
		q.push(e)
		q.push(e)
	}
	for _, step := range []struct{ image, want string }{{"b:1", "1"}, {"b:1", "2"}, {"a:1", "0"}} {
		if got := q.pop(step.image); got != entries[step.want] {
			t.Errorf("for %s got Pod %v, want %s", step.image, got.pod.UID, step.want)
		}
	}
	if q.pop("a:1") != nil || q.len() != 0 || len(q.byImage) != 0 {
		t.Errorf("%d left of %d images", q.len(), len(q.byImage))
	}
}

// What a pool has too much of stays idle: the autoscaler removes Pods that have been idle for long, and with the oldest
// handed out first a trickle of claims would keep all of them young.
func TestTheLastIdlePodIsHandedOutFirst(t *testing.T) {
	var q idleQueue
	push := func(failed bool) *entry {
		e := &entry{failed: failed, pod: &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: "a:1"}}}}}
		q.push(e)
		return e
	}
	old, young, failed := push(false), push(false), push(true)
	for i, want := range []*entry{young, old, failed} {
		if got := q.pop("a:1"); got != want {
			t.Errorf("claim %d got another Pod", i)
		}
	}
}
