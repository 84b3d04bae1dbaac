// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/calls"
	"navix.sh/atoll/hub/internal/fleet"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/hub/internal/recovery"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/router"
	"navix.sh/atoll/pkg/telemetry"
	"navix.sh/atoll/pkg/wallclock"
)

const (
	firstPause = 200 * time.Millisecond
	maxPause   = 2 * time.Second
	// settlePatience is how long a claim that would have to queue waits, at a hub that has just started, for clusters that have not attached.
	// It is longer than workers usually take to attach again.
	settlePatience = 2 * time.Second
	settlePause    = 50 * time.Millisecond
	// maxOverdrawn is how often a choice is repeated because other claims were faster.
	maxOverdrawn = 16
)

// pursuit follows one claim from candidate to candidate until it is settled.
type pursuit struct {
	service *Service
	request *sandboxv1.CreateSandboxRequest // as resolve returned it
	terms
	as       principal.Principal // the caller, for errors
	deadline time.Time
	// recordTarget records the claim's next candidate and returns the attempt's number; nil without a key.
	recordTarget func(ctx context.Context, cluster, pool string, decision *sandboxv1.Decision) (attempt int32, err error)
	keyHash      string
	// check returns an error once another replica has changed the claim's record while the pursuit waits to retry; nil without a key.
	check func(ctx context.Context) error

	route     router.Request
	busy      *router.Request // route without the candidates that refused because they had no idle Pod; nil if there are none
	at        situation
	target    *target
	elsewhere *move // the next target, because the claim waited and an idle Pod was found
	moves     int
	released  bool // with a key: certainly no registered cluster holds the latest attempt
	decision  *sandboxv1.Decision
	outcomes  map[[2]string]string
	refusal   *problem.Error // the latest one
	doubt     *problem.Error // the worker's error about the latest unclear outcome
}

// target is the candidate to which the claim is sent.
type target struct {
	cluster, pool string
	uid           string // of the cluster
	attempt       int32
	idleOnly      bool              // chosen for an idle Pod, while other candidates are left
	reservation   fleet.Reservation // empty for a claim that is resumed
}

func (s *Service) newPursuit(req *sandboxv1.CreateSandboxRequest, how terms, deadline time.Time) *pursuit {
	return &pursuit{
		service: s, request: req, terms: how, deadline: deadline, outcomes: map[[2]string]string{},
		route: router.RequestOf(req),
	}
}

// run sends the claim to candidates until one responds, the request itself is at fault, or no candidate is left. ctx should outlast the
// deadline by grace. If ctx ends, the outcome is unclear.
func (p *pursuit) run(ctx context.Context) (*sandboxv1.Sandbox, error) {
	defer p.free()
	defer p.stay()
	pause := firstPause
	for {
		if p.target == nil {
			if err := p.choose(ctx); err != nil {
				return nil, err
			}
		}
		answer, err := p.askAndLookElsewhere(ctx)
		got := p.whetherMoved(dispatchOutcomeOf(answer, err))
		if (got == notSent || got == unclear) && p.service.fleet.Forgotten(p.target.cluster, p.target.uid) {
			got = gaveUp
		}
		p.at.expired = ctx.Err() != nil || p.remaining() <= 0
		shown := got
		if got == unclear && errors.Is(context.Cause(ctx), errLeft) {
			shown = left
		}
		p.record(shown, answer, err)
		switch next(p.at, got) {
		case answerCaller:
			return p.grantedSandbox(answer)
		case failCaller:
			return nil, calls.ErrorOf(answer)
		case askAgain:
			p.at.staleRetried = true
		case askLater:
			p.at.open = true
			if wallclock.Sleep(ctx, p.service.clock, min(pause, p.remaining())) != nil {
				return nil, p.unknown()
			}
			if p.check != nil {
				if err := p.check(ctx); errors.Is(err, errRecordChanged) {
					return nil, err
				}
			}
			pause = min(2*pause, maxPause)
		case goElsewhere:
			p.exclude(got)
			p.free()
			p.target, p.at.open, p.at.staleRetried, p.released = nil, false, false, true
		case giveUp:
			p.released = true
			return nil, p.noneLeft("")
		case runOut:
			p.released = true
			return nil, p.late()
		case stayUnknown:
			return nil, p.unknown()
		}
	}
}

