// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/pkg/clip"
	"navix.sh/atoll/pkg/manifest"
	"navix.sh/atoll/pkg/problem"
)

// Source is the hub's own cluster, in which manifests are written instead of through the API.
type Source interface {
	// Own reports whether a cluster is the hub's own; known is false while that is not known.
	Own(cluster string) (own, known bool)
	// Has reports whether the hub's own cluster has an object for the catalogue.
	Has(ctx context.Context, ref manifest.Ref) (bool, error)
}

// Sourced is an object of the hub's own cluster.
type Sourced struct {
	UID        string
	Generation int64
	By         string // the user who wrote it
	Manifest   manifest.Object
}

// origin describes the object from which a record was last taken. After a rollback the record's manifest differs from it.
type origin struct {
	UID        string `json:"uid"`
	Generation int64  `json:"generation"`
	Hash       string `json:"hash"` // of the manifest
	Revision   int32  `json:"revision"`
	// SetBack means that the object went back to an earlier generation. It is taken again once it has changed from there.
	SetBack bool `json:"setBack,omitempty"`
}

// action is what to do for an object.
type action int

const (
	takeNothing action = iota // the object is unchanged
	takeNote                  // the manifest for clusters is unchanged, but the origin has changed
	takeIt
	takeSetBack // the object has gone back: note that, and do not take it
	stillSetBack
)

// actionFor compares an object with the origin that was last taken (pure). A nil origin means that nothing was taken.
func (o *origin) actionFor(uid string, generation int64, hash string) action {
	switch {
	case o == nil || o.UID != uid:
		return takeIt
	case o.SetBack && generation == o.Generation && o.Hash != hash:
		return stillSetBack
	case o.Hash == hash && !o.SetBack && generation == o.Generation:
		return takeNothing
	case o.Hash == hash:
		return takeNote
	case generation < o.Generation:
		return takeSetBack
	}
	return takeIt
}

// Take stores an object of the hub's own cluster in the catalogue, after the same checks as for a call of the API.
func (s *Service) Take(ctx context.Context, in Sourced) error {
	ctx = principal.With(ctx, principal.Principal{Name: clip.Text(in.By, maxMessage), AllTeams: true, AllNamespaces: true})
	ref := in.Manifest.Ref()
	before := s.state.Load().records[keyOf(ref)]
	o := in.Manifest.Clean()
	dropReserved(o) // a worker of the hub's cluster may have written some; users cannot
	o, err := s.check(ctx, ref, o, before)
	if err == nil {
		err = s.checkStages(o)
	}
	if err != nil {
		return err
	}
	data, err := o.Encode()
	if err != nil {
		return err
	}
	if len(data) > maxManifest {
		return problem.New(problem.Invalid, "%s has %d bytes, want at most %d", ref, len(data), maxManifest)
	}
	sum := sha256.Sum256(data)
	from := &origin{UID: in.UID, Generation: in.Generation, Hash: hex.EncodeToString(sum[:])}
	var last *origin
	if before != nil && !before.removed() {
		last = before.Source
	}
	switch last.actionFor(from.UID, from.Generation, from.Hash) {
	case takeNothing:
		if before.Revision >= s.floor(ref) {
			return nil
		} // a cluster has a later revision: the hub's store was set back, its cluster was not
	case takeNote:
		from.Revision = last.Revision
		return passing(s.writeOrigin(ctx, before, from))
	case takeSetBack:
		from.Hash, from.SetBack, from.Revision = last.Hash, true, last.Revision
		if err := s.writeOrigin(ctx, before, from); err != nil {
			return passing(err)
		}
		return setBack(before)
	case stillSetBack:
		return setBack(before)
	case takeIt:
	}
	return passing(s.replace(ctx, &record{Ref: ref, Manifest: data, Source: from, object: o}, before))
}

// passing returns UNAVAILABLE if another write of the record, such as the step of a rollout, came first; because the object is not at
// fault, and is taken again.
func passing(err error) error {
	if changed := (changedError{}); errors.As(err, &changed) {
		return problem.New(problem.Unavailable, "%w", err)
	}
	return err
}

func setBack(r *record) error {
	return problem.New(problem.Invalid,
		"it went back to an earlier generation than the one that revision %d was taken from: its cluster was restored. "+
			"The catalogue keeps what it has; change the object to decide what holds", r.Source.Revision)
}

// writeOrigin writes a record's origin, and changes nothing else.
func (s *Service) writeOrigin(ctx context.Context, before *record, from *origin) error {
	noted := *before
	noted.Source = from
	return s.write(ctx, &noted, before, nil)
}

// checkStages returns an error for a plan that would hold the hub's own cluster back: that cluster has the object as soon as it is written.
func (s *Service) checkStages(o manifest.Object) error {
	plan, err := manifest.PlanOf(o)
	if err != nil || plan == nil {
		return err
	}
	for i, stage := range plan.Stages {
		for _, id := range stage {
			if own, _ := s.opts.Source.Own(id); own && i > 0 {
				return problem.New(problem.Invalid, "%s: stages[%d]: %q is not valid, want it in stages[0]: the hub's own cluster has a change "+
					"as soon as it is written", o.Ref(), i, id)
			}
		}
	}
	return nil
}

