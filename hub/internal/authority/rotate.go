// SPDX-License-Identifier: Apache-2.0

package authority

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/hubstate"
	"navix.sh/atoll/pkg/link/pki"
	"navix.sh/atoll/pkg/store"
	"navix.sh/atoll/pkg/wallclock"
)

// rotateEvery is the interval at which a rotation checks whether it can continue.
const rotateEvery = time.Second

// leadership is the name by which replicas elect the one that drives rotations.
const leadership = "authority"

// ErrGiven reports that the operator provides the CA, so the hub creates none.
var ErrGiven = errors.New("the CA is the operator's: give a newer one as --ca-cert-file and restart the hub")

// ErrOtherStep reports that the rotation is not at the step to skip, which has ended or has not begun.
var ErrOtherStep = errors.New("the rotation is at another step")

// Rotate starts a rotation, unless one is running. If skip names the current step, that step no longer waits for clusters.
func (a *Authority) Rotate(ctx context.Context, skip hubstate.RotationStep) error {
	return a.update(ctx, func(s *hubstate.Authority) error {
		switch {
		case skip != s.Step && skip != hubstate.Stable:
			return ErrOtherStep
		case s.Step != hubstate.Stable && (skip == hubstate.Stable || s.Skip):
			return errUnchanged // under way
		case s.Step != hubstate.Stable:
			s.Skip = true
			return nil
		case a.opts.Given != nil:
			return ErrGiven
		}
		ca, err := pki.NewCA("atoll federation CA", a.opts.Clock.Now())
		if err != nil {
			return err
		}
		return a.rotateTo(s, ca, false)
	})
}

func (a *Authority) rotateTo(s *hubstate.Authority, ca *pki.CA, given bool) error {
	if err := a.add(s, ca, given); err != nil {
		return err
	}
	advance(s, hubstate.Distributing, a.opts.Clock.Now())
	return nil
}

// Serve sets the fleet. Call it once, before anything joins.
func (a *Authority) Serve(f Fleet) { a.fleet = f }

