// SPDX-License-Identifier: Apache-2.0

package localapi

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/listing"
	"navix.sh/atoll/pkg/outcome"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/router"
	"navix.sh/atoll/pkg/segment"
	"navix.sh/atoll/pkg/validate"
	"navix.sh/atoll/worker/internal/claim"
	"navix.sh/atoll/worker/internal/disposition"
	"navix.sh/atoll/worker/internal/sandbox"
)

const (
	// maxPools is how many pools one create may try.
	maxPools = 3
	// onlyAttempt is the attempt of every local claim, because its key goes to no other cluster.
	onlyAttempt = 1
)

// CreateSandbox claims a Pod of one of the Env's pools.
func (a *API) CreateSandbox(ctx context.Context, in *sandboxv1.CreateSandboxRequest) (*sandboxv1.Sandbox, error) {
	sandbox, err := a.create(ctx, in)
	if err != nil {
		return nil, err
	}
	if refusal := outcome.Refusal(sandbox); refusal != nil {
		return nil, refusal // the error that the call which waited for the sandbox got
	}
	return sandbox, nil
}

func (a *API) create(ctx context.Context, in *sandboxv1.CreateSandboxRequest) (*sandboxv1.Sandbox, error) {
	r := proto.CloneOf(in)
	r.Namespace = namespaceOf(in)
	if err := validate.Create(r).Err(); err != nil {
		return nil, err
	}
	if a.opts.RefuseCredentials {
		if err := validate.Credentials(r).Err(); err != nil {
			return nil, err
		}
	}
	fields := validate.Belongings(r)
	if err := a.checkEnvironment(fields); err != nil {
		return nil, err
	}
	validate.DropBelongings(r)
	c := claim.Claim{Request: r, Local: true, Belongings: fields, Prepares: len(fields) > 0}
	if r.GetClaimKey() == "" {
		return a.assign(ctx, c, in, func() bool { return true })
	}
	c.KeyHash, c.Attempt = a.keyHash(r.GetTeam(), r.GetNamespace(), r.GetClaimKey()), onlyAttempt
	this, leave, err := a.callers.enter(ctx, c.KeyHash)
	if err != nil {
		return nil, err
	}
	defer leave()
	// Return the key's own sandbox even if there is no room for another.
	if held, err := a.lookup(ctx, r.GetTeam(), r.GetNamespace(), r.GetClaimKey()); err == nil {
		c.Pool = types.NamespacedName{Namespace: held.GetNamespace(), Name: held.GetPool()}
		got, err := a.opts.Claims.Create(ctx, c)
		if err != nil {
			return nil, err
		}
		return got, a.equip(ctx, got, in, func() bool { return false })
	}
	return a.assign(ctx, c, in, func() bool { return a.callers.beginRelease(this) })
}

// assign claims a Pod and sets its environment from the request. alone reports whether no other call can have returned the sandbox.
func (a *API) assign(
	ctx context.Context, c claim.Claim, in *sandboxv1.CreateSandboxRequest, alone func() bool,
) (*sandboxv1.Sandbox, error) {
	seg, err := a.segment(ctx, c.Request.GetNamespace(), c.Request.GetEnv())
	if err != nil {
		return nil, err
	}
	got, err := a.place(ctx, c, seg)
	if err != nil {
		return nil, err
	}
	if err := a.equip(ctx, got, in, alone); err != nil {
		return nil, err
	}
	return got, nil
}

// place claims a Pod that is idle now, or else waits in a pool's queue. It tries all pools for an idle Pod first, because their reports are
// a moment old, and a claim that waits in one pool does not move to another.
func (a *API) place(ctx context.Context, c claim.Claim, seg *segment.Segment) (*sandboxv1.Sandbox, error) {
	if !c.Request.GetNoQueue() {
		now := c
		now.IdleOnly = true
		got, err := a.tryPools(ctx, now, seg)
		if err == nil || problem.FromError(err).Reason != problem.NoCapacity || ctx.Err() != nil {
			return got, err
		}
	}
	return a.tryPools(ctx, c, seg)
}

