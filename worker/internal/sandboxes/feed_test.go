// SPDX-License-Identifier: Apache-2.0

package sandboxes

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/worker/internal/inventory"
)

// reader reads a feed.
type reader struct {
	mu     sync.Mutex
	events []string
	block  chan struct{} // nil: takes what comes
	err    error
}

func (r *reader) take(c *federationv1.SandboxChanges) error {
	r.mu.Lock()
	block := r.block
	r.mu.Unlock()
	if block != nil {
		<-block
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range c.GetChanged() {
		r.events = append(r.events, s.GetId()+" on "+s.GetPod()+" "+s.GetPodIp())
	}
	for _, s := range c.GetGone() {
		r.events = append(r.events, s.GetId()+" gone "+s.GetStopReason())
	}
	if c.GetComplete() {
		r.events = append(r.events, "complete")
	}
	return nil
}

func (r *reader) since() string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.events = nil }()
	return strings.Join(r.events, ", ")
}

func (s *station) read(ctx context.Context, namespace, team string) (r *reader, done chan struct{}) {
	r, done = &reader{}, make(chan struct{})
	go func() {
		defer close(done)
		err := s.Feed(ctx, namespace, team, r.take)
		r.mu.Lock()
		r.err = err
		r.mu.Unlock()
	}()
	return r, done
}

// A feed begins with all that is there, tells the latest state of what has changed, soon, and ends with the term.
func TestAFeedTellsWhatChanges(t *testing.T) {
	bubble(t, func(t *testing.T, s *station, pod *corev1.Pod) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		all, allDone := s.read(ctx, "", "")
		none, noneDone := s.read(ctx, "", "no team's")
		team, teamDone := s.read(ctx, pod.Namespace, pod.Annotations[v1alpha1.LabelTeam])
		for r, want := range map[*reader]string{
			all: id + " on a " + pod.Status.PodIP + ", complete", none: "complete",
			team: id + " on a " + pod.Status.PodIP + ", complete",
		} {
			if got := r.since(); got != want {
				t.Errorf("at first: %q, want %q", got, want)
			}
		}
		for i := range 5 {
			pod = s.Edited(pod, func(p *corev1.Pod) { p.Status.PodIP = fmt.Sprintf("10.0.0.%d", i) })
			s.See(pod)
		}
		time.Sleep(gather)
		if got := all.since(); got != id+" on a 10.0.0.4" {
			t.Errorf("of five changes: %q", got)
		}
		all.mu.Lock()
		all.block = make(chan struct{})
		all.mu.Unlock()
		for i := range 1000 {
			pod = s.Edited(pod, func(p *corev1.Pod) { p.Status.PodIP = fmt.Sprintf("10.0.1.%d", i%250) })
			s.See(pod)
			time.Sleep(time.Millisecond)
		}
		s.update(func(l locked) {
			for f := range l.feeds {
				if len(f.changed) > 1 {
					t.Errorf("I10: %d changes wait", len(f.changed))
				}
			}
		})
		close(all.block)
		time.Sleep(2 * gather)
		if got := all.since(); strings.Count(got, id) > 3 || !strings.HasSuffix(got, "10.0.1.249") {
			t.Errorf("of a thousand changes: %q", got)
		}
		team.since()
		s.Gone(pod)
		time.Sleep(gather)
		if got := team.since(); got != id+" gone Failed" {
			t.Errorf("the end: %q", got)
		}
		if got := none.since(); got != "" {
			t.Errorf("of another team: %q", got)
		}
		s.Suspend()
		for _, done := range []chan struct{}{allDone, noneDone, teamDone} {
			<-done
		}
		if problem.FromError(team.err).Reason != problem.Unavailable {
			t.Errorf("the feed ended with %v", team.err)
		}
		if err := s.Feed(ctx, "", "", team.take); problem.FromError(err).Reason != problem.Unavailable {
			t.Errorf("after the term: %v", err)
		}
	})
}

// TestI14: feeds are few, and leave nothing behind (I10).
func TestI14FeedsAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, s *station, _ *corev1.Pod) {
		ctx, cancel := context.WithCancel(t.Context())
		var open []chan struct{}
		for range maxFeeds {
			_, done := s.read(ctx, "", "")
			open = append(open, done)
		}
		synctest.Wait()
		if err := s.Feed(ctx, "", "", nil); problem.FromError(err).Reason != problem.RateLimited {
			t.Errorf("one more: %v", err)
		}
		cancel()
		for done := range slices.Values(open) {
			<-done
		}
		s.View(func(v *inventory.View) {
			if n := len(s.guarded.In(v).feeds); n != 0 {
				t.Errorf("%d feeds are left", n)
			}
		})
	})
}
