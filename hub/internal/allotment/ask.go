// SPDX-License-Identifier: Apache-2.0

package allotment

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/hub/internal/calls"
	"navix.sh/atoll/pkg/allotpolicy"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/segment"
	"navix.sh/atoll/pkg/validate"
	"navix.sh/atoll/pkg/wallclock"
)

const (
	// askEvery is the interval at which a cluster is asked what it holds.
	askEvery = 2 * time.Second
	// askPause is the minimum time between two calls.
	askPause = 200 * time.Millisecond
	// maxGroups is the maximum number of groups in a report and in a call.
	maxGroups = 2000
)

// keepAsking sends one cluster its rooms, until ctx ends or the cluster is forgotten.
func (l *leader) keepAsking(ctx context.Context, cluster string, wake chan struct{}) {
	for ctx.Err() == nil && !l.dismiss(cluster) {
		if err := l.ask(ctx, cluster); err != nil {
			l.fail(ctx, err)
			return
		}
		_ = wallclock.Sleep(ctx, l.opts.Clock, askPause)
		timer := l.opts.Clock.NewTimer(askEvery - askPause)
		select {
		case <-ctx.Done():
		case <-wake:
		case <-timer.C():
		}
		timer.Stop()
	}
}

// dismiss reports whether a cluster is not registered any more. It then removes what the leader keeps about the cluster, so that the
// cluster's goroutine ends, and enrol starts another one if a cluster with that name joins (I10).
func (l *leader) dismiss(cluster string) bool {
	if l.opts.Fleet.Cluster(cluster) != nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.wakes, cluster)
	delete(l.unbound, cluster)
	l.division.Away(cluster)
	return true
}

// ask sends a cluster its rooms and applies its response. It returns an error only if the store fails.
func (l *leader) ask(ctx context.Context, cluster string) error {
	known := l.opts.Fleet.Cluster(cluster)
	if known.GetIncarnation() == 0 {
		l.away(cluster, nil)
		return nil
	}
	sent, err := l.prepare(ctx, cluster, known.GetIncarnation())
	if err != nil {
		return err
	}
	answer, failed := calls.Workers{Dispatcher: l.opts.Calls}.Call(ctx, cluster, &federationv1.Dispatch{
		Call: &federationv1.Dispatch_Allot{Allot: proto(sent)},
	})
	if failed != nil {
		l.away(cluster, failed)
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.unbound, cluster)
	if l.opts.Fleet.Registration(cluster) != known.GetUid() {
		l.division.Away(cluster)
		return nil
	}
	return l.store(ctx, l.division.Answered(cluster, known.GetUid(), sent, l.read(cluster, answer.GetAllotted())))
}

// prepare returns the next call. Its incarnation is stored before it is sent.
func (l *leader) prepare(ctx context.Context, cluster string, incarnation uint64) (allotpolicy.Call, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.store(ctx, l.division.Address(cluster, incarnation)); err != nil {
		return allotpolicy.Call{}, err
	}
	return l.division.Call(cluster), nil
}

func (l *leader) away(cluster string, why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.division.Away(cluster)
	var p *problem.Error
	if errors.As(why, &p) && p.Reason == problem.Unimplemented {
		l.unbound[cluster] = true
	}
}

func proto(c allotpolicy.Call) *federationv1.AllotCall {
	out := &federationv1.AllotCall{Epoch: c.Epoch, Number: c.Number, Incarnation: c.Incarnation}
	for k, room := range c.Rooms {
		if len(out.Rooms) == maxGroups {
			return out // the cluster cannot have reported more groups
		}
		one := &federationv1.Room{Namespace: k.Namespace, Env: k.Env, Group: k.Group, Room: room}
		if floor, named := c.Floors[k]; named {
			one.Floor = &floor
		}
		out.Rooms = append(out.Rooms, one)
	}
	for k, floor := range c.Floors {
		if _, named := c.Rooms[k]; !named && len(out.Rooms) < maxGroups {
			out.Rooms = append(out.Rooms, &federationv1.Room{Namespace: k.Namespace, Env: k.Env, Group: k.Group, Floor: &floor})
		}
	}
	return out
}

// read returns the part of a response that counts: Envs that the cluster may serve, with valid names, within bounds.
func (l *leader) read(cluster string, r *federationv1.AllotResult) allotpolicy.Reply {
	out := allotpolicy.Reply{
		Epoch: r.GetEpoch(), Number: r.GetNumber(), Holdings: map[allotpolicy.Key]allotpolicy.Holding{}, Unknown: map[allotpolicy.Env]bool{},
	}
	if len(r.GetHoldings()) > maxGroups || len(r.GetUnknown()) > maxGroups {
		return allotpolicy.Reply{} // the response of no call, so that nothing of it counts
	}
	for _, env := range r.GetUnknown() {
		out.Unknown[allotpolicy.Env{Namespace: env.GetNamespace(), Name: env.GetName()}] = true
	}
	for _, h := range r.GetHoldings() {
		k := allotpolicy.Key{Namespace: h.GetNamespace(), Env: h.GetEnv(), Group: h.GetGroup()}
		if !valid(k) || !l.opts.Fleet.Serves(cluster, segment.Key{Namespace: k.Namespace, Name: k.Env}) {
			continue
		}
		out.Holdings[k] = allotpolicy.Holding{
			Present: true, Max: bounded(h.GetMax()), Min: bounded(h.GetMin()), Held: bounded(h.GetHeld()), Demand: bounded(h.GetDemand()),
		}
	}
	return out
}

// valid reports whether an API server could have these names.
func valid(k allotpolicy.Key) bool {
	return validate.IsName(k.Namespace) && validate.IsName(k.Env) && k.Group != "" && len(validation.IsValidLabelValue(k.Group)) == 0
}

func bounded(n int32) int32 { return min(max(n, 0), allotpolicy.Most) }
