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

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/protobuf/types/known/durationpb"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/hub/internal/fleet"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/hub/internal/workertest"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/router"
)

func TestClaimsWithoutAKeyWriteNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5})
		s := f.create(workertest.Request(""))
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
		f.Workers["east"].OnClaim = loseAnswer
		if got := f.create(workertest.Request("", workertest.Prefer("east"))); got.GetClusterId() != "west" {
			t.Fatalf("answered by %s", got.GetClusterId())
		}
	})
}

func TestAGrantWhoseCallerHasGoneIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5})
		east := f.Workers["east"]
		gate := make(chan struct{})
		east.OnClaim = after(func() { <-gate })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := f.hub.Create(ctx, workertest.Request(""))
			done <- err
		}()
		synctest.Wait()
		cancel()
		close(gate)
		if err := <-done; err == nil {
			t.Error("a caller that has gone was answered")
		}
		synctest.Wait()
		if east.Releases() != 1 || east.Count() != 0 {
			t.Errorf("%d released, %d left", east.Releases(), east.Count())
		}
	})
}

// A worker learns at once that a caller has left, not when the claim's time is over.
func TestACallerThatLeavesTakesItsClaimAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5, "west": 5})
		asked := 0
		for _, w := range f.Workers {
			w.OnClaim = func(ctx context.Context, c *federationv1.ClaimCall, carryOut func() *federationv1.Answer) (*federationv1.Answer, error) {
				asked++
				return hangs(ctx, c, carryOut)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		began := time.Now()
		if _, err := f.hub.Create(ctx, workertest.Request("")); !errors.Is(err, context.Canceled) {
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

// racing is a fleet in which another claim reserves a Pod each time that this service has looked and not reserved yet.
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

// Two concurrent claims that choose the last idle Pod of a cluster do not both go there, while other clusters have idle Pods.
func TestClaimsThatChooseAtOneTime(t *testing.T) {
	for name, c := range map[string]struct {
		east, competing int
		want            string
	}{
		"another Pod is left":      {2, 1, "east"},
		"none is left":             {1, 1, "west"},
		"none is left all the way": {1, 100, "west"},
	} {
		bubble(t, name, func(t *testing.T) {
			f := newFederation(t, map[string]int32{"east": int32(c.east), "west": 5})
			f.hub.fleet = &racing{Fleet: f.Fleet, times: c.competing}
			if got := f.create(workertest.Request("", workertest.Prefer("east"))).GetClusterId(); got != c.want {
				t.Errorf("it went to %s, want %s", got, c.want)
			}
		})
	}
}

// For a claim without a timeout the members' own defaults apply, and the longest one bounds it.
func TestMembersSayHowLongClaimsMayTake(t *testing.T) {
	for name, c := range map[string]struct {
		east, west time.Duration // 0: it has none
		named      time.Duration
		want       time.Duration
	}{
		"none is given": {want: DefaultStartupTimeout},
		"longer":        {east: 5 * time.Minute, west: time.Minute, want: 5 * time.Minute},
		"shorter":       {east: 30 * time.Second, west: 20 * time.Second, want: 30 * time.Second},
		"one is silent": {east: 30 * time.Second, want: DefaultStartupTimeout},
		"never":         {east: math.MaxInt64, want: 24 * time.Hour},
		"the claim's":   {east: 5 * time.Minute, west: time.Minute, named: 10 * time.Second, want: 10 * time.Second},
	} {
		bubble(t, name, func(t *testing.T) {
			f := newFederation(t, nil)
			f.Startup = map[string]*durationpb.Duration{}
			for id, d := range map[string]time.Duration{"east": c.east, "west": c.west} {
				if d > 0 {
					f.Startup[id] = durationpb.New(d)
				}
				f.Join(id, 5)
				f.Workers[id].OnClaim = hangs
			}
			for _, key := range []string{"", "k"} {
				began := time.Now()
				req := workertest.Request(key)
				req.StartupTimeout = nil
				if c.named > 0 {
					req.StartupTimeout = durationpb.New(c.named)
				}
				if _, err := f.hub.Create(t.Context(), req); err == nil {
					t.Fatal("no worker responds, and it was granted")
				}
				if took := time.Since(began); took < c.want || took > c.want+grace {
					t.Errorf("key %q: given up after %s, want %s", key, took, c.want)
				}
			}
		})
	}
}

func TestTheStartupTimeoutBoundsAClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5})
		f.Workers["east"].OnClaim = hangs
		for key, want := range map[string]problem.Reason{"": problem.Deadline, "k": problem.OutcomeUnknown} {
			began := time.Now()
			f.wantReason(want, workertest.Request(key))
			if took := time.Since(began); took < 30*time.Second || took > 30*time.Second+grace {
				t.Errorf("key %q: answered after %s", key, took)
			}
		}
	})
}