// tryPools tries the Env's pools in the router's order until one does not refuse the claim.
func (a *API) tryPools(ctx context.Context, c claim.Claim, seg *segment.Segment) (*sandboxv1.Sandbox, error) {
	route := router.RequestOf(c.Request)
	route.NoQueue = route.NoQueue || c.IdleOnly
	var refused error
	for range maxPools {
		view := a.view(seg)
		picked := router.Pick(&route, view, a.opts.Rand())
		if !picked.OK() {
			if refused != nil {
				return nil, refused
			}
			return nil, noCandidate(seg, picked.Reason)
		}
		pool := view.Candidate(picked.Index).Member().Name
		explained := router.Explain(&route, view, 0)
		explained.Chosen(a.opts.ClusterID, pool)

		c.Pool = types.NamespacedName{Namespace: c.Request.GetNamespace(), Name: pool}
		got, err := a.opts.Claims.Create(ctx, c)
		if err == nil {
			got = proto.CloneOf(got)
			got.Decision = explained.Proto(a.opts.Clock.Now(), len(explained.Candidates), nil)
			return got, nil
		}
		if !disposition.Refused(err) || ctx.Err() != nil ||
			problem.FromError(err).Reason == problem.Deadline {
			return nil, err
		}
		refused = err
		route.Exclude(a.opts.ClusterID, pool)
	}
	return nil, refused
}

func noCandidate(seg *segment.Segment, reason router.Reason) error {
	if fault := seg.Defaults.Get().Fault; reason.Lasting() || reason.Unserving() && fault != "" {
		why := string(reason)
		if fault != "" {
			why += ": " + fault
		}
		return problem.New(problem.Misconfigured, "Env %s cannot serve this claim here until a person cures it: %s; explain tells more",
			seg.Key(), why)
	}
	kind := problem.NoCapacity
	if reason == router.QueueFull {
		kind = problem.QueueFull
	}
	return problem.New(kind, "Env %s has no eligible pool here: %s; explain tells more", seg.Key(), reason).WithRetryAfter(2 * time.Second)
}

// GetSandbox returns a live sandbox, or the record of one that has ended.
func (a *API) GetSandbox(ctx context.Context, r *sandboxv1.GetSandboxRequest) (*sandboxv1.Sandbox, error) {
	return a.opts.Sandboxes.Get(ctx, r.GetId())
}

// ListSandboxes returns the cluster's live sandboxes, or those that have ended.
func (a *API) ListSandboxes(ctx context.Context, r *sandboxv1.ListSandboxesRequest) (*sandboxv1.ListSandboxesResponse, error) {
	plain, faults := listing.Unseal(r)
	if err := faults.Err(); err != nil {
		return nil, err
	}
	query, faults := listing.Parse(plain)
	if err := faults.Err(); err != nil {
		return nil, err
	}
	page, err := a.opts.Sandboxes.List(ctx, plain)
	if err != nil {
		return nil, err
	}
	page.NextPageToken = listing.Seal(r, page.GetNextPageToken())
	query.MaskAll(page.Sandboxes)
	return page, nil
}

// ReleaseSandbox ends a sandbox.
func (a *API) ReleaseSandbox(ctx context.Context, r *sandboxv1.ReleaseSandboxRequest) (*sandboxv1.Sandbox, error) {
	return a.opts.Sandboxes.Release(ctx, r.GetId())
}

// UpdateSandbox changes the timeouts of a sandbox.
func (a *API) UpdateSandbox(ctx context.Context, r *sandboxv1.UpdateSandboxRequest) (*sandboxv1.Sandbox, error) {
	return a.opts.Sandboxes.Update(ctx, r)
}

// TouchSandbox records activity of a sandbox.
func (a *API) TouchSandbox(ctx context.Context, r *sandboxv1.TouchSandboxRequest) (*sandboxv1.Sandbox, error) {
	return a.opts.Sandboxes.Touch(ctx, r.GetId())
}

// PauseSandbox frees a sandbox's CPU.
func (a *API) PauseSandbox(ctx context.Context, r *sandboxv1.PauseSandboxRequest) (*sandboxv1.Sandbox, error) {
	return a.opts.Sandboxes.Pause(ctx, r.GetId())
}

// ResumeSandbox gives a paused sandbox its CPU back.
func (a *API) ResumeSandbox(ctx context.Context, r *sandboxv1.ResumeSandboxRequest) (*sandboxv1.Sandbox, error) {
	return a.opts.Sandboxes.Resume(ctx, r.GetId())
}

