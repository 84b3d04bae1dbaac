// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/structpb"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/worker/internal/claim"
	"navix.sh/atoll/worker/internal/claim/claimtest"
	"navix.sh/atoll/worker/internal/disposition"
	"navix.sh/atoll/worker/internal/sandbox"
)

// I2: a client that falls back to the local API with a key that it gave to the hub gets the hub's sandbox: while it is claimed,
// running, and ended.
func TestI2ALocalClaimReturnsTheHubsSandbox(t *testing.T) {
	w, l := claimtest.Start(t, 1)
	local := func(c *claim.Claim) {
		claimtest.Keyed("k", 1)(c)
		c.Local, c.KeyHash = true, sandbox.LocalKeyHash(c.Request.GetTeam(), w.Namespace, "k", "east")
	}
	other := l.MustCreate()
	var calls []<-chan claimtest.Result
	for _, change := range []func(*claim.Claim){claimtest.Keyed("k", 1), local} {
		calls = append(calls, l.Begin(t.Context(), change))
		w.Eventually("the claim to be pending", func() error {
			_, err := l.LookupLatest(t.Context(), w.KeyHash("k"))
			return err
		})
	}
	l.MustRelease(other.GetId())
	hubs, locals := <-calls[0], <-calls[1]
	w.Must(errors.Join(hubs.Err, locals.Err))
	id := hubs.Got.GetId()
	if again := locals.Got.GetId(); id != again {
		t.Fatalf("one key was given %s and %s", id, again)
	}
	if got := l.MustCreate(local); got.GetId() != id {
		t.Errorf("running: the local API returns %s, the hub %s", got.GetId(), id)
	}
	hooks, err := structpb.NewStruct(map[string]any{"exec": map[string]any{"command": []any{"true"}}})
	w.Must(err)
	for name, other := range map[string]func(*claim.Claim){
		"image":          claimtest.Image("test.local/other:1"),
		"postStartHooks": func(c *claim.Claim) { c.Request.PostStartHooks = []*structpb.Struct{hooks} },
	} {
		_, err := l.TryCreate(local, other)
		if p := problem.FromError(err); p == nil || p.Reason != problem.ClaimKeyConflict || !strings.Contains(p.Message,
			"another value of "+name) {
			t.Errorf("other %s: %v, want a conflict", name, err)
		}
	}
	l.MustRelease(id)
	w.Eventually("the record", func() error {
		got, err := l.TryCreate(local)
		return wait.If(err == nil && got.GetId() == id && got.GetPhase() == sandboxv1.Phase_ENDED, fmt.Sprintf("%v, %v", got, err))
	})
}

// I2: every call with a key gets its one sandbox, at the same time, after a restart, and after it has ended.
func TestI2OneKeyOneSandbox(t *testing.T) {
	w, l := claimtest.Start(t, 6)
	ids := make([]string, 8)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			got, err := l.TryCreate(claimtest.Keyed("k", 1), claimtest.Image(claimtest.TenantImage), func(c *claim.Claim) { c.Proof = "proof" })
			if err != nil {
				t.Error(err)
			}
			ids[i] = got.GetId()
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Errorf("I2: one key was answered %s and %s", ids[0], id)
		}
	}
	l.AwaitIdle(5)
	l.Stop()
	l.Blind()

	next := w.Lead(2)
	if got := next.MustCreate(claimtest.Keyed("k", 1), claimtest.Image(claimtest.TenantImage)); got.GetId() != ids[0] {
		t.Errorf("I2: after a restart the key was answered %s, before %s", got.GetId(), ids[0])
	}
	if got, err := next.Lookup(t.Context(), w.KeyHash("k"), 1); err != nil || got.GetId() != ids[0] {
		t.Errorf("lookup: %v, %v", got, err)
	}
	if got := holderOf(w, next.Keys()); got.GetSandboxId() != ids[0] || got.GetAttempt() != 1 || got.GetPodUid() == "" ||
		got.GetProof() != "proof" {
		t.Errorf("the key's holder: %v", got)
	}
	_, err := next.TryCreate(claimtest.Keyed("k", 1), claimtest.Image("test.local/other:1"))
	if p := problem.FromError(err); p == nil || p.Reason != problem.ClaimKeyConflict || !strings.Contains(p.Message,
		"another value of image before") {
		t.Errorf("other parameters: %v, want a conflict", err)
	}

	next.MustRelease(ids[0])
	w.Eventually("the record for the hub", func() error {
		_, records := next.TakeEnded(10)
		return wait.If(len(records) == 1 && records[0].GetSandbox().GetId() == ids[0] && records[0].GetProof() == "proof", records)
	})
	if got := holderOf(w, next.AllKeys()); !got.GetEnded() || got.GetProof() != "proof" {
		t.Errorf("for a hub that recovers, the key's holder: %v", got)
	}
	w.Eventually("the record under the key", func() error {
		got, err := next.TryCreate(claimtest.Keyed("k", 1), claimtest.Image(claimtest.TenantImage))
		if err != nil || got.GetId() != ids[0] {
			t.Fatalf("I2: an ended sandbox's key was answered %v, %v", got, err)
		}
		return wait.If(got.GetPhase() == sandboxv1.Phase_ENDED, "it is "+got.GetPhase().String())
	})
	batch, _ := next.TakeEnded(10)
	next.AckEnded(batch)
	if got := holderOf(w, next.AllKeys()); got.GetSandboxId() != ids[0] || !got.GetEnded() {
		t.Errorf("I2: for a hub that lost its memory: %v", got)
	}
	if got := holderOf(w, next.Keys()); got != nil {
		t.Errorf("for a hub that did not: %v", got)
	}
	if _, left := next.TakeEnded(10); len(left) != 0 {
		t.Errorf("acknowledged and still there: %v", left)
	}
}

