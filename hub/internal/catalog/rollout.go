// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/util/sets"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/pkg/clip"
	"navix.sh/atoll/pkg/manifest"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/segment"
)

// rollEvery is the interval at which rollouts are evaluated.
const rollEvery = time.Second

// waitsForResume is the reason of a pause that the plan requires.
const waitsForResume = "WaitsForResume"

// stageNotReady is the reason of a rollout that waits, or has waited too long, for members of its stage.
const stageNotReady = "StageNotReady"

// rollout is a change of an Env in stages.
type rollout struct {
	Plan         manifest.Plan           `json:"plan"`
	From         json.RawMessage         `json:"from,omitempty"` // none: there was no Env
	FromRevision int32                   `json:"fromRevision,omitempty"`
	State        sandboxv1.Rollout_State `json:"state"`
	Stage        int                     `json:"stage"` // index of the current stage
	Begun        int                     `json:"begun"` // number of clusters of the stage that have begun, in order; see Plan.AtOnce
	Since        time.Time               `json:"since"` // time of the last change of state or stage
	ReadySince   time.Time               `json:"readySince,omitzero"`
	Reason       string                  `json:"reason,omitempty"`
	Message      string                  `json:"message,omitempty"`

	before manifest.Object  // of From
	in     sets.Set[string] // the clusters that before names
}

// holdsBack reports whether a cluster must keep its previous revision.
func (r *rollout) holdsBack(cluster string) bool {
	return r.open() && !slices.Contains(slices.Concat(r.begun()...), cluster)
}

// begun returns, by stage, the clusters that must have the new revision.
func (r *rollout) begun() [][]string {
	out := slices.Clone(r.Plan.Stages[:r.Stage+1])
	if r.Plan.MaxUnavailable != "" {
		out[r.Stage] = out[r.Stage][:min(r.Begun, len(out[r.Stage]))]
	}
	return out
}

func (r *rollout) show(of *record) *sandboxv1.Rollout {
	if r == nil {
		return nil
	}
	out := &sandboxv1.Rollout{
		State: r.State, Revision: of.Revision, FromRevision: r.FromRevision, Stage: int32(r.Stage + 1), Reason: r.Reason, Message: r.Message,
		Since: timestamppb.New(r.Since),
	}
	for i, clusters := range r.Plan.Stages {
		out.Stages = append(out.Stages, &sandboxv1.RolloutStage{Clusters: clusters, State: r.stateOf(i)})
	}
	return out
}

// stateOf returns a stage's state for callers.
func (r *rollout) stateOf(stage int) string {
	undone := r.State == sandboxv1.Rollout_UNDONE
	switch {
	case undone && stage > r.Stage:
		return "NotBegun"
	case undone:
		return "Undone"
	case stage < r.Stage, r.State == sandboxv1.Rollout_DONE, stage == r.Stage && !r.ReadySince.IsZero():
		return "Done"
	case stage == r.Stage:
		return "Applying"
	default:
		return "Waiting"
	}
}

// stage starts a rollout if the manifest has a plan and replaces an earlier one.
func (s *Service) stage(r *record, o manifest.Object, before *record) error {
	if o == nil || r.Ref.Kind != manifest.EnvKind {
		return nil
	}
	plan, err := manifest.PlanOf(o)
	if err != nil || plan == nil || before == nil || before.removed() {
		return err // a new Env has no claims to protect
	}
	from, revision := before.Manifest, before.Revision
	if before.Rollout.open() { // clusters that it did not reach have the earlier manifest
		from, revision = before.Rollout.From, before.Rollout.FromRevision
	}
	r.Rollout = &rollout{Plan: *plan, From: from, FromRevision: revision, State: sandboxv1.Rollout_RUNNING, Since: r.Changed,
		Begun: plan.AtOnce(len(plan.Stages[0]))}
	return nil
}

// open reports whether a rollout is under way; r may be nil.
func (r *rollout) open() bool {
	return r != nil && (r.State == sandboxv1.Rollout_RUNNING || r.State == sandboxv1.Rollout_PAUSED)
}

// health is the known state of a stage's clusters.
type health struct {
	waiting []string // the clusters and members that are not ready, with reasons
	unready int      // number of the current stage's clusters that are not ready
	failed  string   // a failure that a person must fix; empty: none
	// Claims sent to the clusters since the stage began, and how many of them failed.
	sent, failures int
}

// fails reports whether too many claims of a stage failed.
func (p health) fails(limit float64) bool {
	return limit > 0 && p.sent >= fewClaims && float64(p.failures) > limit*float64(p.sent)
}