// choose picks the next candidate. With a key, it records the candidate before anything is sent.
func (p *pursuit) choose(ctx context.Context) error {
	s := p.service
	began := s.clock.Now()
	t := p.takeMove()
	for try := 0; t == nil; try++ {
		view, picked, again := p.pickSettled(ctx)
		if view == nil {
			return s.fleet.UnknownEnv(p.request.GetNamespace(), p.request.GetEnv(), p.as)
		}
		if !picked.OK() {
			return p.noneLeft(picked.Reason)
		}
		c := view.Candidate(picked.Index)
		p.explain(view, c)
		reservation := s.fleet.Reserve(view, picked.Index)
		if picked.Tier.Idle() && reservation.Overdrawn() && try < maxOverdrawn {
			reservation.Cancel() // the claim would wait for another claim's Pod, while other clusters have idle ones
			continue
		}
		t = &target{cluster: c.Cluster.ID, uid: s.fleet.Registration(c.Cluster.ID), pool: c.Member().Name, reservation: reservation}
		t.idleOnly = picked.Tier.Idle() && !again && view.Len() > 1 && p.at.tried < maxCandidates-1
	}
	if p.recordTarget != nil {
		attempt, err := p.recordTarget(ctx, t.cluster, t.pool, p.decision)
		if err != nil {
			t.reservation.Cancel()
			return err
		}
		t.attempt = attempt
	}
	p.target, p.released = t, false
	s.metrics.routed(s.clock.Since(began))
	p.at.tried++
	return nil
}

// pickSettled picks a candidate from the latest view. again is true if the claim may wait, because every candidate with idle Pods in the
// view had none left when it was tried. A hub that has just started has only the clusters that reported first. It waits a moment for the
// others, so that a claim neither fails because a cluster has not reported yet, nor waits for another claim's Pod until its deadline. view
// is nil for an unknown Env.
func (p *pursuit) pickSettled(ctx context.Context) (view *router.View, picked router.Decision, again bool) {
	s := p.service
	until := s.clock.Now().Add(min(settlePatience, p.remaining()))
	for {
		view = s.fleet.View(envOf(p.request))
		if view != nil {
			if p.busy != nil {
				if picked = p.pick(ctx, p.busy, view); picked.OK() && picked.Tier.Idle() {
					return view, picked, false
				}
			}
			if picked = p.pick(ctx, &p.route, view); picked.OK() && picked.Tier.Idle() {
				return view, picked, p.busy != nil
			}
		}
		if len(s.fleet.Awaited()) == 0 || !s.clock.Now().Before(until) || wallclock.Sleep(ctx, s.clock, settlePause) != nil {
			return view, picked, p.busy != nil
		}
	}
}

func (p *pursuit) pick(ctx context.Context, route *router.Request, view *router.View) router.Decision {
	_, span := telemetry.Start(ctx, "route")
	defer span.End()
	picked := router.Pick(route, view, p.service.rand())
	if span.IsRecording() {
		span.SetAttributes(telemetry.Env.String(p.request.GetNamespace()+"/"+p.request.GetEnv()),
			telemetry.Candidate.Int(view.Len()), telemetry.Tier.String(picked.Tier.String()), telemetry.Reason.String(string(picked.Reason)))
		if picked.OK() {
			c := view.Candidate(picked.Index)
			span.SetAttributes(telemetry.Cluster.String(c.Cluster.ID), telemetry.Pool.String(c.Member().Name))
		}
	}
	return picked
}