// holderOf returns the holder of the key "k" among keys.
func holderOf(w *claimtest.World, keys []*federationv1.KeyHolder) *federationv1.KeyHolder {
	for _, holder := range keys {
		if holder.GetKeyHash() == w.KeyHash("k") {
			return holder
		}
	}
	return nil
}

// afterWrites calls do between a write at the API server and its response.
func afterWrites(do func()) func(*claimtest.Options, *rest.Config) {
	return claimtest.Via(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		resp, err := next.RoundTrip(r)
		if r.Method == http.MethodPatch {
			do()
		}
		return resp, err
	})
}

// I2: a worker that loses its lease while it writes does not return the sandbox, and the next leader returns that very Pod.
func TestI2NoResponseWithoutTheLease(t *testing.T) {
	w := claimtest.NewWorld(t)
	var l *claimtest.Worker
	l = w.Start(3, afterWrites(func() { l.Lease.Lost.Store(true) }))
	got, err := l.TryCreate(claimtest.Keyed("k", 1))
	if err == nil {
		t.Fatalf("I2: answered %s without the lease", got.GetId())
	}
	if d := disposition.Of(err); d != federationv1.Disposition_UNCLEAR {
		t.Errorf("disposition %s, want UNCLEAR", d)
	}
	l.Stop()
	l.Blind()
	next := w.Lead(2)
	after := next.MustCreate(claimtest.Keyed("k", 1))
	var carriers []string
	for _, pod := range w.Pods() {
		if s := sandbox.Read(&pod); s.ID != "" {
			carriers = append(carriers, s.ID)
		}
	}
	if len(carriers) != 1 || carriers[0] != after.GetId() {
		t.Errorf("I2: answered %s, Pods carry %v", after.GetId(), carriers)
	}
}

// TestI2ALeaseThatIsRenewedLateCostsNoClaim: it lapses as the Pod is written, and no other process has led when it is held again.
func TestI2ALeaseThatIsRenewedLateCostsNoClaim(t *testing.T) {
	w := claimtest.NewWorld(t)
	var l *claimtest.Worker
	lapse := sync.OnceFunc(func() {
		l.Lease.Lost.Store(true)
		time.AfterFunc(200*time.Millisecond, func() { l.Lease.Lost.Store(false) })
	})
	l = w.Start(1, afterWrites(lapse))
	if got := l.MustCreate(); got.GetPhase() != sandboxv1.Phase_RUNNING {
		t.Errorf("returned %v", got)
	}
}

// I2: the next leader knows what the last leader returned a moment ago, however late its informers are.
func TestI2ANewLeaderListsBeforeItServes(t *testing.T) {
	w := claimtest.NewWorld(t)
	w.MakePool(3)
	next := w.Follow()
	next.AwaitIdle(3)
	next.Blind()
	l := w.Lead(1)
	l.AwaitIdle(3)
	before := l.MustCreate(claimtest.Keyed("k", 1))
	l.Stop()
	next.TakeOver(2)
	if got := next.MustCreate(claimtest.Keyed("k", 1)); got.GetId() != before.GetId() {
		t.Errorf("I2: the key was answered %s, and %s by the next leader", before.GetId(), got.GetId())
	}
}