// next decides the next state of a running rollout. changed is false if the state stays. undo is true if the rollout must be undone.
func (r rollout) next(h health, now time.Time) (out rollout, changed, undo bool) {
	out = r
	fail := func(reason, message string) (undo bool) {
		out.Reason, out.Message, out.Since = reason, message, now
		if !r.Plan.Rollback {
			out.State = sandboxv1.Rollout_PAUSED
		}
		return r.Plan.Rollback
	}
	switch {
	case r.State != sandboxv1.Rollout_RUNNING:
		return r, false, false
	case h.failed != "":
		undo = fail("StageRefused", h.failed)
		return out, true, undo
	case h.fails(r.Plan.ClaimFailures):
		undo = fail("ClaimsFail", fmt.Sprintf("%d of %d claims failed since the stage began, more than %g%%", h.failures, h.sent,
			r.Plan.ClaimFailures*100))
		return out, true, undo
	case r.more(h) > r.Begun:
		out.Begun, out.Since, out.ReadySince = r.more(h), now, time.Time{}
		return out, true, false
	case len(h.waiting) > 0 && now.Sub(r.Since) >= r.Plan.NotReadyFor:
		undo = fail(stageNotReady, fmt.Sprintf("not ready for %s: %s", r.Plan.NotReadyFor, strings.Join(h.waiting, "; ")))
		return out, true, undo
	case len(h.waiting) > 0:
		out.ReadySince = time.Time{}
		return out, !r.ReadySince.IsZero(), false
	case r.ReadySince.IsZero():
		out.ReadySince = now
		return out, true, false
	case r.Plan.ClaimFailures > 0 && now.Sub(r.ReadySince) < r.Plan.Pause:
		return r, false, false
	case r.Stage == len(r.Plan.Stages)-1:
		out.State, out.Since, out.Reason, out.Message = sandboxv1.Rollout_DONE, now, "", ""
		return out, true, false
	case r.Plan.Manual:
		out.State, out.Since, out.Reason = sandboxv1.Rollout_PAUSED, now, waitsForResume
		out.Message = "the stage is ready; the next one begins with resume"
		return out, true, false
	case now.Sub(r.ReadySince) < r.Plan.Pause:
		return r, false, false
	}
	return out.advance(now), true, false
}

// more returns how many clusters of the stage may have begun, given how many of those that have begun are ready.
func (r rollout) more(h health) int {
	stage := len(r.Plan.Stages[r.Stage])
	if r.Plan.MaxUnavailable == "" {
		return r.Begun
	}
	return max(r.Begun, min(stage, r.Begun-h.unready+r.Plan.AtOnce(stage)))
}

func (r rollout) advance(now time.Time) rollout {
	r.State, r.Since, r.ReadySince, r.Reason, r.Message = sandboxv1.Rollout_RUNNING, now, time.Time{}, "", ""
	r.Stage = min(r.Stage+1, len(r.Plan.Stages)-1)
	r.Begun = r.Plan.AtOnce(len(r.Plan.Stages[r.Stage]))
	return r
}

// roll advances rollouts until ctx ends. Every replica does this; the store lets one of them write.
func (s *Service) roll(ctx context.Context) {
	var swept time.Time
	for s.sleep(ctx, rollEvery) {
		if s.opts.Clock.Since(swept) >= sweepEvery {
			s.sweep(ctx)
			swept = s.opts.Clock.Now()
		}
		for _, r := range s.state.Load().records {
			if s.forgettable(r) {
				s.forget(ctx, r)
				continue
			}
			if r.Rollout == nil || r.Rollout.State != sandboxv1.Rollout_RUNNING {
				continue
			}
			next, changed, undo := r.Rollout.next(s.health(r), s.opts.Clock.Now().UTC())
			if !changed {
				continue
			}
			if err := s.move(ctx, r, next, undo); err != nil && ctx.Err() == nil {
				s.opts.Log.Info("Could not continue a rollout; it is tried again", "env", r.Ref.String(), "error", err.Error())
			}
		}
	}
}

// tombstones is the minimum time for which a tombstone is kept. A cluster that was away for longer keeps what it has.
const tombstones = 30 * 24 * time.Hour

func (s *Service) move(ctx context.Context, r *record, next rollout, undo bool) error {
	if undo {
		return s.undo(ctx, r, next.Reason, next.Message, "rollback", next.From)
	}
	moved := *r
	moved.Rollout = &next
	return s.write(ctx, &moved, r, nil)
}

