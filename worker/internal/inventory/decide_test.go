// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"navix.sh/atoll/worker/internal/sandbox"
)

func TestResultOf(t *testing.T) {
	pods, pod := schema.GroupResource{Resource: "pods"}, schema.GroupKind{Kind: "Pod"}
	for name, tc := range map[string]struct {
		err  error
		want Result
	}{
		"success": {nil, Written},
		"failed test": {apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", "testing path", 0,
			false), Lost},
		"invalid": {apierrors.NewInvalid(pod, "p", field.ErrorList{
			field.Invalid(field.NewPath("metadata", "labels"), "x y", "no"),
		}), Faulty},
		"conflict":              {apierrors.NewConflict(pods, "p", errors.New("modified")), Lost},
		"not found":             {apierrors.NewNotFound(pods, "p"), NoPod},
		"bad patch":             {apierrors.NewBadRequest("no JSON"), Faulty},
		"too many operations":   {apierrors.NewRequestEntityTooLargeError("10000"), Faulty},
		"forbidden":             {apierrors.NewForbidden(pods, "p", errors.New("policy")), Denied},
		"overload":              {apierrors.NewTooManyRequests("later", 1), Denied},
		"server's timeout":      {apierrors.NewServerTimeout(pods, "patch", 1), Unclear},
		"gateway's timeout":     {apierrors.NewTimeoutError("late", 1), Unclear},
		"internal error":        {apierrors.NewInternalError(errors.New("etcd")), Unclear},
		"unavailable":           {apierrors.NewServiceUnavailable("down"), Unclear},
		"connection lost":       {errors.New("EOF"), Unclear},
		"no answer in time":     {context.DeadlineExceeded, Unclear},
		"wrapped":               {fmt.Errorf("patching: %w", apierrors.NewNotFound(pods, "p")), NoPod},
		"status that says less": {&apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusTeapot}}, Unclear},
	} {
		if got := ResultOf(tc.err); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// I2: of two Pods with one key exactly one stays.
func TestOutranks(t *testing.T) {
	ranked := []sandbox.Claim{ // best first
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

func TestVersionOf(t *testing.T) {
	for text, want := range map[string]uint64{"": 0, "12": 12, "99999999999999999999": 0, "x": 0} {
		if got := versionOf(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: text}}); got != want {
			t.Errorf("%q is read as %d, want %d", text, got, want)
		}
	}
}

func nowhere(*Pod, string) bool { return false }

func TestIdlePodsArePreferredByImage(t *testing.T) {
	var q idleQueue
	entries := map[string]*Pod{}
	for i, image := range []string{"a:1", "b:1", "a:1"} {
		e := &Pod{object: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint(i))},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Image: image}}},
		}}
		entries[fmt.Sprint(i)] = e
		q.push(e)
	}
	for _, step := range []struct{ image, want string }{{"b:1", "1"}, {"b:1", "2"}, {"a:1", "0"}} {
		if got := q.pop(step.image, nowhere); got != entries[step.want] {
			t.Errorf("for %s got Pod %v, want %s", step.image, got.object.UID, step.want)
		}
	}
	if q.pop("a:1", nowhere) != nil || q.len() != 0 || len(q.byImage) != 0 {
		t.Errorf("%d left of %d images", q.len(), len(q.byImage))
	}
}

// A pool's surplus Pods stay idle: the autoscaler removes Pods that have been idle for long, and with the oldest handed out first
// a trickle of claims would keep all of them young.
func TestTheLastIdlePodIsHandedOutFirst(t *testing.T) {
	var q idleQueue
	push := func(failed bool) *Pod {
		e := &Pod{failed: failed, object: &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: "a:1"}}}}}
		q.push(e)
		return e
	}
	old, young, failed := push(false), push(false), push(true)
	for i, want := range []*Pod{young, old, failed} {
		if got := q.pop("a:1", nowhere); got != want {
			t.Errorf("claim %d got another Pod", i)
		}
	}
}