// GetClaim returns the state of a claim key.
func (a *API) GetClaim(ctx context.Context, r *sandboxv1.GetClaimRequest) (*sandboxv1.Claim, error) {
	namespace := namespaceOf(r)
	got, err := a.lookup(ctx, r.GetTeam(), namespace, r.GetClaimKey())
	if err != nil {
		return nil, err
	}
	return a.describe(r.GetClaimKey(), namespace, got), nil
}

// lookup returns the sandbox of a key of this API, or else the hub's sandbox for that key in this cluster.
func (a *API) lookup(ctx context.Context, team, namespace, key string) (*sandboxv1.Sandbox, error) {
	got, err := a.opts.Claims.Lookup(ctx, a.keyHash(team, namespace, key), onlyAttempt)
	if e := problem.FromError(err); e != nil && e.Reason == problem.NotFound {
		if hubs, hubErr := a.opts.Claims.LookupLatest(ctx, sandbox.KeyHash(team, namespace, key)); hubErr == nil {
			return hubs, nil
		}
	}
	return got, err
}

// CancelClaim ends a claim in any state.
func (a *API) CancelClaim(ctx context.Context, r *sandboxv1.CancelClaimRequest) (*sandboxv1.Claim, error) {
	namespace := namespaceOf(r)
	var f validate.Faults
	f.ClaimKey(r.GetClaimKey())
	f.Namespace(namespace)
	f.Tenant("team", r.GetTeam())
	if err := f.Err(); err != nil {
		return nil, err
	}
	got, err := a.opts.Claims.Cancel(ctx, a.keyHash(r.GetTeam(), namespace, r.GetClaimKey()), onlyAttempt)
	if err != nil {
		return nil, err
	}
	return a.describe(r.GetClaimKey(), namespace, got), nil
}

func (a *API) describe(key, namespace string, s *sandboxv1.Sandbox) *sandboxv1.Claim {
	out := &sandboxv1.Claim{ClaimKey: key, Namespace: namespace, ClusterId: a.opts.ClusterID, Attempt: onlyAttempt}
	out.CreatedAt = s.GetClaimedAt()
	out.Sandbox, out.Pool, out.Waiting = s, s.GetPool(), s.GetWaiting()
	switch {
	case s.GetPhase() == sandboxv1.Phase_PENDING:
		out.State, out.Message = sandboxv1.Claim_WAITING, s.GetWaiting().GetReason()
	case outcome.Over(s):
		out.State, out.Since, out.Message = sandboxv1.Claim_ENDED, s.GetTerminatedAt(), outcome.Cause(s)
	case s.GetPhase() == sandboxv1.Phase_STARTING:
		out.State, out.Since, out.Message = sandboxv1.Claim_STARTING, s.GetClaimedAt(), s.GetStatusDetail().GetReason()
	default:
		out.State, out.Since = sandboxv1.Claim_RUNNING, s.GetStartedAt()
	}
	return out
}

func (a *API) keyHash(team, namespace, key string) string {
	return sandbox.LocalKeyHash(team, namespace, key, a.opts.ClusterID)
}

func namespaceOf(r interface{ GetNamespace() string }) string {
	if namespace := r.GetNamespace(); namespace != "" {
		return namespace
	}
	return "default"
}

// segment returns this cluster's part of an Env, or an error that lists the existing Envs.
func (a *API) segment(ctx context.Context, namespace, name string) (*segment.Segment, error) {
	seg, err := a.opts.Segments.Segment(ctx, segment.Key{Namespace: namespace, Name: name})
	if err != nil {
		return nil, fmt.Errorf("reading Env %s/%s: %w", namespace, name, err)
	}
	if seg != nil {
		return seg, nil
	}
	all, err := a.segments(ctx, namespace)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(all))
	for _, s := range all {
		names = append(names, s.Key().Name)
	}
	if len(names) == 0 {
		names = append(names, "none")
	}
	return nil, problem.New(problem.NotFound, "Env %s/%s has no part in cluster %s; namespace %s has: %s",
		namespace, name, a.opts.ClusterID, namespace, strings.Join(names, ", "))
}
