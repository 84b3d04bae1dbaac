// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/hub/internal/workertest"
	"navix.sh/atoll/pkg/hubstate"
)

// forget disconnects a cluster and has an operator forget it.
func (f *federation) forget(cluster string) {
	f.t.Helper()
	f.Workers[cluster].SetConnected(false)
	_, err := f.Fleet.Drain(f.t.Context(), cluster)
	must.Succeed(f.t, err)
	_, err = f.Fleet.Forget(f.t.Context(), cluster)
	must.Succeed(f.t, err)
}

// TestI2ForgettingAClusterIsThePermissionToGoElsewhere for claims that it may hold, including those that wait right now.
func TestI2ForgettingAClusterIsThePermissionToGoElsewhere(t *testing.T) {
	f := newFederation(t, map[string]int32{"east": 3, "west": 3})
	asked := make(chan struct{}, 100)
	f.Workers["east"].OnClaim = func(context.Context, *federationv1.ClaimCall, func() *federationv1.Answer) (*federationv1.Answer, error) {
		asked <- struct{}{}
		return nil, workertest.ErrBroken
	}
	leave, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	if _, err := f.hub.Create(leave, workertest.Request("left", workertest.Prefer("east"))); !errors.Is(err, context.Canceled) {
		t.Fatalf("the first caller: %v", err)
	}
	f.restart() // no flight pursues it any more
	answered := ask(f.hub, workertest.Request("waits", workertest.Prefer("east")))
	<-asked
	f.forget("east")
	if got := <-answered; got.err != nil || got.sandbox.GetClusterId() != "west" || f.record("waits").Attempt != 2 {
		t.Errorf("the claim that waited: %v, attempt %d", got, f.record("waits").Attempt)
	}
	if got := f.create(workertest.Request("left", workertest.Prefer("east"))); got.GetClusterId() != "west" || f.record("left").Attempt != 2 {
		t.Errorf("the claim that was left: %s, attempt %d", got.GetClusterId(), f.record("left").Attempt)
	}
}

// TestI2AnAnsweredKeyOfAForgottenClusterHasEnded: it is never claimed again, whichever cluster has the name by then.
func TestI2AnAnsweredKeyOfAForgottenClusterHasEnded(t *testing.T) {
	f := newFederation(t, map[string]int32{"east": 3, "west": 3})
	k := f.create(workertest.Request("k", workertest.Prefer("east")))
	f.restart() // so that what was returned is durable
	f.forget("east")
	for range 2 {
		got := f.create(workertest.Request("k", workertest.Prefer("east")))
		if got.GetId() != k.GetId() || got.GetPhase() != sandboxv1.Phase_ENDED || got.GetFailureReason() != "ClusterForgotten" {
			t.Errorf("answered %s, %s, %s", got.GetId(), got.GetPhase(), got.GetFailureReason())
		}
	}
	if f.Workers["west"].Count() != 0 {
		t.Error("I2: claimed again")
	}
}

// TestRecordsOfTheFirstSchemaAreHonoured: records of an older build keep their meaning.
func TestRecordsOfTheFirstSchemaAreHonoured(t *testing.T) {
	f := newFederation(t, map[string]int32{"east": 3, "west": 3})
	f.hub.Close()
	dir := t.TempDir()
	packed, err := os.Open(filepath.Join("..", "..", "..", "pkg", "hubstate", "testdata", "claims-v1.db.gz"))
	must.Succeed(t, err)
	zipped, err := gzip.NewReader(packed)
	must.Succeed(t, err)
	data, err := io.ReadAll(zipped)
	must.Succeed(t, errors.Join(err, packed.Close(), f.store.Close(), os.WriteFile(hubstate.Claims.Path(dir), data, 0o600)))
	f.store, err = hubstate.Open(dir, hubstate.Claims)
	must.Succeed(t, err)
	f.reopen()
	held := f.hold("east", "answered", 1)
	if got := f.create(workertest.Request("answered", workertest.Prefer("east"))); got.GetId() != held.GetId() {
		t.Errorf("the answered one: %s, want %s", got.GetId(), held.GetId())
	}
	if got := f.create(workertest.Request("ended", workertest.Prefer("west"))); got.GetPhase() != sandboxv1.Phase_ENDED ||
		got.GetStopReason() != "Completed" {
		t.Errorf("the ended one: %v", got)
	}
	if got := f.create(workertest.Request("pending", workertest.Prefer("west"))); got.GetClusterId() != "west" ||
		f.record("pending").Attempt != 1 {
		t.Errorf("the pending one: %v, attempt %d", got, f.record("pending").Attempt)
	}
}