func TestNoCandidate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 0, "west": 5})
		_, err := f.Fleet.Drain(t.Context(), "west")
		must.Succeed(t, err)
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
			}, problem.Misconfigured, `ClusterNotRequested: clusters: "mars" is not valid, its members have "east", "west"`},
			"its cluster is drained": {func(r *sandboxv1.CreateSandboxRequest) {
				r.Clusters, r.RequireClusters = []string{"west"}, true
			}, problem.NoCapacity, "no eligible member: ClusterDraining"},
			"no such instance type": {func(r *sandboxv1.CreateSandboxRequest) { r.InstanceType = "huge" }, problem.Misconfigured,
				`InstanceTypeMismatch: instanceType: "huge" is not valid, its members have none`},
			"no such scaling group": {func(r *sandboxv1.CreateSandboxRequest) { r.ScalingGroup = "gpu" }, problem.Misconfigured,
				`ScalingGroupMismatch: scalingGroup: "gpu" is not valid, its members have none`},
		} {
			for _, key := range []string{"", "k"} {
				_, err := f.hub.Create(t.Context(), workertest.Request(key, tc.change))
				if err == nil || reasonOf(err) != tc.want || !strings.Contains(err.Error(), tc.says) {
					t.Errorf("%s, key %q: %v, want %s that says %q", name, key, err, tc.want, tc.says)
				}
				if (problem.FromError(err).RetryAfter != 0) != (tc.want == problem.NoCapacity) {
					t.Errorf("%s: advice to come again after %s", name, problem.FromError(err).RetryAfter)
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
		f.Workers["east"].OnClaim = func(_ context.Context, _ *federationv1.ClaimCall,
			carryOut func() *federationv1.Answer) (*federationv1.Answer, error) {
			a := carryOut()
			a.GetSandbox().Id = "01hzzzzzzzzzzzzzzzzzzz0001-west"
			return a, nil
		}
		f.wantReason(problem.Internal, workertest.Request(""))
	})
}

func TestForeignTeamIsForbidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5})
		ctx := principal.With(t.Context(), principal.Principal{Team: "t", User: "u", Namespaces: []string{"default"}})
		for field, change := range map[string]func(*sandboxv1.CreateSandboxRequest){
			"team":      func(r *sandboxv1.CreateSandboxRequest) { r.Team = "s" },
			"user":      func(r *sandboxv1.CreateSandboxRequest) { r.User = "v" },
			"namespace": func(r *sandboxv1.CreateSandboxRequest) { r.Namespace = "prod" },
		} {
			_, err := f.hub.Create(ctx, workertest.Request("", change))
			workertest.WantReason(t, err, problem.Forbidden)
			if e := problem.FromError(err); len(e.Fields) != 1 || e.Fields[0].Field != field {
				t.Errorf("%s: the error names %v", field, e.Fields)
			}
		}
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

// A claim that every cluster forbids is forbidden, and the error says what is allowed; one that another cluster takes is not.
func TestWhatIsForbiddenEverywhere(t *testing.T) {
	for _, key := range []string{"", "k"} {
		synctest.Test(t, func(t *testing.T) {
			f := newFederation(t, map[string]int32{"east": 5, "west": 5})
			asked := map[string]int{}
			forbids := func(cluster string) {
				refuses := refuse(f.Workers[cluster], problem.Forbidden)
				f.Workers[cluster].OnClaim = func(ctx context.Context, c *federationv1.ClaimCall,
					carryOut func() *federationv1.Answer) (*federationv1.Answer, error) {
					asked[cluster]++
					return refuses(ctx, c, carryOut)
				}
			}
			forbids("east")
			forbids("west")
			err := f.wantReason(problem.Forbidden, workertest.Request(key))
			if asked["east"] != 1 || asked["west"] != 1 || problem.FromError(err).RetryAfter != 0 {
				t.Errorf("asked %v, then %v, to be repeated after %s", asked, err, problem.FromError(err).RetryAfter)
			}
			f.Workers["west"].OnClaim = nil
			if got := f.create(workertest.Request(key)); got.GetClusterId() != "west" {
				t.Errorf("granted by %s", got.GetClusterId())
			}
		})
	}
}
