// SPDX-License-Identifier: Apache-2.0

package adversary_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/load"
	"navix.sh/atoll/e2e/wait"
)

// The honest claims of a row: the first ones let the load become steady, and are not measured; those between calm and attack may be
// on their way when the attack begins, and count for neither.
const (
	warmFor   = 750 * time.Millisecond
	calmFor   = 1500 * time.Millisecond
	gapFor    = 250 * time.Millisecond
	attackFor = 2500 * time.Millisecond
)

// releasers is how many sandboxes are released at once.
const releasers = 8

func claimsIn(d time.Duration) int { return max(1, int(d.Seconds()**rateFlag)) }

// claimsARow is the number of honest claims in a row.
func claimsARow() int { return claimsIn(warmFor+calmFor) + claimsIn(gapFor) + claimsIn(attackFor) }

// honestPods is the number of Pods of the callers' Env in each cluster: half more than its part of a row's claims.
func honestPods() int { return claimsARow() * 3 / 4 }

// samples are the latencies of a row's honest claims.
type samples struct {
	calm, during []time.Duration
	failed       int
}

// caller is an honest team.
type caller struct {
	team      string
	sandboxes sandboxv1.SandboxesClient
	claims    sandboxv1.ClaimsClient
}

// given records which sandbox each Pod was returned for.
type given struct {
	mu   sync.Mutex
	pods map[string]string
}

func (g *given) take(s *sandboxv1.Sandbox) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if other, taken := g.pods[s.GetPodUid()]; taken && other != s.GetId() {
		return fmt.Errorf("I1: pod %s was returned for %s and for %s", s.GetPodUid(), other, s.GetId())
	}
	g.pods[s.GetPodUid()] = s.GetId()
	return nil
}

// honest makes the claims of a row, and returns when their sandboxes are released. It calls begin when the attack shall begin. Releases
// follow the last claim; because each costs a new Pod, and at this rate new Pods alone would keep two processors busy, so that any
// attack would look like overload.
func (w *world) honest(ctx context.Context, begin func()) (samples, error) {
	calm, gap := claimsIn(warmFor), claimsIn(warmFor+calmFor)
	attack := gap + claimsIn(gapFor)
	var release errgroup.Group
	release.SetLimit(releasers)
	claimed := make(chan func() error, claimsARow())
	result := load.Open(ctx, claimsARow(), *rateFlag, uint64(w.attempts), func(ctx context.Context, i int) error {
		if i == attack {
			begin()
		}
		c, s, err := w.claim(ctx)
		if err != nil {
			return err
		}
		claimed <- func() error { return c.release(context.WithoutCancel(ctx), s.GetId()) }
		return w.given.take(s)
	})
	close(claimed)
	for f := range claimed {
		release.Go(f)
	}
	err := release.Wait()
	if result.Failed > 0 {
		err = errors.Join(err, fmt.Errorf("%d of %d honest claims failed, the first: %w", result.Failed, len(result.Latencies), result.Err))
	}
	return samples{result.Latencies[calm:gap], result.Latencies[attack:], result.Failed}, err
}

func (c *caller) release(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, load.Timeout)
	defer cancel()
	if _, err := c.sandboxes.ReleaseSandbox(ctx, &sandboxv1.ReleaseSandboxRequest{Id: id}); err != nil {
		return fmt.Errorf("releasing %s: %w", id, err)
	}
	return nil
}

