// SPDX-License-Identifier: Apache-2.0

package sandboxes

import (
	"context"
	"slices"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/calls"
	"navix.sh/atoll/hub/internal/fleet"
	"navix.sh/atoll/hub/internal/lastknown"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/pkg/keyed"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/router"
	"navix.sh/atoll/pkg/segment"
	"navix.sh/atoll/pkg/validate"
	"navix.sh/atoll/pkg/watch"
)

// Fleet is the hub's view of its clusters.
type Fleet interface {
	// View returns the router's view of an Env, or nil for an unknown Env.
	View(key segment.Key) *router.View
	// ClusterIDs lists every registered cluster, connected or not.
	ClusterIDs() []string
	// Cluster returns a cluster, or nil for an unknown one.
	Cluster(id string) *sandboxv1.Cluster
	// UnknownEnv returns the error for an Env that no cluster has, as the caller may see it.
	UnknownEnv(namespace, name string, caller fleet.Sight) error
}

// Claims is the hub's record of the claims of sandboxes.
type Claims interface {
	// Ended returns the terminal record of a sandbox with a key, or nil if none is kept.
	Ended(ctx context.Context, id string) (*sandboxv1.Sandbox, error)
	// Claimed returns a sandbox with a claim key from the record of its claim, or nil if there is none.
	Claimed(ctx context.Context, id string) (*sandboxv1.Sandbox, error)
	// End ends a sandbox. The end of a sandbox with a claim key is durable before its cluster gets the request.
	End(ctx context.Context, cluster, id string) (*sandboxv1.Sandbox, error)
	// Decision returns the routing decision on a sandbox's claim.
	Decision(ctx context.Context, of *sandboxv1.Sandbox) (*sandboxv1.Decision, error)
	// Explain returns which member a claim would go to, or why the claim of a key went to its member.
	Explain(ctx context.Context, req *sandboxv1.ExplainEnvRequest) (*sandboxv1.Decision, error)
}

// Service forwards calls about sandboxes to their clusters.
type Service struct {
	fleet    Fleet
	workers  calls.Workers
	claims   Claims
	tunnels  Tunnels
	known    *lastknown.Sandboxes
	watches  *watch.Service
	openings keyed.Semaphore // by account and cluster
}

// Options configure a Service. Only Open uses Tunnels, and only Watch uses Feeds and the fields after it.
type Options struct {
	Fleet      Fleet
	Dispatcher calls.Dispatcher
	Claims     Claims
	Tunnels    Tunnels
	LastKnown  *lastknown.Sandboxes // for lists while a cluster does not respond; nil: its sandboxes are missing
	Feeds      Feeds
	Clock      clock.WithTicker // nil: the real clock
	Watches    watch.Limits
	Metrics    *watch.Metrics // nil: none
	Log        logr.Logger
}

// New returns a Service. CloseWatches ends its watches.
func New(o Options) *Service {
	workers := calls.Workers{Dispatcher: o.Dispatcher}
	return &Service{
		fleet: o.Fleet, workers: workers, claims: o.Claims, tunnels: o.Tunnels, known: o.LastKnown,
		openings: keyed.Semaphore{AtOnce: openingsAtOnce},
		watches: watch.New(watch.Options{
			Source: clusters{o.Fleet, workers, o.Feeds, o.LastKnown}, Clock: o.Clock, Limits: o.Watches, Metrics: o.Metrics, Log: o.Log,
		}),
	}
}

// Get returns a sandbox from the ledger if the ledger has its terminal record, and otherwise from the cluster in its id.
func (s *Service) Get(ctx context.Context, id string) (*sandboxv1.Sandbox, error) {
	cluster, err := parseID(id)
	if err != nil {
		return nil, err
	}
	if !principal.From(ctx).Seeing().SeesCluster(cluster) {
		return nil, noSandbox(id) // the same error for a cluster that does not exist, that responds, and that is away
	}
	sandbox, unsure := s.claims.Ended(ctx, id)
	if unsure != nil && !silent(unsure) {
		return nil, unsure
	}
	if sandbox == nil {
		if err := s.registered(cluster, id); err != nil {
			return nil, err
		}
		if sandbox, err = s.getAt(ctx, cluster, id); err != nil {
			if unsure != nil && problem.FromError(err).Reason == problem.NotFound {
				return nil, unsure // the ledger may have its record
			}
			if problem.FromError(err).Reason == problem.NotFound && principal.From(ctx).Seeing().Restricted() {
				err = noSandbox(id) // the same error as for a sandbox that the caller may not see
			}
			return nil, err
		}
	}
	if !principal.From(ctx).Seeing().Sees(sandbox) {
		return nil, noSandbox(id)
	}
	return sandbox, nil
}

// silent reports whether the ledger does not respond. The sandbox's cluster mostly does.
func silent(err error) bool { return problem.FromError(err).Reason == problem.Unavailable }

func (s *Service) getAt(ctx context.Context, cluster, id string) (*sandboxv1.Sandbox, error) {
	return s.workers.Sandbox(ctx, cluster, &federationv1.Dispatch{
		Call: &federationv1.Dispatch_Get{Get: &sandboxv1.GetSandboxRequest{Id: id}},
	})
}

// parseID returns the cluster that minted the id.
func parseID(id string) (string, error) {
	var f validate.Faults
	f.SandboxID(id)
	if err := f.Err(); err != nil {
		return "", err
	}
	cluster, _ := validate.ClusterOf(id)
	return cluster, nil
}

func (s *Service) registered(cluster, id string) error {
	if !slices.Contains(s.fleet.ClusterIDs(), cluster) {
		return problem.New(problem.NotFound, "no sandbox %s: no cluster %q is registered", id, cluster)
	}
	return nil
}