func (p *pursuit) ask(ctx context.Context) (*federationv1.Answer, error) {
	request := p.request
	if p.wait != sandboxv1.CreateSandboxRequest_WAIT_UNSPECIFIED {
		request = proto.CloneOf(request)
		request.Wait = p.wait
	}
	call := &federationv1.ClaimCall{Request: request, Pool: p.target.pool, KeyHash: p.keyHash, Attempt: p.target.attempt}
	call.IdleOnly, call.Prepares = p.target.idleOnly, p.prepares
	if p.keyHash != "" {
		call.Proof = p.service.recovery.Proof(recovery.Dispatch{
			Cluster: p.target.cluster, UID: p.service.fleet.Registration(p.target.cluster), KeyHash: p.keyHash, Attempt: p.target.attempt,
		})
	}
	return p.service.workers.Dispatch(ctx, p.target.cluster, &federationv1.Dispatch{
		Timeout: durationpb.New(max(p.remaining(), time.Millisecond)), Call: &federationv1.Dispatch_Claim{Claim: call},
	})
}

// record stores the outcome of an attempt for the explanation, the last error and the claims in flight.
func (p *pursuit) record(got dispatchOutcome, answer *federationv1.Answer, err error) {
	text := string(got)
	p.doubt = nil
	switch e := calls.ErrorOf(answer); {
	case err != nil:
		text += ": " + err.Error()
	case e == nil && got == refused:
		p.refusal = problem.New(problem.Unavailable, "cluster %s refused the claim without a reason", p.target.cluster)
	case e != nil:
		text += ": " + e.Error()
		switch got {
		case refused:
			p.refusal = e
		case unclear:
			p.doubt = e
		}
	}
	p.outcomes[[2]string{p.target.cluster, p.target.pool}] = text
	p.service.metrics.dispatched(got)
	p.count(got, calls.ErrorOf(answer))
	if got == granted {
		p.target.reservation.Settle(answer.GetCoveredBy())
	}
}

// count reports to OnSent's function that a cluster has or has not served a claim. It skips errors that are the caller's fault, and
// refusals of an idleOnly claim, because they say nothing about the cluster.
func (p *pursuit) count(got dispatchOutcome, e *problem.Error) {
	if p.service.sent == nil {
		return
	}
	switch {
	case got == granted:
	case got == unclear, got == refused && !p.target.idleOnly, got == failed:
		if e != nil && !e.Reason.Failure() {
			return
		}
	default:
		return
	}
	p.service.sent(envOf(p.request), p.target.cluster, got == granted)
}

// free cancels the reservation of a claim that was not granted.
func (p *pursuit) free() {
	if p.target != nil {
		p.target.reservation.Cancel() // no effect after Settle
	}
}

func (p *pursuit) remaining() time.Duration { return p.deadline.Sub(p.service.clock.Now()) }

// bar excludes clusters for the whole claim, whatever refusals follow.
func (p *pursuit) bar(clusters []string) {
	p.route.Barred = clusters
	if p.busy != nil {
		p.busy.Barred = clusters
	}
}

// exclude excludes a candidate that did not take the claim. A candidate that only had no idle Pod is tried again, this time to wait, if no
// other has one.
func (p *pursuit) exclude(got dispatchOutcome) {
	t := p.target
	switch {
	case got == moved:
		return
	case got == refused && t.idleOnly && p.refusal.Reason == problem.NoCapacity:
		if p.busy == nil {
			route := p.route
			p.busy = &route
		}
		p.busy.Exclude(t.cluster, t.pool)
		return
	case got == refused:
		p.route.Exclude(t.cluster, t.pool)
	default:
		p.route.ExcludeCluster(t.cluster)
	}
	switch {
	case p.busy == nil:
	case got == refused:
		p.busy.Exclude(t.cluster, t.pool)
	default:
		p.busy.ExcludeCluster(t.cluster)
	}
}

// grantedSandbox returns the sandbox of a response that grants the claim.
func (p *pursuit) grantedSandbox(answer *federationv1.Answer) (*sandboxv1.Sandbox, error) {
	sandbox := answer.GetSandbox()
	if err := calls.Stamp(sandbox, p.target.cluster); err != nil {
		return nil, err
	}
	p.mark()
	sandbox.Decision = p.decision
	if p.decision != nil {
		p.service.decisions.put(sandbox.GetId(), p.decision)
	}
	return sandbox, nil
}