// I2: of two Pods with one key the one of the higher incarnation stays, and the other ends as Canceled.
func TestI2OfTwoPodsTheHigherIncarnationStays(t *testing.T) {
	w := claimtest.NewWorld(t)
	w.MakePool(2)
	l := w.Lead(3)
	l.AwaitIdle(2)
	pods := w.Pods()
	for i, incarnation := range []uint64{2, 1} {
		writeClaim(w, &pods[i], i, 1, incarnation)
	}
	canceled := func(got *sandboxv1.Sandbox) bool { return got.GetStopReason() == "Canceled" }
	l.Until("01-"+claimtest.ClusterID, "the lower incarnation to end", canceled)
	if got := l.MustCreate(claimtest.Keyed("k", 1)); got.GetId() != "00-"+claimtest.ClusterID || got.GetPhase() != sandboxv1.Phase_RUNNING {
		t.Errorf("I2: the key is answered %v, want the higher incarnation's", got)
	}
}

// I2: the write of an earlier leader that takes effect after the sandbox of its key has ended makes a sandbox that no caller gets. It ends,
// and the key goes on to return the one that has ended.
func TestI2AWriteThatComesAfterTheEndOfItsKeyEnds(t *testing.T) {
	for _, attempt := range []int32{1, 2} {
		t.Run(fmt.Sprint("attempt ", attempt), func(t *testing.T) {
			w := claimtest.NewWorld(t)
			w.MakePool(2)
			l := w.Lead(3)
			l.AwaitIdle(2)
			returned := l.MustCreate(claimtest.Keyed("k", 2))
			pods := w.Pods()
			other := slices.IndexFunc(pods, func(p corev1.Pod) bool { return sandbox.Read(&p).ID == "" })
			l.MustRelease(returned.GetId())
			l.AwaitSandboxes(0)

			late := writeClaim(w, &pods[other], 0, attempt, 2)
			l.Until(late, "it to end", func(got *sandboxv1.Sandbox) bool { return got.GetStopReason() == "Canceled" })
			if got := l.MustCreate(claimtest.Keyed("k", 2)); got.GetId() != returned.GetId() || got.GetPhase() != sandboxv1.Phase_ENDED {
				t.Errorf("I2: the key is answered %v, want the sandbox that has ended, %s", got, returned.GetId())
			}
		})
	}
}

// I2: a late write ends where a claim under way has its key; because that would replace it in the eyes of a caller that had got it.
func TestI2ALateWriteMakesWayForTheClaimThatWaits(t *testing.T) {
	w := claimtest.NewWorld(t)
	w.MakePool(1)
	w.MakePool(1, func(p *v1alpha1.SandboxPool) { p.Name = "other" })
	l := w.Lead(3)
	l.AwaitIdle(1)
	taken := l.MustCreate()
	waiting := l.Begin(t.Context(), claimtest.Keyed("k", 1))
	l.AwaitWaiting(1)

	var other *corev1.Pod
	w.Eventually("an idle Pod of the other pool", func() error {
		for _, p := range w.Pods() {
			if strings.HasPrefix(p.Name, "other") && p.Labels[v1alpha1.SandboxPhaseLabelKey] == string(sandbox.Idle) {
				other = &p
			}
		}
		return wait.If(other != nil, "none")
	})
	late := writeClaim(w, other, 0, 1, 2)
	l.Until(late, "it to end", claimtest.Ended)
	l.MustRelease(taken.GetId())
	waited := <-waiting
	w.Must(waited.Err)
	got := waited.Got.GetId()
	if again := l.MustCreate(claimtest.Keyed("k", 1)); got == late || again.GetId() != got {
		t.Errorf("I2: the claim that waited got %s, the next one %s, the late write made %s", got, again.GetId(), late)
	}
}

// I2: what appears while the lease has lapsed is looked at once the lease is held again; because no event may come after that.
func TestI2WhatAppearedWithoutTheLeaseIsLookedAtAgain(t *testing.T) {
	w, l := claimtest.Start(t, 2)
	_, err := l.Cancel(t.Context(), w.KeyHash("k"), 1)
	must.Succeed(t, err)
	l.Lease.Lost.Store(true)
	late := writeClaim(w, &w.Pods()[0], 0, 1, 1)
	l.AwaitIdle(1) // it has seen it
	l.Lease.Lost.Store(false)
	l.Until(late, "it to end", func(got *sandboxv1.Sandbox) bool { return got.GetStopReason() == "Canceled" })
}