func noSandbox(id string) error { return problem.New(problem.NotFound, "no sandbox %s", id) }

// Release ends a sandbox. Releasing an ended one returns its record.
func (s *Service) Release(ctx context.Context, id string) (*sandboxv1.Sandbox, error) {
	cluster, ended, err := s.find(ctx, id)
	if err != nil && silent(err) {
		e := *problem.FromError(err)
		e.Message += "; the release is not recorded: repeat it"
		return nil, &e
	}
	if err != nil || ended != nil {
		return ended, err
	}
	return s.claims.End(ctx, cluster, id)
}

// find returns the cluster of a sandbox that the caller may change, or the terminal record if the ledger has one.
func (s *Service) find(ctx context.Context, id string) (cluster string, ended *sandboxv1.Sandbox, err error) {
	if cluster, err = parseID(id); err != nil {
		return "", nil, err
	}
	if p := principal.From(ctx); p.Restricted() {
		// Team and user of a sandbox never change, so checking first is safe.
		sandbox, err := s.Get(ctx, id)
		if err != nil && silent(err) {
			sandbox, err = s.lastKnown(ctx, cluster, id, err)
		}
		if err != nil {
			return "", nil, err
		}
		if err := p.Check(sandbox); err != nil {
			return "", nil, err
		}
	}
	ended, unsure := s.claims.Ended(ctx, id)
	if unsure != nil && !silent(unsure) {
		return "", nil, unsure
	}
	if ended == nil {
		err = s.registered(cluster, id)
	}
	return cluster, ended, err
}

// lastKnown returns a sandbox of a cluster that does not respond: its last known state, or the record of its claim. If there is neither,
// it returns the cluster's error.
func (s *Service) lastKnown(ctx context.Context, cluster, id string, away error) (*sandboxv1.Sandbox, error) {
	var sandbox *sandboxv1.Sandbox
	if s.known != nil {
		sandbox = s.known.Get(cluster, id)
	}
	if sandbox == nil {
		var err error
		if sandbox, err = s.claims.Claimed(ctx, id); err != nil {
			return nil, err
		}
	}
	switch {
	case sandbox == nil:
		return nil, away
	case !principal.From(ctx).Seeing().Sees(sandbox):
		return nil, noSandbox(id)
	}
	return sandbox, nil
}

// Update changes the timeouts of a sandbox, on its cluster. For an ended sandbox it returns the record.
func (s *Service) Update(ctx context.Context, r *sandboxv1.UpdateSandboxRequest) (*sandboxv1.Sandbox, error) {
	if err := validate.Update(r).Err(); err != nil {
		return nil, err
	}
	return s.callCluster(ctx, r.GetId(), &federationv1.Dispatch{Call: &federationv1.Dispatch_Update{Update: r}})
}

// Touch records activity of a sandbox, on its cluster. For an ended sandbox it returns the record.
func (s *Service) Touch(ctx context.Context, id string) (*sandboxv1.Sandbox, error) {
	return s.callCluster(ctx, id, &federationv1.Dispatch{Call: &federationv1.Dispatch_Touch{Touch: &sandboxv1.TouchSandboxRequest{Id: id}}})
}

// Pause frees the CPU of a sandbox, on its cluster. For an ended sandbox it returns the record.
func (s *Service) Pause(ctx context.Context, id string) (*sandboxv1.Sandbox, error) {
	return s.callCluster(ctx, id, &federationv1.Dispatch{Call: &federationv1.Dispatch_Pause{Pause: &sandboxv1.PauseSandboxRequest{Id: id}}})
}

// Resume restores the CPU of a paused sandbox, on its cluster. For an ended sandbox it returns the record.
func (s *Service) Resume(ctx context.Context, id string) (*sandboxv1.Sandbox, error) {
	return s.callCluster(ctx, id, &federationv1.Dispatch{Call: &federationv1.Dispatch_Resume{Resume: &sandboxv1.ResumeSandboxRequest{Id: id}}})
}

// callCluster sends a call about a sandbox to its cluster. For an ended sandbox it returns the record.
func (s *Service) callCluster(ctx context.Context, id string, d *federationv1.Dispatch) (*sandboxv1.Sandbox, error) {
	cluster, ended, err := s.find(ctx, id)
	if err != nil || ended != nil {
		return ended, err
	}
	return s.workers.Sandbox(ctx, cluster, d)
}

// Explain returns which member a claim would go to, or why a past claim went to its member.
func (s *Service) Explain(ctx context.Context, req *sandboxv1.ExplainEnvRequest) (*sandboxv1.Decision, error) {
	id := req.GetSandboxId()
	if id == "" || req.GetClaimKey() != "" {
		return s.claims.Explain(ctx, req)
	}
	var f validate.Faults
	f.Namespace(req.GetNamespace())
	f.Check(validate.IsName(req.GetName()), "name", validate.Clip(req.GetName()), "the name of an Env")
	if err := f.Err(); err != nil {
		return nil, err
	}
	if err := principal.From(ctx).CheckEnv(req.GetNamespace(), req.GetName()); err != nil {
		return nil, err
	}
	of, err := s.Get(ctx, id)
	if err != nil { // a caller that may see the sandbox may see the decision
		return nil, err
	}
	if of.GetNamespace() != req.GetNamespace() || of.GetEnv() != req.GetName() { // the Env decides what the caller may see
		return nil, problem.New(problem.NotFound, "no sandbox %s of Env %s/%s", id, req.GetNamespace(), req.GetName())
	}
	return s.claims.Decision(ctx, of)
}