// Drop removes an object that is being deleted in the hub's own cluster.
func (s *Service) Drop(ctx context.Context, ref manifest.Ref, by string) error {
	before := s.state.Load().records[keyOf(ref)]
	if before == nil || before.removed() {
		return nil
	}
	ctx = principal.With(ctx, principal.Principal{Name: clip.Text(by, maxMessage), AllTeams: true, AllNamespaces: true})
	return s.replace(ctx, &record{Ref: ref}, before)
}

// writable returns an error if manifests are written in the hub's own cluster, and so not through the API.
func (s *Service) writable(ref manifest.Ref) error {
	if s.opts.Source == nil {
		return nil
	}
	return problem.New(problem.Misconfigured, "the catalogue is kept in the hub's own cluster: change %s there, with kubectl or by its "+
		"repository (atoll-hub --catalog=kubernetes)", ref)
}

// removable is writable for a removal: only the API can remove a record that has no object in the hub's cluster.
func (s *Service) removable(ctx context.Context, ref manifest.Ref) error {
	if s.opts.Source == nil {
		return nil
	}
	has, err := s.opts.Source.Has(ctx, ref)
	if err != nil {
		return problem.New(problem.Unavailable, "asking the hub's own cluster for %s: %w", ref, err).WithRetryAfter(problem.RetrySoon)
	}
	if has {
		return s.writable(ref)
	}
	return nil
}

// owned returns the status of a record in the hub's own cluster, which has the object from which the record was taken.
func (r *record) owned() clusterStatus {
	if r.Source.Revision == r.Revision && !r.Source.SetBack {
		return clusterStatus{Revision: r.Revision, State: sandboxv1.CatalogCluster_APPLIED}
	}
	return clusterStatus{Revision: r.Source.Revision, State: sandboxv1.CatalogCluster_PENDING, Reason: "OwnCluster",
		Message: "the hub's own cluster has the object as it is written there; change it there"}
}

// Summary is the state of an object of the hub's own cluster in all clusters.
type Summary struct {
	State   sandboxv1.CatalogCluster_State // the worst of all clusters
	Message string
	// Reconciling and Stalled are the reasons of these conditions; empty: the condition is absent.
	Reconciling, Stalled string // reasons
}

// Summarize returns the Summary of an object, from this replica's copy of the store.
func (s *Service) Summarize(ref manifest.Ref) Summary {
	state := s.state.Load()
	r := state.records[keyOf(ref)]
	if r == nil || r.removed() {
		return Summary{State: sandboxv1.CatalogCluster_PENDING, Message: "the catalogue has not taken it yet", Reconciling: "Pending"}
	}
	return summarize(state.show(r, func(string) bool { return true }))
}

// summarize returns the Summary of an entry (pure).
func summarize(entry *sandboxv1.CatalogEntry) Summary {
	out := Summary{State: sandboxv1.CatalogCluster_APPLIED}
	worse := []sandboxv1.CatalogCluster_State{
		sandboxv1.CatalogCluster_APPLIED, sandboxv1.CatalogCluster_PENDING, sandboxv1.CatalogCluster_REFUSED, sandboxv1.CatalogCluster_CONFLICT,
	}
	var waiting []string
	for _, c := range entry.GetClusters() {
		if slices.Index(worse, c.GetState()) > slices.Index(worse, out.State) {
			out.State = c.GetState()
		}
		if c.GetState() != sandboxv1.CatalogCluster_APPLIED {
			waiting = append(waiting, fmt.Sprintf("%s: %s: %s", c.GetClusterId(), c.GetReason(), c.GetMessage()))
		}
	}
	out.Message = fmt.Sprintf("revision %d", entry.GetRevision())
	if len(waiting) > 0 {
		out.Message += ": " + strings.Join(waiting, "; ")
	}
	switch out.State {
	case sandboxv1.CatalogCluster_PENDING:
		out.Reconciling = "Pending"
	case sandboxv1.CatalogCluster_REFUSED:
		out.Stalled = "Refused"
	case sandboxv1.CatalogCluster_CONFLICT:
		out.Stalled = "Conflict"
	default:
	}
	rollout := entry.GetRollout()
	switch rollout.GetState() {
	case sandboxv1.Rollout_RUNNING:
		out.rolls("Rollout", fmt.Sprintf("stage %d of %d", rollout.GetStage(), len(rollout.GetStages())))
	case sandboxv1.Rollout_PAUSED:
		out.rolls("Rollout", rollout.GetReason()+": "+rollout.GetMessage())
		if rollout.GetReason() != waitsForResume {
			out.Stalled, out.Reconciling = rollout.GetReason(), ""
		}
	case sandboxv1.Rollout_UNDONE:
		if rollout.GetRevision() == entry.GetRevision() {
			out.rolls("", rollout.GetReason()+": "+rollout.GetMessage())
			out.Stalled, out.Reconciling = rollout.GetReason(), ""
		}
	default:
	}
	return out
}

func (s *Summary) rolls(reconciling, what string) {
	s.Message += "; the rollout: " + what
	if s.Stalled == "" {
		s.Reconciling = reconciling
	}
}

// Changes returns a channel that gets a value after every change of the state. It has one reader.
func (s *Service) Changes() <-chan struct{} { return s.changed }