// writeClaim writes a claim with the key k past the service, as another leader would, and returns the id of its sandbox.
func writeClaim(w *claimtest.World, pod *corev1.Pod, number int, attempt int32, incarnation uint64) (id string) {
	w.T.Helper()
	id = fmt.Sprintf("0%d-%s", number, claimtest.ClusterID)
	patch, _, err := sandbox.ClaimPatch(pod, &sandbox.Grant{
		Claim: sandbox.Claim{
			ID: id, Key: "k", KeyHash: w.KeyHash("k"), Attempt: attempt, Incarnation: incarnation, Team: "red", User: "ann",
		},
		Image: claimtest.PoolImage, Now: time.Now(),
	})
	w.Must(err)
	w.Must(w.Live.Patch(w.T.Context(), pod.DeepCopy(), client.RawPatch(types.JSONPatchType, patch)))
	return id
}

func TestCanceledKey(t *testing.T) {
	w, l := claimtest.Start(t, 1)

	got := l.MustCreate(claimtest.Keyed("live", 1))
	_, err := l.Cancel(t.Context(), w.KeyHash("live"), 1)
	must.Succeed(t, err)
	l.Until(got.GetId(), "the canceled sandbox to end", claimtest.Ended)

	_, err = l.Cancel(t.Context(), w.KeyHash("early"), 1)
	must.Succeed(t, err)
	if got, err := l.TryCreate(claimtest.Keyed("early", 1)); disposition.Of(err) != federationv1.Disposition_REFUSED {
		t.Errorf("a claim that comes after its cancel: %v, %v", got, err)
	}
	l.AwaitIdle(1)
	l.MustCreate(claimtest.Keyed("early", 2))

	waiting := l.Begin(t.Context(), claimtest.Keyed("waits", 1))
	l.AwaitWaiting(1)
	_, err = l.Cancel(t.Context(), w.KeyHash("waits"), 1)
	must.Succeed(t, err)
	if got := <-waiting; disposition.Of(got.Err) != federationv1.Disposition_REFUSED {
		t.Errorf("a claim that was canceled while it waited: %v", got.Err)
	}
	l.AwaitWaiting(0)
}

// A key whose claim waits tells its place in the queue, and why and how long it has waited.
func TestALookupTellsWhereAClaimWaits(t *testing.T) {
	for want, pods := range map[string]int32{"the pool has no Pods": 0, "no Pod of the pool is idle": 1} {
		t.Run(want, func(t *testing.T) {
			w, l := claimtest.Start(t, pods)
			for range pods {
				l.MustCreate()
			}
			began := time.Now()
			keys := []string{"first", "second"}
			var left []<-chan claimtest.Result
			for i, key := range keys {
				left = append(left, l.Begin(t.Context(), claimtest.Keyed(key, 1)))
				l.AwaitWaiting(int32(i + 1))
			}
			for i, key := range keys {
				got, err := l.Lookup(t.Context(), w.KeyHash(key), 1)
				must.Succeed(t, err)
				at := got.GetWaiting()
				if got.GetPhase() != sandboxv1.Phase_PENDING || at.GetPosition() != int32(i+1) || at.GetClaims() != 2 || at.GetReason() != want {
					t.Errorf("%s: %v, want position %d of 2, because %s", key, got, i+1, want)
				}
				if d := at.GetWaited().AsDuration(); d <= 0 || d > time.Since(began) {
					t.Errorf("%s: waited for %s, and began %s ago", key, d, time.Since(began))
				}
			}
			for i, key := range keys {
				_, err := l.Cancel(t.Context(), w.KeyHash(key), 1)
				must.Succeed(t, err)
				if got := <-left[i]; disposition.Of(got.Err) != federationv1.Disposition_REFUSED {
					t.Errorf("a claim that was canceled while it waited: %v", got.Err)
				}
			}
		})
	}
}

func TestRefusalIsRemembered(t *testing.T) {
	w, l := claimtest.Start(t, 0)
	refused := func(change ...func(*claim.Claim)) {
		t.Helper()
		if _, err := l.TryCreate(append(change, claimtest.NoQueue)...); disposition.Of(err) != federationv1.Disposition_REFUSED {
			t.Errorf("got %v, want a refusal", err)
		}
	}
	refused(claimtest.Keyed("k", 1))
	refused(claimtest.Keyed("own", 1), func(c *claim.Claim) { c.Local = true })
	w.Scale(3)
	l.AwaitIdle(3)
	refused(claimtest.Keyed("k", 1)) // the hub may have taken it to another cluster
	l.MustCreate(claimtest.Keyed("k", 2))
	refused(claimtest.Keyed("k", 1))
	l.MustCreate(claimtest.Keyed("own", 1), func(c *claim.Claim) { c.Local = true })
}