// noneLeft returns the error of a claim that no cluster took: the last refusal, or else the router's reason.
func (p *pursuit) noneLeft(reason router.Reason) error {
	if p.refusal != nil {
		return p.refusalForCaller()
	}
	env := p.request.GetNamespace() + "/" + p.request.GetEnv()
	if why := p.service.misconfigured(p.request, reason); why != "" {
		return problem.New(problem.Misconfigured, "Env %s cannot serve this claim until a person cures it: %s", env, why)
	}
	kind := problem.NoCapacity
	if reason == router.QueueFull {
		kind = problem.QueueFull
	}
	if reason == "" || reason == router.AlreadyRefused {
		return problem.New(kind, "Env %s: no cluster could be reached", env).WithRetryAfter(problem.RetrySoon)
	}
	return problem.New(kind, "Env %s has no eligible member: %s; explain tells more", env, reason).WithRetryAfter(problem.RetrySoon)
}

// misconfigured returns why no member can serve a claim if only a person can fix it, or "" if the cause may pass by itself.
func (s *Service) misconfigured(req *sandboxv1.CreateSandboxRequest, reason router.Reason) string {
	if slices.ContainsFunc(s.fleet.Unreported(), func(cluster string) bool { return allows(req, cluster) }) {
		return "" // that cluster may have such a member
	}
	var faults []string
	if reason.Unserving() {
		known := s.fleet.Faults(envOf(req))
		for _, cluster := range slices.Sorted(maps.Keys(known)) {
			if allows(req, cluster) {
				faults = append(faults, "in "+cluster+": "+known[cluster])
			}
		}
	}
	switch {
	case len(faults) > 0:
		return fmt.Sprintf("%s: %s", reason, strings.Join(faults, "; "))
	case reason == router.NoMembers:
		return "NoMembers: no cluster has a pool of it" + s.unserved(req)
	case reason.Lasting():
		view := s.fleet.View(envOf(req))
		return fmt.Sprintf("%s: %s; explain tells more", reason, mismatch(req, reason, view))
	}
	return ""
}

// unserved lists, as text, the clusters that a claim may go to and its Env names, but that do not serve it.
func (s *Service) unserved(req *sandboxv1.CreateSandboxRequest) (text string) {
	missing, without := s.fleet.Unserved(envOf(req))
	other := func(id string) bool { return !allows(req, id) }
	for _, id := range slices.DeleteFunc(missing, other) {
		text += fmt.Sprintf("; cluster %s, which the Env names, is not registered", id)
	}
	for _, id := range slices.DeleteFunc(without, other) {
		text += fmt.Sprintf("; cluster %s, which the Env names, has no such Env", id)
	}
	return text
}

// refusalForCaller returns the last refusal as the caller sees it. A reason that concerns the worker and not the claim, such as a
// pool that was just deleted, becomes NO_CAPACITY.
func (p *pursuit) refusalForCaller() error {
	e := *p.refusal
	if !e.Reason.Shown() {
		e.Reason = problem.NoCapacity
	}
	if e.RetryAfter == 0 && e.Reason != problem.Forbidden { // a forbidden claim stays forbidden
		e.RetryAfter = problem.RetrySoon
	}
	return &e
}

func (p *pursuit) late() error {
	switch {
	case p.refusal != nil:
		return p.refusalForCaller()
	case p.doubt != nil:
		return p.doubt
	}
	return problem.New(problem.Deadline, "no sandbox of Env %s/%s before the startup timeout", p.request.GetNamespace(), p.request.GetEnv())
}

func (p *pursuit) unknown() error {
	if p.doubt != nil && p.doubt.Reason == problem.Deadline {
		return p.doubt // the worker responded: the sandbox exists and is not running yet
	}
	return problem.New(problem.OutcomeUnknown,
		"cluster %s may hold this claim and does not respond; the same call with the same claimKey asks it again", p.target.cluster).
		WithRetryAfter(problem.RetrySoon)
}
