// SPDX-License-Identifier: Apache-2.0

package inventory_test

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/worker/internal/claim/claimtest"
	"navix.sh/atoll/worker/internal/inventory"
)

// I1: an etcd that is restored under a leader is found by the Pods, even if other writers have raised its revision past where it
// was before any read. The Pod that looks idle runs a sandbox.
func TestI1APodThatWentBackIsNoticed(t *testing.T) {
	w, l := claimtest.Start(t, 1)
	backup := filepath.Join(t.TempDir(), "etcd")
	w.Must(claimtest.Plane.Up(t).Backup(backup))
	l.MustCreate()
	before := l.NewestSeen()

	w.Must(claimtest.Plane.Up(t).Restore(t.Context(), backup))
	for n, now := 0, uint64(0); now <= before; n++ {
		now = write(w, fmt.Sprint("overtakes-", n))
	}
	awaitSetBack(l)
	if _, err := l.TryCreate(claimtest.NoQueue); problem.FromError(err).Reason != problem.Unavailable {
		t.Errorf("I1: a claim is answered with %v", err)
	}
	if l.Serving() {
		t.Error("it serves on")
	}
	l.EndsWith(inventory.ErrSetBack)
}

// write writes an object, and returns the revision that it got.
func write(w *claimtest.World, name string) uint64 {
	w.T.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name}}
	w.Eventually("a write", func() error { return client.IgnoreAlreadyExists(w.Live.Create(w.T.Context(), object)) })
	n, err := strconv.ParseUint(object.ResourceVersion, 10, 64)
	w.Must(err)
	return n
}

// A Pod that changes during a read is no sign of a restore.
func TestAPodThatChangesWhileItIsLookedAtIsNotSetBack(t *testing.T) {
	w := claimtest.NewWorld(t)
	w.MakePool(1)
	read, proceed := make(chan struct{}), make(chan struct{}) // steps of the read of a single Pod
	l := w.Lead(1, claimtest.Via(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/pods/") {
			for _, step := range []chan struct{}{read, proceed} {
				select {
				case step <- struct{}{}:
				case <-r.Context().Done():
				}
			}
		}
		return response, err
	}))
	look := func(meanwhile func()) {
		select {
		case <-read:
			meanwhile()
			<-proceed
		case <-l.SetBack():
			t.Fatal("a restore was found where there was none")
		}
	}
	look(func() { l.AwaitIdle(1) })
	look(func() { l.MustCreate() })
	look(func() {}) // the one before is done with
}

// A write that changes nothing gets no new version, and is no restore. Other writes come between two.
func TestAWriteThatChangesNothingIsNoRestore(t *testing.T) {
	_, l := claimtest.Start(t, 2)
	sb, other := l.MustCreate(), l.MustCreate()
	for range 2 {
		change := &sandboxv1.UpdateSandboxRequest{Id: sb.GetId(), IdleTimeout: durationpb.New(time.Hour)}
		if got, err := l.Sandboxes.Update(t.Context(), change); err != nil || got.GetIdleTimeout().AsDuration() != time.Hour {
			t.Fatalf("changed: %v, %v", got, err)
		}
		_, err := l.Touch(t.Context(), other.GetId())
		must.Succeed(t, err)
	}
	if !l.Serving() {
		t.Error("it does not serve any more")
	}
}

// A sandbox that has ended is on no Pod any more. If it is, it came back with an older etcd, even where no version shows it.
func TestI1WhatHasEndedAndIsThereAgainIsNoticed(t *testing.T) {
	w, l := claimtest.Start(t, 1)
	s := l.MustCreate()
	pod := w.Pod(s.GetPod())
	l.MustRelease(s.GetId())
	l.Until(s.GetId(), "the record", claimtest.Ended)
	back := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: w.Namespace, Name: "back", Labels: pod.Labels, Annotations: pod.Annotations, OwnerReferences: pod.OwnerReferences,
	}, Spec: *pod.Spec.DeepCopy()}
	w.Must(w.Live.Create(t.Context(), back))
	awaitSetBack(l)
	l.EndsWith(inventory.ErrSetBack)
}

// awaitSetBack waits until this worker has found that etcd was restored from a backup.
func awaitSetBack(l *claimtest.Worker) {
	l.W.T.Helper()
	l.W.Eventually("the restore to be found out", func() error {
		select {
		case <-l.SetBack():
			return nil
		default:
			return errors.New("it is not")
		}
	})
}
