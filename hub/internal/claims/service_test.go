// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/protobuf/types/known/durationpb"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/fleet"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/router"
)

func TestClaimsWithoutAKeyWriteNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5})
		s := f.create(request(""))
		if s.GetClusterId() != "east" || s.GetDecision().GetReason() != "OnlyCandidate" {
			t.Errorf("answered %v", s)
		}
		if stored := f.stored(); stored != "" {
			t.Errorf("written: %s", stored)
		}
	})
}

func TestWithoutAKeyAnUnclearOutcomeMovesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5, "west": 5})
		f.workers["east"].onClaim = loseAnswer
		if got := f.create(request("", prefer("east"))); got.GetClusterId() != "west" {
			t.Fatalf("answered by %s", got.GetClusterId())
		}
	})
}

func TestAGrantWhoseCallerHasGoneIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5})
		east := f.workers["east"]
		gate := make(chan struct{})
		east.onClaim = func(_ context.Context, _ *federationv1.ClaimCall, carryOut func() *federationv1.Answer) (*federationv1.Answer, error) {
			<-gate
			return carryOut(), nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := f.hub.Create(ctx, request(""))
			done <- err
		}()
		synctest.Wait()
		cancel()
		close(gate)
		if err := <-done; err == nil {
			t.Error("a caller that has gone was answered")
		}
		synctest.Wait()
		if east.releases() != 1 || east.count() != 0 {
			t.Errorf("%d released, %d left", east.releases(), east.count())
		}
	})
}

// A worker hears at once that a caller has gone, not when the claim's time is over.
func TestACallerThatLeavesTakesItsClaimAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5, "west": 5})
		asked := 0
		for _, w := range f.workers {
			w.onClaim = func(ctx context.Context, c *federationv1.ClaimCall, carryOut func() *federationv1.Answer) (*federationv1.Answer, error) {
				asked++
				return hangs(ctx, c, carryOut)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		began := time.Now()
		if _, err := f.hub.Create(ctx, request("")); !errors.Is(err, context.Canceled) {
			t.Errorf("answered %v", err)
		}
		if took := time.Since(began); took != time.Second || asked != 1 {
			t.Errorf("%d were asked, for %s", asked, took)
		}
		if n := testutil.ToFloat64(f.hub.metrics.dispatches.WithLabelValues(string(left))); n != 1 {
			t.Errorf("%g dispatches are told as left", n)
		}
		if !f.hub.metrics.claims.DeleteLabelValues("CANCELED", "false") {
			t.Error("the claim is not told as canceled")
		}
	})
}

// racing is a fleet of which somebody else reserves a Pod each time that this service has looked and not reserved yet.
type racing struct {
	Fleet
	times int
}

func (r *racing) Reserve(view *router.View, index int) fleet.Reservation {
	if r.times > 0 {
		r.times--
		_ = r.Fleet.Reserve(view, index)
	}
	return r.Fleet.Reserve(view, index)
}

// Two claims that choose the last idle Pod of a cluster at one time do not both go there, while there are others elsewhere.
func TestClaimsThatChooseAtOneTime(t *testing.T) {
	for name, c := range map[string]struct {
		east, competing int
		want            string
	}{
		"another Pod is left":      {2, 1, "east"},
		"none is left":             {1, 1, "west"},
		"none is left all the way": {1, 100, "west"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFederation(t, map[string]int32{"east": int32(c.east), "west": 5})
				f.hub.fleet = &racing{Fleet: f.fleet, times: c.competing}
				if got := f.create(request("", prefer("east"))).GetClusterId(); got != c.want {
					t.Errorf("it went to %s, want %s", got, c.want)
				}
			})
		})
	}
}

// Where a claim names no time, the members' own defaults hold, and the most patient one's bounds it.
func TestMembersSayHowLongClaimsMayTake(t *testing.T) {
	for name, c := range map[string]struct {
		east, west time.Duration // 0: it says nothing
		named      time.Duration
		want       time.Duration
	}{
		"nobody says":   {want: DefaultStartupTimeout},
		"longer":        {east: 5 * time.Minute, west: time.Minute, want: 5 * time.Minute},
		"shorter":       {east: 30 * time.Second, west: 20 * time.Second, want: 30 * time.Second},
		"one is silent": {east: 30 * time.Second, want: DefaultStartupTimeout},
		"never":         {east: math.MaxInt64, want: 24 * time.Hour},
		"the claim's":   {east: 5 * time.Minute, west: time.Minute, named: 10 * time.Second, want: 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFederation(t, nil)
				f.startup = map[string]*durationpb.Duration{}
				for id, d := range map[string]time.Duration{"east": c.east, "west": c.west} {
					if d > 0 {
						f.startup[id] = durationpb.New(d)
					}
					f.join(id, 5)
					f.workers[id].onClaim = hangs
				}
				for _, key := range []string{"", "k"} {
					began := time.Now()
					req := request(key)
					req.StartupTimeout = nil
					if c.named > 0 {
						req.StartupTimeout = durationpb.New(c.named)
					}
					if _, err := f.hub.Create(t.Context(), req); err == nil {
						t.Fatal("nobody answers, and it was granted")
					}
					if took := time.Since(began); took < c.want || took > c.want+grace {
						t.Errorf("key %q: given up after %s, want %s", key, took, c.want)
					}
				}
			})
		})
	}
}

func TestTheStartupTimeoutBoundsAClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5})
		f.workers["east"].onClaim = hangs
		for key, want := range map[string]problem.Reason{"": problem.Deadline, "k": problem.OutcomeUnknown} {
			began := time.Now()
			_, err := f.hub.Create(t.Context(), request(key))
			wantReason(t, err, want)
			if took := time.Since(began); took < 30*time.Second || took > 30*time.Second+grace {
				t.Errorf("key %q: answered after %s", key, took)
			}
		}
	})
}

func TestNoCandidate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 0})
		for name, tc := range map[string]struct {
			change func(*sandboxv1.CreateSandboxRequest)
			want   problem.Reason
			says   string
		}{
			"unknown Env": {func(r *sandboxv1.CreateSandboxRequest) { r.Env = "dmeo" }, problem.NotFound, "there are: demo"},
			"empty namespace": {func(r *sandboxv1.CreateSandboxRequest) { r.Namespace = "other" }, problem.NotFound,
				"that namespace has none"},
			"no idle Pod and no queue": {func(r *sandboxv1.CreateSandboxRequest) { r.NoQueue = true }, problem.NoCapacity, "NoIdlePod"},
			"no such cluster": {func(r *sandboxv1.CreateSandboxRequest) {
				r.Clusters, r.RequireClusters = []string{"mars"}, true
			}, problem.NoCapacity, "ClusterNotRequested"},
		} {
			for _, key := range []string{"", "k"} {
				_, err := f.hub.Create(t.Context(), request(key, tc.change))
				if err == nil || reasonOf(err) != tc.want || !strings.Contains(err.Error(), tc.says) {
					t.Errorf("%s, key %q: %v, want %s that says %q", name, key, err, tc.want, tc.says)
				}
				if tc.want == problem.NoCapacity && problem.FromError(err).RetryAfter == 0 {
					t.Errorf("%s: no advice when to come again", name)
				}
			}
		}
		if stored := f.stored(); stored != "" {
			t.Errorf("written for claims that went nowhere: %s", stored)
		}
	})
}

func TestAnswersOfTheWrongClusterAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5})
		f.workers["east"].onClaim = func(_ context.Context, _ *federationv1.ClaimCall, carryOut func() *federationv1.Answer) (*federationv1.Answer, error) {
			a := carryOut()
			a.GetSandbox().Id = "01hzzzzzzzzzzzzzzzzzzz0001-west"
			return a, nil
		}
		_, err := f.hub.Create(t.Context(), request(""))
		wantReason(t, err, problem.Internal)
	})
}

func TestGetAndRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5})
		mine := WithPrincipal(t.Context(), Principal{Team: "t", User: "u", Namespaces: []string{"default"}})
		s, err := f.hub.Create(mine, request(""))
		if err != nil || s.GetTeam() != "t" || s.GetUser() != "u" {
			t.Fatalf("%v %v: the caller's team and user are its sandbox's", s, err)
		}
		if got, err := f.hub.Get(mine, s.GetId()); err != nil || got.GetId() != s.GetId() {
			t.Fatalf("%v %v", got, err)
		}
		for name, p := range map[string]Principal{
			"team": {Team: "s"}, "user": {Team: "t", User: "v"}, "namespace": {Namespaces: []string{"prod"}},
		} {
			ctx := WithPrincipal(t.Context(), p)
			_, err := f.hub.Get(ctx, s.GetId())
			wantReason(t, err, problem.NotFound)
			_, err = f.hub.Release(ctx, s.GetId())
			wantReason(t, err, problem.NotFound)
			_, err = f.hub.Explain(ctx, &sandboxv1.ExplainEnvRequest{Namespace: "prod", Name: "demo", SandboxId: s.GetId()})
			if err == nil {
				t.Errorf("another %s reads the decision", name)
			}
		}
		if f.workers["east"].count() != 1 {
			t.Fatal("released by somebody else")
		}
		for id, want := range map[string]problem.Reason{
			"nonsense": problem.Invalid, "01hzzzzzzzzzzzzzzzzzzz0001-mars": problem.NotFound, "01hzzzzzzzzzzzzzzzzzzz0007-east": problem.NotFound,
		} {
			_, err := f.hub.Get(t.Context(), id)
			wantReason(t, err, want)
		}
		if got, err := f.hub.Release(mine, s.GetId()); err != nil || got.GetPhase() != sandboxv1.Phase_STOPPING {
			t.Fatalf("%v %v", got, err)
		}
		f.workers["east"].setConnected(false)
		_, err = f.hub.Get(mine, s.GetId())
		wantReason(t, err, problem.Unavailable)
	})
}

func TestForeignTeamIsForbidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5})
		ctx := WithPrincipal(t.Context(), Principal{Team: "t", User: "u", Namespaces: []string{"default"}})
		for field, change := range map[string]func(*sandboxv1.CreateSandboxRequest){
			"team":      func(r *sandboxv1.CreateSandboxRequest) { r.Team = "s" },
			"user":      func(r *sandboxv1.CreateSandboxRequest) { r.User = "v" },
			"namespace": func(r *sandboxv1.CreateSandboxRequest) { r.Namespace = "prod" },
		} {
			_, err := f.hub.Create(ctx, request("", change))
			wantReason(t, err, problem.Forbidden)
			if e := problem.FromError(err); len(e.Fields) != 1 || e.Fields[0].Field != field {
				t.Errorf("%s: the error names %v", field, e.Fields)
			}
		}
	})
}

func TestListMergesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5, "west": 5, "gone": 5})
		var want []string
		for i := 1; i <= 4; i++ {
			for _, c := range []string{"east", "west"} {
				f.create(request("", prefer(c), func(r *sandboxv1.CreateSandboxRequest) { r.Team = fmt.Sprint("t", i%2) }))
				want = append(want, fmt.Sprintf("01hzzzzzzzzzzzzzzzzzzz%04d-%s", i, c))
			}
		}
		f.workers["gone"].onCall = func(ctx context.Context, _ *federationv1.Dispatch) (*federationv1.Answer, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		pages := func(ctx context.Context, size int32) []string {
			var ids []string
			for token := ""; ; {
				began := time.Now()
				page, err := f.hub.List(ctx, &sandboxv1.ListSandboxesRequest{PageSize: size, PageToken: token})
				if err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took > listTimeout {
					t.Errorf("a silent cluster delays the list by %s", took)
				}
				if diff := cmp.Diff([]string{"gone"}, page.GetUnreachableClusters()); diff != "" {
					t.Error(diff)
				}
				for _, s := range page.GetSandboxes() {
					ids = append(ids, s.GetId())
				}
				if token = page.GetNextPageToken(); token == "" {
					return ids
				}
			}
		}
		for _, size := range []int32{0, 1, 3, 8} {
			if diff := cmp.Diff(want, pages(t.Context(), size)); diff != "" {
				t.Errorf("pages of %d (-want +got):\n%s", size, diff)
			}
		}
		if got := pages(WithPrincipal(t.Context(), Principal{Team: "t1"}), 3); len(got) != 4 {
			t.Errorf("team t1 sees %v", got)
		}
		if got := pages(WithPrincipal(t.Context(), Principal{Namespaces: []string{"prod", "dev"}}), 3); len(got) != 0 {
			t.Errorf("another namespace's caller sees %v", got)
		}
		one, err := f.hub.List(t.Context(), &sandboxv1.ListSandboxesRequest{ClusterId: "west"})
		if err != nil || len(one.GetSandboxes()) != 4 || len(one.GetUnreachableClusters()) != 0 {
			t.Errorf("of one cluster: %v %v", one, err)
		}
	})
}

func TestExplain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5, "west": 0})
		explain := func(r *sandboxv1.ExplainEnvRequest) *sandboxv1.Decision {
			t.Helper()
			r.Namespace, r.Name = "default", "demo"
			d, err := f.hub.Explain(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		d := explain(&sandboxv1.ExplainEnvRequest{})
		if d.GetClusterId() != "east" || d.GetReason() != "BetterTier" || len(d.GetCandidates()) != 2 || d.GetCandidates()[0].GetRank() != 1 {
			t.Errorf("hypothetical: %v", d)
		}
		plain, keyed := f.create(request("")), f.create(request("k"))
		for name, r := range map[string]*sandboxv1.ExplainEnvRequest{
			"without a key":    {SandboxId: plain.GetId()},
			"with a key":       {SandboxId: keyed.GetId()},
			"by its claim key": {ClaimKey: "k"},
		} {
			if d := explain(r); d.GetClusterId() != "east" || d.GetCandidates()[0].GetOutcome() != "Granted" {
				t.Errorf("%s: %v", name, d)
			}
		}
		f.restart()
		explain(&sandboxv1.ExplainEnvRequest{SandboxId: keyed.GetId()})
		_, err := f.hub.Explain(t.Context(), &sandboxv1.ExplainEnvRequest{Namespace: "default", Name: "demo", SandboxId: plain.GetId()})
		wantReason(t, err, problem.NotFound)
		_, err = f.hub.Explain(t.Context(), &sandboxv1.ExplainEnvRequest{Namespace: "default", Name: "dmeo"})
		wantReason(t, err, problem.NotFound)
	})
}

func TestDecisionsAreBounded(t *testing.T) {
	d := newDecisions()
	for i := range 3 * keptDecisions {
		d.put(fmt.Sprint(i), &sandboxv1.Decision{})
		d.put(fmt.Sprint(i), &sandboxv1.Decision{})
	}
	if len(d.byID) != keptDecisions || d.get("0") != nil || d.get(fmt.Sprint(2*keptDecisions)) == nil {
		t.Errorf("%d decisions kept", len(d.byID))
	}
}