// claim claims for the teams in turn, in clusters in turn, with a key and without one.
func (w *world) claim(ctx context.Context) (*caller, *sandboxv1.Sandbox, error) {
	n := w.claimed.Add(1)
	c := w.callers[n%int64(len(w.callers))]
	r := &sandboxv1.CreateSandboxRequest{
		Namespace: namespace, Env: honestEnv, Clusters: []string{honestClusters[n/2%2], honestClusters[(n/2+1)%2]}, RequireClusters: true,
	}
	if n/4%4 == 0 {
		r.ClaimKey = fmt.Sprintf("honest-%d", n)
	} else {
		r.FirstActivityTimeout = durationpb.New(time.Minute)
	}
	s, err := c.sandboxes.CreateSandbox(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	if id := s.GetClusterId(); s.GetTeam() != c.team || s.GetPhase() != sandboxv1.Phase_RUNNING || id != "east" && id != "west" ||
		s.GetClaimKey() != r.GetClaimKey() {
		return nil, nil, fmt.Errorf("an honest claim got %v", s)
	}
	return c, s, nil
}

// streamStats is what no attack may change.
type streamStats struct {
	incarnations map[string]uint64
	disconnects  map[string]float64
}

// readStreams reads the state of the honest clusters' streams.
func (w *world) readStreams(ctx context.Context) (streamStats, error) {
	s := streamStats{map[string]uint64{}, map[string]float64{}}
	for _, id := range honestClusters {
		c, err := w.admin.GetCluster(ctx, &sandboxv1.GetClusterRequest{Id: id})
		if err != nil {
			return s, fmt.Errorf("asking for cluster %s: %w", id, err)
		}
		if c.GetState() != sandboxv1.ClusterState_FRESH {
			return s, fmt.Errorf("cluster %s is %s: %s", id, c.GetState(), c.GetMessage())
		}
		s.incarnations[id] = c.GetIncarnation()
		if s.disconnects[id], err = w.SumMetrics(ctx, id, "atoll_link_disconnects_total{"); err != nil {
			return s, err
		}
	}
	return s, nil
}

// unmoved returns an error for each honest cluster that lost its stream since.
func (w *world) unmoved(ctx context.Context, before streamStats) error {
	now, err := w.readStreams(ctx)
	errs := []error{err}
	for _, id := range honestClusters {
		if err == nil && (now.incarnations[id] != before.incarnations[id] || now.disconnects[id] != before.disconnects[id]) {
			errs = append(errs, fmt.Errorf("cluster %s lost its stream: incarnation %d then, %d now; disconnects %v then, %v now",
				id, before.incarnations[id], now.incarnations[id], before.disconnects[id], now.disconnects[id]))
		}
	}
	return errors.Join(errs...)
}

// sings checks that the canary is as it was: read by id, by key, and claimed again.
func (w *world) sings(ctx context.Context) error {
	owner := w.callers[0]
	byID, err := owner.sandboxes.GetSandbox(ctx, &sandboxv1.GetSandboxRequest{Id: w.canary.GetId()})
	errs := []error{err}
	byKey, err := owner.claims.GetClaim(ctx, &sandboxv1.GetClaimRequest{Namespace: namespace, ClaimKey: canaryKey})
	errs = append(errs, err)
	again, err := owner.sandboxes.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{
		Namespace: namespace, Env: honestEnv, ClaimKey: canaryKey, Clusters: []string{"west"}, RequireClusters: true,
		Labels: map[string]string{"kind": "canary"}, MaxLifetime: durationpb.New(10 * time.Hour),
	})
	errs = append(errs, err)
	for how, s := range map[string]*sandboxv1.Sandbox{"by its id": byID, "by its key": byKey.GetSandbox(), "claimed again": again} {
		if !proto.Equal(still(s), still(w.canary)) {
			errs = append(errs, fmt.Errorf("the canary, %s, is %v, was %v", how, s, w.canary))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("another tenant's result changed: %w", err)
	}
	return nil
}

// still is the part of a record that does not depend on the call.
func still(s *sandboxv1.Sandbox) *sandboxv1.Sandbox {
	return &sandboxv1.Sandbox{
		Id: s.GetId(), Namespace: s.GetNamespace(), Env: s.GetEnv(), ClusterId: s.GetClusterId(), Pod: s.GetPod(), PodUid: s.GetPodUid(),
		Team: s.GetTeam(), User: s.GetUser(), Phase: s.GetPhase(), ClaimKey: s.GetClaimKey(), Image: s.GetImage(), Pause: s.GetPause(),
		MaxLifetime: s.GetMaxLifetime(),
	}
}

// forget ends what the adversary's cluster was to the hub.
func (w *world) forget(ctx context.Context, id string) error {
	return wait.Until(ctx, patience, "the adversary's cluster to be forgotten", func(ctx context.Context) error {
		_, err := w.admin.ForgetCluster(ctx, &sandboxv1.ForgetClusterRequest{Id: id})
		if err != nil && strings.Contains(err.Error(), "NotFound") {
			return nil
		}
		return err
	})
}
