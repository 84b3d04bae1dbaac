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

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/hub/internal/workertest"
	"navix.sh/atoll/pkg/access"
	"navix.sh/atoll/pkg/problem"
)

// heard are the events of a watch.
type heard struct {
	mu     sync.Mutex
	events []*sandboxv1.SandboxEvent
	err    error
}

func (h *heard) send(e *sandboxv1.SandboxEvent) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, e)
	return nil
}

// tell returns the events since the last call: the type's first letter and the cluster, in order.
func (h *heard) tell() string {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []string
	for _, e := range h.events {
		text := e.GetType().String()[:1] + " "
		if e.GetType() == sandboxv1.SandboxEvent_BOOKMARK {
			text += strings.Join(e.GetUnreachableClusters(), "+")
		} else {
			text += e.GetSandbox().GetClusterId() + "/" + e.GetSandbox().GetTeam()
		}
		out = append(out, strings.TrimSpace(text))
	}
	h.events = nil
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// watch begins a watch that ends with the returned function.
func (f *federation) watch(p principal.Principal, r *sandboxv1.WatchSandboxesRequest) (h *heard, end func()) {
	ctx, cancel := context.WithCancel(principal.With(f.t.Context(), p))
	h = &heard{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := f.hub.Watch(ctx, r, h.send)
		h.mu.Lock()
		h.err = err
		h.mu.Unlock()
	}()
	return h, func() { cancel(); <-done }
}

// A caller sees in a watch what it sees in a list, and a cluster's word counts for its own sandboxes alone (I15). Callers of one
// team share what the hub asks clusters for.
func TestAWatchShowsWhatItsCallerMaySee(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5, "west": 5, "liar": 5})
		defer f.hub.CloseWatches()
		for _, cluster := range []string{"east", "west"} {
			for _, team := range []string{"red", "blue"} {
				f.create(workertest.Request("", workertest.Prefer(cluster), func(r *sandboxv1.CreateSandboxRequest) { r.Team = team }))
			}
		}
		f.Workers["liar"].OnFeed = func(ctx context.Context, send func(*federationv1.SandboxChanges) error) error {
			for id := range f.Workers["east"].Live {
				if err := send(&federationv1.SandboxChanges{Gone: []*sandboxv1.Sandbox{{Id: id}}, Complete: true}); err != nil {
					return err
				}
			}
			<-ctx.Done()
			return ctx.Err()
		}
		red := principal.Principal{Name: "r", Team: "red", AllNamespaces: true}
		west := principal.Of(&access.Identity{}, access.Permission{}, access.Grant{Scopes: []access.Scope{
			{AllNamespaces: true, AllTeams: true, Clusters: []string{"west"}},
		}})
		for _, tc := range []struct {
			p    principal.Principal
			r    *sandboxv1.WatchSandboxesRequest
			want string
		}{
			{principal.Principal{AllTeams: true, AllNamespaces: true}, &sandboxv1.WatchSandboxesRequest{},
				"A east/blue, A east/red, A west/blue, A west/red, B liar"},
			{principal.Principal{AllTeams: true, AllNamespaces: true}, &sandboxv1.WatchSandboxesRequest{Team: "blue", ClusterId: "west"},
				"A west/blue, B"},
			{red, &sandboxv1.WatchSandboxesRequest{}, "A east/red, A west/red, B liar"},
			{red, &sandboxv1.WatchSandboxesRequest{ClusterId: "east"}, "A east/red, B"},
			{red, &sandboxv1.WatchSandboxesRequest{LabelSelector: "app"}, "B liar"},
			{principal.Principal{Team: "red", Namespaces: []string{"prod"}}, &sandboxv1.WatchSandboxesRequest{}, "B liar"},
			{principal.Principal{AllTeams: true, Namespaces: []string{"a", "b"}}, &sandboxv1.WatchSandboxesRequest{}, "B liar"},
			{west, &sandboxv1.WatchSandboxesRequest{}, "A west/blue, A west/red, B"},
		} {
			h, end := f.watch(tc.p, tc.r)
			time.Sleep(5 * time.Second)
			if got := h.tell(); got != tc.want {
				t.Errorf("%+v, %v: %s, want %s", tc.p, tc.r, got, tc.want)
			}
			end()
		}
		for want, r := range map[problem.Reason]*sandboxv1.WatchSandboxesRequest{
			problem.Forbidden: {Team: "blue"}, problem.NotFound: {ClusterId: "mars"}, problem.Invalid: {ResumeToken: "x"},
		} {
			workertest.WantReason(t, f.hub.Watch(principal.With(t.Context(), red), r, nil), want)
		}
		hidden := f.hub.Watch(principal.With(t.Context(), west), &sandboxv1.WatchSandboxesRequest{ClusterId: "liar"}, nil)
		workertest.WantReason(t, hidden, problem.NotFound)
		workertest.WantReason(t, f.hub.Watch(t.Context(), &sandboxv1.WatchSandboxesRequest{Phase: sandboxv1.Phase_ENDED}, nil), problem.Invalid)
		if n := len(f.Workers["west"].Watched); n != 3 { // of all; of red; of red in prod
			t.Errorf("a worker sends %d feeds", n)
		}
	})
}

// I5: a cluster that is away is named, and its sandboxes stay; so it is with a worker that does not know the call.
func TestI5AWatchLosesNothingWithACluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 5, "west": 5})
		defer f.hub.CloseWatches()
		s := f.create(workertest.Request("", workertest.Prefer("east")))
		cut := make(chan struct{})
		f.Workers["east"].OnFeed = func(ctx context.Context, send func(*federationv1.SandboxChanges) error) error {
			if err := send(&federationv1.SandboxChanges{Changed: []*sandboxv1.Sandbox{s}, Complete: true}); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
			case <-cut:
			}
			return fmt.Errorf("cut off")
		}
		f.Workers["west"].OnCall = func(context.Context, *federationv1.Dispatch) (*federationv1.Answer, error) {
			return workertest.Failure(federationv1.Disposition_REFUSED, problem.Unimplemented), nil
		}
		h, end := f.watch(principal.Principal{AllTeams: true, AllNamespaces: true}, &sandboxv1.WatchSandboxesRequest{})
		defer end()
		time.Sleep(5 * time.Second)
		if got := h.tell(); got != "A east/, B west" {
			t.Errorf("at first: %s", got)
		}
		f.Workers["east"].SetConnected(false)
		cut <- struct{}{}
		time.Sleep(5 * time.Second)
		if got := h.tell(); got != "B east+west" {
			t.Errorf("when it is away: %s", got)
		}
		f.Workers["east"].SetConnected(true)
		time.Sleep(2 * time.Second)
		if got := h.tell(); got != "B west" {
			t.Errorf("when it is back: %s", got)
		}
	})
}