// Run follows changes of other replicas and of CA files, and drives rotations while this replica leads, until ctx ends.
func (a *Authority) Run(ctx context.Context) error {
	var files sync.WaitGroup
	defer files.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if a.opts.Files != nil {
		files.Go(func() { a.followFiles(ctx) })
	}
	shared, is := a.opts.Store.(store.Shared)
	if !is {
		a.drive(ctx)
		return nil
	}
	go a.follow(ctx, shared)
	if err := shared.Lead(ctx, leadership, a.drive); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

func (a *Authority) follow(ctx context.Context, shared store.Shared) {
	load := func(ctx context.Context) error {
		return a.update(ctx, func(*hubstate.Authority) error { return errUnchanged })
	}
	changed := func(events []store.Event) {
		for _, e := range events {
			var s hubstate.Authority
			if e.Deleted || json.Unmarshal(e.Value, &s) != nil {
				continue
			}
			if err := a.take(s, e.Revision); err != nil {
				a.opts.Log.Error(err, "Taking over the CA of another replica")
			}
		}
	}
	store.KeepFollowing(ctx, shared, store.FollowOptions{
		Prefix: hubstate.AuthorityKey, Load: load, Changed: changed, Clock: a.opts.Clock,
		Failed: func(err error) { a.opts.Log.Error(err, "Following the CA's rotation") },
	})
}

// drive advances rotations until ctx ends.
func (a *Authority) drive(ctx context.Context) {
	if err := a.takeGiven(ctx); err != nil {
		a.opts.Log.Error(err, "Beginning a rotation to the CA that was given")
	}
	began, generation := a.opts.Clock.Now(), uint64(0)
	for ctx.Err() == nil {
		v, now := a.now()
		if v.generation != generation {
			began, generation = now, v.generation
		}
		if v.step != hubstate.Stable {
			if err := a.step(ctx, a.opts.Clock.Since(began) >= a.opts.Settle); err != nil {
				a.opts.Log.Error(err, "Rotating the CA", "step", stepName(v.step))
			}
		}
		_ = wallclock.Sleep(ctx, a.opts.Clock, rotateEvery)
	}
}

// takeGiven starts a rotation to the operator's CA if it is newer than the one that signs.
func (a *Authority) takeGiven(ctx context.Context) error {
	if a.opts.Given == nil {
		return nil
	}
	return a.update(ctx, func(s *hubstate.Authority) error {
		given := a.opts.Given.Certificate()
		last, err := pki.ParseCA(s.CAs[len(s.CAs)-1].Cert, s.CAs[len(s.CAs)-1].Key)
		if err != nil {
			return err
		}
		if s.Step != hubstate.Stable || given.Equal(last.Certificate()) || !given.NotBefore.After(last.Certificate().NotBefore) {
			return errUnchanged
		}
		return a.rotateTo(s, a.opts.Given, true)
	})
}

// step makes the next step durable if no cluster is behind. The effects of a step derive from the state.
func (a *Authority) step(ctx context.Context, settled bool) error {
	v, _ := a.now()
	facts := a.facts(v)
	facts.settled = settled
	next, behind := decideStep(facts)
	if next == v.step {
		if settled && len(behind) > 0 {
			a.opts.Log.V(1).Info("The rotation waits for clusters", "step", stepName(v.step), "clusters", behind)
		}
		return nil
	}
	if err := a.keep(ctx); err != nil {
		return err
	}
	return a.update(ctx, func(s *hubstate.Authority) error {
		if s.Generation != v.generation {
			return errUnchanged // another replica was first
		}
		advance(s, next, a.opts.Clock.Now())
		return nil
	})
}

// facts returns the inputs of decideStep, for a step that has not settled.
func (a *Authority) facts(v *view) stepFacts {
	a.mu.Lock()
	skip := a.state.Skip
	a.mu.Unlock()
	facts := stepFacts{step: v.step, skip: skip, bundle: v.trust.Hash, signer: v.trust.Signer}
	if a.fleet != nil {
		facts.clusters = a.fleet.Credentials()
	}
	return facts
}

// Status returns the CAs, the step, and the clusters that are behind.
func (a *Authority) Status() *sandboxv1.PkiStatus {
	v, now := a.now()
	_, behind := decideStep(a.facts(v))
	a.mu.Lock()
	state := a.state.Clone()
	a.mu.Unlock()
	sweep(&state, now)
	out := &sandboxv1.PkiStatus{
		Managed: true, Step: apiStep(v.step), Since: timestamppb.New(state.Since), WaitingFor: behind,
		CertificateLifetime: durationpb.New(a.opts.Lifetime),
	}
	for i, ca := range v.cas {
		out.Cas = append(out.Cas, &sandboxv1.Ca{
			Hash: ca.Hash(), Created: timestamppb.New(state.CAs[min(i, len(state.CAs)-1)].Created), Signs: ca == v.signer,
			Expires: timestamppb.New(ca.Certificate().NotAfter), Given: state.CAs[min(i, len(state.CAs)-1)].Given,
		})
	}
	if a.fleet != nil {
		for _, c := range a.fleet.Credentials() {
			if c.Attached && c.Trust == "" {
				out.Unmanaged = append(out.Unmanaged, c.ClusterID)
			}
		}
	}
	for _, i := range state.Invitations {
		if i.UsedAt.IsZero() {
			out.Invitations = append(out.Invitations, shown(i))
		}
	}
	return out
}

func apiStep(step hubstate.RotationStep) sandboxv1.RotationStep {
	switch step {
	case hubstate.Distributing:
		return sandboxv1.RotationStep_DISTRIBUTING
	case hubstate.Renewing:
		return sandboxv1.RotationStep_RENEWING
	case hubstate.Dropping:
		return sandboxv1.RotationStep_DROPPING
	default:
		return sandboxv1.RotationStep_STABLE
	}
}

func stepName(step hubstate.RotationStep) string {
	if step == hubstate.Stable {
		return "Stable"
	}
	return string(step)
}