// A caller with a key may leave and come back while the claim waits.
func TestAKeyedClaimOutlivesItsCaller(t *testing.T) {
	w, l := claimtest.Start(t, 0)
	ctx, cancel := context.WithCancel(t.Context())
	left := l.Begin(ctx, claimtest.Keyed("k", 1), func(c *claim.Claim) { c.Proof = "proof" })
	l.AwaitWaiting(1)
	cancel()
	if got := <-left; disposition.Of(got.Err) != federationv1.Disposition_UNCLEAR {
		t.Errorf("the caller who left got %v", got.Err)
	}
	if got := holderOf(w, l.Keys()); got.GetAttempt() != 1 || got.GetProof() != "proof" || got.GetPodUid() != "" || got.GetSandboxId() == "" {
		t.Errorf("I2: a claim under way holds its key: %v", got)
	}
	back := l.Begin(t.Context(), claimtest.Keyed("k", 1))
	w.Scale(2)
	got := <-back
	w.Must(got.Err)
	l.AwaitIdle(1)
	if again := l.MustCreate(claimtest.Keyed("k", 1)); again.GetId() != got.Got.GetId() {
		t.Errorf("I2: %s and %s", again.GetId(), got.Got.GetId())
	}
}

// detour keeps writes from the API server, until the test lets one through.
type detour struct {
	mu     sync.Mutex
	closed bool
	kept   []func() (*http.Response, error)
}

func (d *detour) trip(r *http.Request, next http.RoundTripper) (*http.Response, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed || r.Method != http.MethodPatch {
		return next.RoundTrip(r)
	}
	late := r.Clone(context.Background())
	body, err := r.GetBody()
	if err != nil {
		return nil, err
	}
	late.Body = body
	d.kept = append(d.kept, func() (*http.Response, error) { return next.RoundTrip(late) })
	return nil, errors.New("connection lost")
}

func (d *detour) set(closed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = closed
}

// I2: a write with an unclear outcome that happens after another Pod was returned for its key ends without having been returned.
func TestI2AWriteThatComesLateEndsUnanswered(t *testing.T) {
	w := claimtest.NewWorld(t)
	way := &detour{}
	l := w.Start(3, claimtest.Via(way.trip))
	way.set(true)
	_, err := l.TryCreate(claimtest.Keyed("k", 1))
	if d := disposition.Of(err); d != federationv1.Disposition_UNCLEAR {
		t.Fatalf("a write without a response: %v (%s)", err, d)
	}
	way.set(false)
	got := l.MustCreate(claimtest.Keyed("k", 1))

	resp, err := way.kept[0]()
	w.Must(err)
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("the late write answered %s: this test needs it to happen", resp.Status)
	}
	w.Eventually("the late sandbox to end", func() error {
		list, err := l.List(t.Context(), &sandboxv1.ListSandboxesRequest{Namespace: w.Namespace})
		if err != nil || len(list.GetSandboxes()) != 1 {
			return fmt.Errorf("%v, %w", list.GetSandboxes(), err)
		}
		if list.GetSandboxes()[0].GetId() != got.GetId() {
			t.Fatalf("I2: the answered sandbox ended, the late one stays: %v", list)
		}
		if again := l.MustCreate(claimtest.Keyed("k", 1)); again.GetId() != got.GetId() {
			t.Fatalf("I2: the key was answered %s, now %s", got.GetId(), again.GetId())
		}
		return nil
	})
}

// I2: a write of an earlier leader, which takes the Pod that the key's next claim was about to get, ends when that claim is refused.
func TestI2AWriteThatComesLateEndsWithTheRefusal(t *testing.T) {
	w := claimtest.NewWorld(t)
	way := &detour{}
	l := w.Start(1, claimtest.Via(way.trip))
	way.set(true)
	if _, err := l.TryCreate(claimtest.Keyed("k", 1)); disposition.Of(err) != federationv1.Disposition_UNCLEAR {
		t.Fatalf("a write without a response: %v", err)
	}
	l.Stop()

	arrive := sync.OnceFunc(func() {
		resp, err := way.kept[0]()
		w.Must(err)
		w.Must(errors.Join(wait.If(resp.StatusCode == http.StatusOK, resp.Status), resp.Body.Close()))
	})
	next := w.Lead(2, claimtest.Via(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if r.Method == http.MethodPatch {
			arrive()
		}
		return next.RoundTrip(r)
	}))
	next.AwaitIdle(1)
	if got, err := next.TryCreate(claimtest.Keyed("k", 1), claimtest.NoQueue); disposition.Of(err) != federationv1.Disposition_REFUSED {
		t.Fatalf("a claim that lost the only Pod: %v, %v", got, err)
	}
	next.Until(sandbox.Read(&w.Pods()[0]).ID, "the late sandbox to end", claimtest.Ended)
}