// undo gives every cluster an earlier manifest as a new revision. A nil manifest removes the Env.
func (s *Service) undo(ctx context.Context, r *record, reason, message, by string, to json.RawMessage) error {
	now := s.opts.Clock.Now().UTC()
	next := max(r.Revision, s.floor(r.Ref)) + 1
	back := &record{Ref: r.Ref, Revision: next, Changed: now, By: by, Manifest: to, Source: r.Source, Undo: true}
	if r.Rollout != nil {
		over := *r.Rollout
		over.State, over.Since, over.Reason, over.Message = sandboxv1.Rollout_UNDONE, now, reason, message
		back.Rollout = &over
	}
	return s.writeRevision(ctx, back, r)
}

// health gathers the state of the clusters of all stages that have begun, from their reports.
func (s *Service) health(r *record) (out health) {
	state := s.state.Load()
	reported := map[string]*sandboxv1.EnvCluster{}
	key := segment.Key{Namespace: r.Ref.Namespace, Name: r.Ref.Name}
	for _, c := range s.opts.Fleet.Env(key).GetClusters() {
		reported[c.GetClusterId()] = c
	}
	clusters := slices.Concat(r.Rollout.begun()...)
	out.sent, out.failures = s.opts.ClaimCounts.Since(key, clusters, r.Rollout.Since)
	current := r.Rollout.Plan.Stages[r.Rollout.Stage]
	for _, id := range clusters {
		before := len(out.waiting)
		f, c := state.statuses[id][keyOf(r.Ref)], reported[id]
		switch {
		case f.Tried == r.Revision && (f.State == sandboxv1.CatalogCluster_REFUSED || f.State == sandboxv1.CatalogCluster_CONFLICT):
			out.failed = id + ": " + f.Reason + ": " + f.Message
		case f.Revision != r.Revision || f.State != sandboxv1.CatalogCluster_APPLIED:
			out.waiting = append(out.waiting, id+" has not got it yet")
		case c == nil:
			out.waiting = append(out.waiting, id+" does not report the Env")
		case c.GetGeneration() < f.Generation:
			out.waiting = append(out.waiting, id+" reports the Env as it was before")
		case c.GetFault() != "":
			out.waiting = append(out.waiting, id+": "+c.GetFault())
		default:
			served := !slices.Contains(current, id) || !r.Rollout.ReadySince.IsZero()
			for _, m := range c.GetMembers() {
				if why := unready(m, served); why != "" {
					out.waiting = append(out.waiting, id+": "+m.GetName()+" "+why)
				}
			}
		}
		if len(out.waiting) > before && slices.Contains(current, id) {
			out.unready++
		}
	}
	return out
}

// unready returns why a member cannot serve, or "" if it can. A member that has served since the change may briefly lack ready Pods,
// between the end of a sandbox and the start of the Pod that replaces its own.
func unready(m *sandboxv1.EnvMember, served bool) string {
	switch {
	case m.GetState() == "Missing":
		return "is Missing"
	case m.GetState() == "Inconsistent":
		return "is Inconsistent: atollctl envs refresh makes it anew"
	case !served && m.GetDesired() > 0 && m.GetReadyIdle() == 0 && m.GetRunning() == 0:
		return fmt.Sprintf("has no Pod that is ready, of %d", m.GetDesired())
	}
	return ""
}

// GetRollout returns the last rollout of an Env.
func (s *Service) GetRollout(ctx context.Context, in *sandboxv1.GetRolloutRequest) (*sandboxv1.Rollout, error) {
	r, err := s.rolling(ctx, in.GetNamespace(), in.GetName())
	if err != nil {
		return nil, err
	}
	return ofClusters(s.showRollout(r), seenParts(ctx, r.Ref)), nil
}

// ofClusters removes from a rollout the clusters that the caller does not see, and a message that may name them. It modifies the rollout.
func ofClusters(r *sandboxv1.Rollout, sees func(cluster string) bool) *sandboxv1.Rollout {
	hidden := func(id string) bool { return !sees(id) }
	for _, stage := range r.GetStages() {
		if slices.ContainsFunc(stage.GetClusters(), hidden) {
			stage.Clusters, r.Message = slices.DeleteFunc(slices.Clone(stage.GetClusters()), hidden), ""
		}
	}
	return r
}

// showRollout returns a rollout's state and, while it runs, what it waits for.
func (s *Service) showRollout(r *record) *sandboxv1.Rollout {
	out := r.Rollout.show(r)
	if out.GetState() != sandboxv1.Rollout_RUNNING {
		return out
	}
	if waiting := s.health(r).waiting; len(waiting) > 0 {
		out.Reason, out.Message = stageNotReady, clip.Text(strings.Join(waiting, "; "), maxMessage)
	}
	return out
}

