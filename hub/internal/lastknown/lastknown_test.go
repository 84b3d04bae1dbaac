// SPDX-License-Identifier: Apache-2.0

package lastknown

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
)

// cluster is a worker that has sandboxes, and lists them in pages.
type cluster struct {
	mu        sync.Mutex
	sandboxes []*sandboxv1.Sandbox // by id
	page      int
	fails     int  // this page and later ones; 0: none
	loops     bool // its page token does not advance
	lists     int
}

func (c *cluster) Dispatch(_ context.Context, _ string, d *federationv1.Dispatch) (*federationv1.Answer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	token := d.GetList().GetPageToken()
	if token == "" {
		c.lists++
	}
	at := 0
	for at < len(c.sandboxes) && c.sandboxes[at].GetId() <= token {
		at++
	}
	if c.fails > 0 && at >= (c.fails-1)*c.page {
		return nil, errors.New("the stream broke")
	}
	end := min(at+c.page, len(c.sandboxes))
	out := &sandboxv1.ListSandboxesResponse{Sandboxes: c.sandboxes[at:end]}
	switch {
	case c.loops:
		out.NextPageToken = "0"
	case end < len(c.sandboxes):
		out.NextPageToken = c.sandboxes[end-1].GetId()
	}
	return &federationv1.Answer{Disposition: federationv1.Disposition_DONE, Result: &federationv1.Answer_List{List: out}}, nil
}

func (c *cluster) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

func sandbox(n int, at string) *sandboxv1.Sandbox {
	return &sandboxv1.Sandbox{Id: fmt.Sprintf("01hzzzzzzzzzzzzzzzzz%06d-%s", n, at), Phase: sandboxv1.Phase_RUNNING}
}

func start(t *testing.T, c *cluster, registered func() []string) *Sandboxes {
	t.Helper()
	s := New(Options{Dispatcher: c, Clusters: registered, Clock: clock.RealClock{}})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		must.Succeed(t, <-done)
	})
	return s
}

func all(*sandboxv1.Sandbox) bool { return true }

func ids(known []Sandbox) (out []string) {
	for _, s := range known {
		out = append(out, s.GetId())
	}
	return out
}

// I5: only a complete list takes a sandbox away.
func TestWhatAListLeavesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{page: 2}
		for i := range 5 {
			c.sandboxes = append(c.sandboxes, sandbox(i, "east"))
		}
		registered := []string{"east"}
		s := start(t, c, func() []string {
			c.mu.Lock()
			defer c.mu.Unlock()
			return registered
		})
		check := func(when string, want int) {
			t.Helper()
			time.Sleep(time.Minute)
			if got := s.Of("east", all); len(got) != want || !slices.IsSorted(ids(got)) {
				t.Errorf("%s: known are %v, want %d", when, ids(got), want)
			}
		}
		check("listed", 5)
		c.set(func() { c.fails, c.sandboxes = 2, c.sandboxes[:3] })
		check("the second page fails", 5)
		c.set(func() { c.fails, c.loops = 0, true })
		check("the token does not advance", 5)
		c.set(func() { c.loops = false })
		check("listed again", 3)
		c.set(func() { c.fails = 1 })
		check("the cluster is away", 3)
		if age := s.Of("east", all)[0].Age; age < time.Minute || age > time.Minute+listEvery+time.Second {
			t.Errorf("the age is %s", age)
		}
		c.set(func() { registered = nil })
		check("forgotten", 0)
	})
}

// A cluster of many sandboxes is listed less often.
func TestListsOfManyAreRare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{page: pageSize}
		for i := range 9000 {
			c.sandboxes = append(c.sandboxes, sandbox(i, "east"))
		}
		start(t, c, func() []string { return []string{"east"} })
		time.Sleep(1050 * time.Second)
		c.set(func() {
			if c.lists < 9 || c.lists > 12 {
				t.Errorf("%d lists in 1050 s", c.lists)
			}
		})
	})
}

// The clusters are known at once, as they are when a hub starts.
func TestListsAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clusters = 400
		var names []string
		for i := range clusters {
			names = append(names, fmt.Sprint("c", i))
		}
		c := &cluster{}
		start(t, c, func() []string { return names })
		total, most := 0, 0
		time.Sleep(look / 2)
		for range 6 * listEvery / look {
			c.set(func() { most, total = max(most, c.lists-total), c.lists })
			time.Sleep(look)
		}
		even := clusters / int(listEvery/look)
		if total < 5*clusters || most > 2*even {
			t.Errorf("%d lists in a minute, at most %d at once; want %d, and at most %d", total, most, 6*clusters, 2*even)
		}
	})
}

// One cluster's sandboxes cost the hub and other clusters a fixed share at most, and name no others'.
func TestI14SharesAreBounded(t *testing.T) {
	s := New(Options{Dispatcher: &cluster{}, Clock: clock.RealClock{}})
	for i := range maxSandboxes + 10 {
		s.keep("east", sandbox(i, "east"))
	}
	s.keep("west", sandbox(1, "west"), sandbox(2, "east"))
	if many, few := len(s.Of("east", all)), len(s.Of("west", all)); many != maxSandboxes || few != 1 {
		t.Errorf("known are %d and %d", many, few)
	}
	s.keep("east", &sandboxv1.Sandbox{Id: sandbox(0, "east").GetId(), Phase: sandboxv1.Phase_ENDED})
	if got := len(s.Of("east", all)); got != maxSandboxes-1 {
		t.Errorf("known are %d once one has ended", got)
	}
	for i := range 2 * maxBytes / (256 << 10) {
		large := sandbox(i, "north")
		large.FailureMessage = strings.Repeat("x", 256<<10)
		s.keep("north", large)
	}
	if kept := s.clusters["north"].bytes; kept > maxBytes || kept < maxBytes-(512<<10) {
		t.Errorf("%d bytes are kept", kept)
	}
}
