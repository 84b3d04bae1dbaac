// SPDX-License-Identifier: Apache-2.0

package sandboxes

import (
	"context"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/wallclock"
	"navix.sh/atoll/worker/internal/disposition"
	"navix.sh/atoll/worker/internal/inventory"
)

const (
	// maxFeeds bounds the feeds of a worker. A hub needs one per scope, which its watches share.
	maxFeeds = 256
	// gather is how long a feed waits for more changes before it sends them.
	gather = 100 * time.Millisecond
	// lookAt is how many sandboxes a feed reads under the lock at a time.
	lookAt = 64
)

// feed holds the ids of a scope's sandboxes that have changed since they were last sent.
type feed struct {
	namespace, team string // empty: all
	changed         map[string]struct{}
	wake            chan struct{} // has a token while there are any
	end             context.CancelCauseFunc
}

func (f *feed) covers(pod *corev1.Pod) bool {
	return pod != nil && (f.namespace == "" || f.namespace == pod.Namespace) &&
		(f.team == "" || f.team == pod.Annotations[v1alpha1.LabelTeam])
}

func (f *feed) mark(id string) {
	if id == "" {
		return
	}
	f.changed[id] = struct{}{}
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// feed marks the sandboxes of a change.
func (l locked) feed(c *inventory.Change) {
	for f := range l.feeds {
		if f.covers(c.Before) {
			f.mark(c.Sandbox)
		}
		if c.Kind != inventory.Gone && f.covers(c.Pod.Object()) {
			f.mark(c.Pod.Sandbox())
		}
	}
}

// endFeeds ends the feeds of a term.
func (l locked) endFeeds() {
	for f := range l.feeds {
		f.end(disposition.NotServing())
	}
}

// Feed sends the sandboxes of a namespace and a team (empty means all), and then their changes. It ends with ctx or the term, or if send
// fails.
func (s *Service) Feed(ctx context.Context, namespace, team string, send func(*federationv1.SandboxChanges) error) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	f := &feed{namespace: namespace, team: team, changed: map[string]struct{}{}, wake: make(chan struct{}, 1), end: end}
	if err := s.openFeed(f); err != nil {
		return err
	}
	defer s.update(func(l locked) { delete(l.feeds, f) })
	for complete := false; ; {
		var ids []string
		s.update(func(locked) {
			ids = slices.Sorted(maps.Keys(f.changed))
			clear(f.changed)
		})
		if err := s.sendChanges(ctx, ids, send); err != nil {
			return err
		}
		if !complete {
			complete = true
			if err := send(&federationv1.SandboxChanges{Complete: true}); err != nil {
				return err
			}
		}
		select {
		case <-f.wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if wallclock.Sleep(ctx, s.clock, gather) != nil {
			return context.Cause(ctx)
		}
	}
}

// openFeed registers a feed and marks all existing sandboxes.
func (s *Service) openFeed(f *feed) (err error) {
	s.update(func(l locked) {
		switch {
		case !l.Serving():
			err = disposition.NotServing()
			return
		case len(l.feeds) >= maxFeeds:
			err = disposition.Fault(problem.New(problem.RateLimited, "this worker has %d feeds of sandboxes already", maxFeeds))
			return
		}
		l.feeds[f] = struct{}{}
		for id, p := range l.Sandboxes() {
			if f.covers(p.Object()) {
				f.mark(id)
			}
		}
	})
	return err
}

// sendChanges sends the current states of the given sandboxes, in messages that fit into a frame of the link.
func (s *Service) sendChanges(ctx context.Context, ids []string, send func(*federationv1.SandboxChanges) error) error {
	out, size := &federationv1.SandboxChanges{}, 0
	for some := range slices.Chunk(ids, lookAt) {
		shown := map[string]*sandboxv1.Sandbox{}
		s.inventory.View(func(v *inventory.View) {
			for _, id := range some {
				if p := v.Sandbox(id); p != nil {
					shown[id] = s.Show(p)
				}
			}
		})
		for _, id := range some {
			sandbox := shown[id]
			gone := sandbox == nil
			if gone {
				if sandbox, _ = s.Recorded(ctx, id); sandbox == nil { // unknown, or its record cannot be read
					sandbox = &sandboxv1.Sandbox{Id: id}
				}
			}
			gone = gone || sandbox.GetPhase() == sandboxv1.Phase_ENDED
			n := proto.Size(sandbox)
			if size > 0 && size+n > maxListBytes {
				if err := send(out); err != nil {
					return err
				}
				out, size = &federationv1.SandboxChanges{}, 0
			}
			size += n
			if gone {
				out.Gone = append(out.Gone, sandbox)
			} else {
				out.Changed = append(out.Changed, sandbox)
			}
		}
	}
	if size == 0 {
		return nil
	}
	return send(out)
}