func (s *Service) rolling(ctx context.Context, namespace, name string) (*record, error) {
	if err := principal.From(ctx).CheckEnv(namespace, name); err != nil {
		return nil, err
	}
	r, err := s.find(ctx, envRef(namespace, name))
	if err == nil && r.Rollout == nil {
		err = problem.New(problem.NotFound, "%s had no rollout: its annotation agentbox.navix.sh/rollout is the plan of one", r.Ref)
	}
	return r, err
}

// ControlRollout pauses, resumes or undoes a rollout.
func (s *Service) ControlRollout(ctx context.Context, in *sandboxv1.ControlRolloutRequest) (*sandboxv1.Rollout, error) {
	if err := principal.From(ctx).CheckEnv(in.GetNamespace(), in.GetName()); err != nil {
		return nil, err
	}
	ref := envRef(in.GetNamespace(), in.GetName())
	r, err := s.find(ctx, ref)
	if err != nil {
		return nil, err
	}
	if err := checkParts(ctx, r.objects()...); err != nil {
		return nil, err
	}
	if in.GetAction() == sandboxv1.ControlRolloutRequest_UNDO {
		err = s.undoTo(ctx, r, in.GetToRevision())
	} else {
		err = s.steer(ctx, r, in.GetAction())
	}
	if err != nil {
		return nil, err
	}
	now := s.state.Load().records[keyOf(ref)]
	if now.Rollout == nil {
		return &sandboxv1.Rollout{State: sandboxv1.Rollout_UNDONE, Revision: now.Revision, Since: timestamppb.New(now.Changed)}, nil
	}
	return ofClusters(s.showRollout(now), seenParts(ctx, ref)), nil
}

func (s *Service) steer(ctx context.Context, r *record, action sandboxv1.ControlRolloutRequest_Action) error {
	if !r.Rollout.open() {
		return problem.InvalidField("action", action.String(), "UNDO: no rollout of "+r.Ref.String()+" is under way")
	}
	next, now := *r.Rollout, s.opts.Clock.Now().UTC()
	switch action {
	case sandboxv1.ControlRolloutRequest_PAUSE:
		next.State, next.Since, next.Reason, next.Message = sandboxv1.Rollout_PAUSED, now, "PausedByUser", "by "+principal.From(ctx).Name
	case sandboxv1.ControlRolloutRequest_RESUME:
		ready := !next.ReadySince.IsZero()
		next.State, next.Since, next.Reason, next.Message = sandboxv1.Rollout_RUNNING, now, "", ""
		if ready && next.Stage < len(next.Plan.Stages)-1 {
			next = next.advance(now)
		}
	default:
		return problem.InvalidField("action", action.String(), "PAUSE, RESUME or UNDO")
	}
	return s.move(ctx, r, next, false)
}

func (s *Service) undoTo(ctx context.Context, r *record, to int32) error {
	history, err := s.history(ctx, r.Ref)
	if err != nil {
		return err
	}
	back, err := r.back(history, to)
	if err != nil {
		return err
	}
	o, err := manifest.Parse(back)
	if err == nil {
		err = checkParts(ctx, o)
	}
	if err != nil {
		return err
	}
	return s.undo(ctx, r, "UndoneByUser", "by "+principal.From(ctx).Name, principal.From(ctx).Name, back)
}

// back chooses the manifest for an undo (pure): that of revision to. If to is 0, it is the manifest from before the record's rollout, or
// else the previous one. After an undo, to must be set; because otherwise every cluster would at once get the revision that was undone.
func (r *record) back(history []revision, to int32) (json.RawMessage, error) {
	undo := r.Undo || r.Rollout != nil && r.Rollout.State == sandboxv1.Rollout_UNDONE // the latter for records of earlier releases
	if to == 0 && !undo && r.Rollout != nil && len(r.Rollout.From) > 0 {
		return r.Rollout.From, nil
	}
	var there []string
	for _, h := range history {
		if h.Revision == r.Revision || len(h.Manifest) == 0 {
			continue
		}
		if to == 0 && !undo || h.Revision == to {
			return h.Manifest, nil
		}
		there = append(there, fmt.Sprint(h.Revision))
	}
	want := "an earlier revision that is kept; there are: " + strings.Join(there, ", ")
	if to == 0 && undo {
		want = fmt.Sprintf("the revision to go back to (--to-revision of atollctl), because revision %d is an undo itself; there are: %s",
			r.Revision, strings.Join(there, ", "))
	}
	return nil, problem.InvalidField("toRevision", fmt.Sprint(to), want)
}
