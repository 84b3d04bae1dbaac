// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testlog"
	"navix.sh/atoll/pkg/listing"
	"navix.sh/atoll/pkg/problem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster simulates a worker's feeds: a set of sandboxes, and what waits for its next change.
type cluster struct {
	name string

	mu      sync.Mutex
	live    map[string]*sandboxv1.Sandbox
	down    bool
	silent  bool
	gone    bool                         // forgotten
	known   []*sandboxv1.Sandbox         // as its hub last knew them
	late    *federationv1.SandboxChanges // what its feed still tells after its end
	changed chan struct{}
}

// id names the n-th sandbox of a cluster.
func (c *cluster) id(n int) string { return fmt.Sprintf("01hzzzzzzzzzzzzzzzzzzz%04d-%s", n, c.name) }

func (c *cluster) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	close(c.changed)
	c.changed = make(chan struct{})
}

// put adds or replaces a sandbox.
func (c *cluster) put(n int, change ...func(*sandboxv1.Sandbox)) {
	s := &sandboxv1.Sandbox{Id: c.id(n), ClusterId: c.name, Namespace: "default", Env: "demo", Phase: sandboxv1.Phase_RUNNING}
	for _, f := range change {
		f(s)
	}
	c.change(func() { c.live[s.GetId()] = s })
}

func (c *cluster) end(n int) { c.change(func() { delete(c.live, c.id(n)) }) }

func (c *cluster) feed(ctx context.Context, send func(*federationv1.SandboxChanges) error) error {
	told := map[string]*sandboxv1.Sandbox{}
	for complete := false; ; complete = true {
		c.mu.Lock()
		next, down := c.changed, c.down
		out := &federationv1.SandboxChanges{Complete: !complete}
		for id, s := range c.live {
			if !proto.Equal(told[id], s) {
				told[id] = s
				out.Changed = append(out.Changed, s)
			}
		}
		for id, s := range told {
			if c.live[id] == nil {
				delete(told, id)
				record := proto.CloneOf(s)
				record.Phase = sandboxv1.Phase_ENDED
				out.Gone = append(out.Gone, record)
			}
		}
		c.mu.Unlock()
		if down {
			return errors.New("down")
		}
		slices.SortFunc(out.Changed, compareIDs)
		if len(out.Changed)+len(out.Gone) > 0 || out.GetComplete() {
			if err := send(out); err != nil {
				return err
			}
		}
		select {
		case <-next:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// lateFeed tells a last change after its end, and after what its end brings about.
type lateFeed struct {
	Feed
	last *federationv1.SandboxChanges
}

func (f *lateFeed) Next() (*federationv1.SandboxChanges, error) {
	changes, err := f.Feed.Next()
	if err == nil || f.last == nil {
		return changes, err
	}
	time.Sleep(reviewEvery)
	changes, f.last = f.last, nil
	return changes, nil
}

// world is a Service over clusters.
type world struct {
	*Service
	t        *testing.T
	clusters map[string]*cluster
	block    chan struct{} // of the watches that begin next
}

func newWorld(t *testing.T, limits Limits, names ...string) *world {
	t.Helper()
	w := &world{t: t, clusters: map[string]*cluster{}}
	for _, name := range names {
		w.clusters[name] = &cluster{name: name, live: map[string]*sandboxv1.Sandbox{}, changed: make(chan struct{})}
	}
	w.Service = New(Options{Source: w, Limits: limits, Log: testlog.New(t)})
	t.Cleanup(w.Close)
	return w
}

func (w *world) Clusters() (names []string) {
	for name, c := range w.clusters {
		c.mu.Lock()
		if !c.gone {
			names = append(names, name)
		}
		c.mu.Unlock()
	}
	return names
}

func (w *world) Away(name string) bool {
	c := w.clusters[name]
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.silent
}

func (w *world) Open(ctx context.Context, name string, _ Scope) (Feed, error) {
	c := w.clusters[name]
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down {
		return nil, errors.New("down")
	}
	return &lateFeed{Pipe(ctx, c.feed), c.late}, nil
}

func (w *world) LastKnown(name string, scope Scope) (all []Known) {
	c := w.clusters[name]
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.known {
		if scope.Covers(s) {
			all = append(all, Known{Sandbox: s, Age: time.Minute})
		}
	}
	return all
}

// ear is a caller of a watch.
type ear struct {
	w    *world
	end  context.CancelFunc
	done chan struct{}

	mu     sync.Mutex
	events []*sandboxv1.SandboxEvent
	token  string
	err    error
	block  chan struct{} // closed to take the next event; nil: at once
}

// watch begins a watch of a list.
func (w *world) watch(list *sandboxv1.ListSandboxesRequest, change ...func(*Request)) *ear {
	w.t.Helper()
	after, faults := listing.UnsealMark(list)
	must.Succeed(w.t, faults.Err())
	marks := listing.MarksOf(list)
	query, faults := listing.Parse(list)
	must.Succeed(w.t, faults.Err())
	r := Request{Query: query, Marks: marks, After: after, Sees: func(*sandboxv1.Sandbox) bool { return true }, Cluster: list.GetClusterId()}
	for _, f := range change {
		f(&r)
	}
	e := &ear{w: w, done: make(chan struct{}), block: w.block}
	ctx, cancel := context.WithCancel(w.t.Context())
	e.end = func() { cancel(); <-e.done }
	go func() {
		defer close(e.done)
		err := w.Watch(ctx, r, e.send)
		e.mu.Lock()
		defer e.mu.Unlock()
		e.err = err
	}()
	return e
}

// slowly begins a watch whose caller takes nothing until its block is closed.
func (w *world) slowly(list *sandboxv1.ListSandboxesRequest) *ear {
	w.t.Helper()
	w.block = make(chan struct{})
	defer func() { w.block = nil }()
	return w.watch(list)
}

// hold makes the caller take nothing until its block is closed.
func (e *ear) hold() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.block = make(chan struct{})
}

func (e *ear) send(event *sandboxv1.SandboxEvent) error {
	e.mu.Lock()
	block := e.block
	e.mu.Unlock()
	if block != nil {
		<-block
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.events = append(e.events, event)
	e.token = event.GetResumeToken()
	return nil
}

// heard returns the events since the last call: the first letter of the type, and the end of the id or the clusters.
func (e *ear) heard() string {
	synctest.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []string
	for _, event := range e.events {
		text := event.GetType().String()[:1]
		if id := event.GetSandbox().GetId(); id != "" {
			text += " " + strings.TrimLeft(id[22:26], "0") + id[26:28]
		}
		if age := event.GetSandbox().GetStaleAge(); age != nil {
			text += " " + age.AsDuration().String()
		}
		for _, away := range event.GetUnreachableClusters() {
			text += " " + away
		}
		out = append(out, text)
	}
	e.events = nil
	return strings.Join(out, ", ")
}

func (e *ear) want(what, want string) {
	e.w.t.Helper()
	if got := e.heard(); got != want {
		e.w.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// reason returns why the watch has ended.
func (e *ear) reason() problem.Reason {
	synctest.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err == nil {
		return ""
	}
	return problem.FromError(e.err).Reason
}

func phase(p sandboxv1.Phase) func(*sandboxv1.Sandbox) {
	return func(s *sandboxv1.Sandbox) { s.Phase = p }
}

type list = sandboxv1.ListSandboxesRequest

func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Limits{}, "east", "west")
		east, west := w.clusters["east"], w.clusters["west"]
		east.put(1)
		east.put(2, phase(sandboxv1.Phase_STARTING))
		all := w.watch(&list{})
		running := w.watch(&list{Phase: sandboxv1.Phase_RUNNING, ReadMask: nil, ClusterId: "east"})
		all.want("all at first", "A 1-e, A 2-e, B")
		running.want("running ones at first", "A 1-e, B")
		west.put(7)
		all.want("another", "A 7-w")
		east.put(2)
		all.want("it has started", "M 2-e")
		running.want("it matches", "A 2-e")
		east.put(1, phase(sandboxv1.Phase_STOPPING))
		all.want("it stops", "M 1-e")
		running.want("it matches no more", "D 1-e")
		east.put(1, phase(sandboxv1.Phase_STOPPING), func(s *sandboxv1.Sandbox) { s.Node = "n" })
		running.want("it still does not", "")
		east.end(1)
		all.want("its node, and its end", "M 1-e, D 1-e")
		east.put(1)
		all.want("it is there again", "A 1-e")
		running.want("running again", "A 1-e")
		west.end(7)
		time.Sleep(bookmarkEvery)
		all.want("the end, and the time", "D 7-w, B")
		for _, e := range []*ear{all, running} {
			e.end()
		}
	})
}

// A watch goes on after the last event, and tells once and for all when it cannot.
func TestResumption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Limits{}, "east")
		east := w.clusters["east"]
		for n := range 3 {
			east.put(n + 1)
		}
		first := w.watch(&list{})
		first.want("at first", "A 1-e, A 2-e, A 3-e, B")
		first.end()
		east.put(2, phase(sandboxv1.Phase_STOPPING))
		east.put(2, phase(sandboxv1.Phase_STOPPING), func(s *sandboxv1.Sandbox) { s.Node = "n" })
		east.change(func() { // both at once, so that their order is that of the worker's changes
			delete(east.live, east.id(3))
			s := proto.CloneOf(east.live[east.id(1)])
			s.Id = east.id(4)
			east.live[s.GetId()] = s
		})
		synctest.Wait()
		again := w.watch(&list{ResumeToken: first.token})
		again.want("what it missed", "M 2-e, A 4-e, D 3-e, B")
		again.end()
		stopped := w.watch(&list{ResumeToken: first.token}, func(r *Request) {
			r.Query, _ = listing.Parse(&list{Phase: sandboxv1.Phase_RUNNING})
		})
		stopped.want("what does not match any more is gone", "D 2-e, A 4-e, D 3-e, B")
		stopped.end()
		for n := range maxEnded + 1 {
			east.put(1000 + n)
			synctest.Wait()
			east.end(1000 + n)
			synctest.Wait()
		}
		for name, token := range map[string]string{
			"behind what was dropped": again.token,
			"of another copy":         listing.MarksOf(&list{}).Seal(listing.Mark{Copy: 1, Revision: 1}),
		} {
			e := w.watch(&list{ResumeToken: token})
			if got := e.reason(); got != problem.Expired {
				t.Errorf("%s: %q", name, got)
			}
		}
		time.Sleep(linger + 3*reviewEvery)
		if e := w.watch(&list{ResumeToken: first.token}); e.reason() != problem.Expired {
			t.Errorf("after the copy is gone: %q", e.reason())
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.topics) != 1 {
			t.Errorf("%d copies", len(w.topics))
		}
	})
}

// TestI10AResumedWatchKeepsNoEndedSandbox, also if the sandbox left the filter before it ended.
func TestI10AResumedWatchKeepsNoEndedSandbox(t *testing.T) {
	world := newWorld(t, Limits{}, "east")
	query, faults := listing.Parse(&list{Phase: sandboxv1.Phase_RUNNING})
	must.Succeed(t, faults.Err())
	topic := newTopic(world.Service, Scope{})
	defer topic.end()
	w := &watch{
		Request: Request{
			Query: query, Marks: listing.MarksOf(&list{}), After: &listing.Mark{Copy: topic.copyID, Revision: 1},
			Sees: func(*sandboxv1.Sandbox) bool { return true },
		},
		topic: topic, service: world.Service, known: map[string]bool{}, out: make(chan *sandboxv1.SandboxEvent, 1), sent: make(chan error, 1),
	}
	revision := uint64(1)
	change := func(born uint64, p sandboxv1.Phase, gone bool, want string) {
		t.Helper()
		revision++
		s := &sandboxv1.Sandbox{Id: world.clusters["east"].id(int(born)), Phase: p}
		w.sent <- nil
		must.Succeed(t, w.pass(t.Context(), &item{sandbox: s, cluster: "east", revision: revision, born: born, gone: gone}, nil))
		got := ""
		select {
		case event := <-w.out:
			got = event.GetType().String()
		case <-w.sent: // nothing was delivered
		}
		if got != want {
			t.Errorf("sandbox %d, %s, ended %t: %q, want %q", born, p, gone, got, want)
		}
	}
	for born, first := range map[uint64]string{1: "MODIFIED", 2: "ADDED"} { // before and after the resumeToken
		change(born, sandboxv1.Phase_RUNNING, false, first)
		change(born, sandboxv1.Phase_STOPPING, false, "DELETED")
		change(born, sandboxv1.Phase_STOPPING, false, "")
		change(born, sandboxv1.Phase_ENDED, true, "")
		if len(w.known) > 0 {
			t.Errorf("sandbox %d has ended, and %v is kept", born, w.known)
		}
	}
}

// I5: what is not heard has not ended. What a cluster says when it is back, has.
func TestI5AClusterThatIsAwayEndsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Limits{}, "east", "west", "never")
		w.clusters["never"].down = true
		east := w.clusters["east"]
		for n := range 3 {
			east.put(n + 1)
		}
		e := w.watch(&list{})
		defer e.end()
		e.want("at first", "A 1-e, A 2-e, A 3-e, B never")
		east.change(func() { east.down = true })
		e.want("away", "B east never")
		time.Sleep(20 * time.Second)
		e.want("for long", "")
		late := w.watch(&list{})
		defer late.end()
		late.want("a watch that begins meanwhile", "A 1-e 20s, A 2-e 20s, A 3-e 20s, B east never")
		east.end(1)
		east.put(2, phase(sandboxv1.Phase_STOPPING))
		east.change(func() { east.down = false })
		time.Sleep(lastPause)
		e.want("back", "M 2-e, D 1-e, B never")
		late.want("back", "M 2-e, D 1-e, B never")
		west := w.clusters["west"]
		west.change(func() { west.silent = true })
		time.Sleep(2 * reviewEvery)
		e.want("silent", "B never west")
		west.change(func() { west.silent = false })
		never := w.clusters["never"]
		never.change(func() { never.gone = true })
		east.change(func() { east.gone = true })
		time.Sleep(2 * reviewEvery)
		told := strings.Split(e.heard(), ", ")
		if slices.Sort(told); !slices.Equal(told, []string{"B", "D 2-e", "D 3-e"}) {
			t.Errorf("forgotten: %q", told)
		}
	})
}

// A watch that begins while a cluster is away shows its sandboxes as last known, as a list does, until the cluster tells how they are.
func TestAWatchOfAClusterThatIsAwayBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Limits{}, "east")
		east := w.clusters["east"]
		east.put(1)
		east.put(2)
		east.known = append(slices.Collect(maps.Values(east.live)),
			&sandboxv1.Sandbox{Id: east.id(3), Namespace: "other"}, &sandboxv1.Sandbox{Id: "01hzzzzzzzzzzzzzzzzzzz0004-west", Namespace: "default"})
		slices.SortFunc(east.known, compareIDs)
		east.down = true
		e := w.watch(&list{}, func(r *Request) { r.Scope.Namespace = "default" })
		defer e.end()
		e.want("as last known", "A 1-e 1m0s, A 2-e 1m0s, B east")
		east.end(2)
		east.change(func() { east.down = false })
		time.Sleep(lastPause)
		e.want("back", "M 1-e, D 2-e, B")
		east.change(func() { east.down = true })
		e.want("away again", "B east")
		time.Sleep(10 * time.Second)
		late := w.watch(&list{}, func(r *Request) { r.Scope.Namespace = "default" })
		defer late.end()
		late.want("its age is that of the feed, and the record of the one that has ended is none", "A 1-e 10s, B east")
	})
}

// TestAForgottenClusterStaysForgotten: what its feed still tells brings no sandbox back.
func TestAForgottenClusterStaysForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Limits{}, "east")
		east := w.clusters["east"]
		east.put(1)
		east.late = &federationv1.SandboxChanges{Changed: []*sandboxv1.Sandbox{
			{Id: east.id(1), ClusterId: east.name, Namespace: "default", Env: "demo", Phase: sandboxv1.Phase_STOPPING},
		}}
		e := w.watch(&list{})
		defer e.end()
		e.want("at first", "A 1-e, B")
		east.change(func() { east.gone = true })
		time.Sleep(4 * reviewEvery)
		e.want("forgotten", "D 1-e")
	})
}

// TestMetrics counts what was sent, and how watches end.
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics, err := NewMetrics(prometheus.NewRegistry(), "test")
		must.Succeed(t, err)
		w := newWorld(t, Limits{All: 2, Patience: time.Second}, "east")
		w.metrics = metrics
		w.clusters["east"].put(1)
		e := w.watch(&list{})
		e.want("at first", "A 1-e, B")
		slow := w.slowly(&list{})
		synctest.Wait()
		open := testutil.ToFloat64(metrics.open)
		if got := w.watch(&list{}).reason(); got != problem.RateLimited || open != 2 {
			t.Errorf("a third one: %s, where %v are open", got, open)
		}
		time.Sleep(2 * time.Second)
		if got := slow.reason(); got != problem.Deadline {
			t.Errorf("the slow one: %s", got)
		}
		e.end()
		close(slow.block)
		synctest.Wait()
		counted := map[string]float64{"open": testutil.ToFloat64(metrics.open)}
		for _, kind := range []string{"ADDED", "BOOKMARK"} {
			counted[kind] = testutil.ToFloat64(metrics.events.WithLabelValues(kind))
		}
		for _, outcome := range []string{"ok", "deadline", "rate_limited"} {
			counted[outcome] = testutil.ToFloat64(metrics.ended.WithLabelValues(outcome))
		}
		want := map[string]float64{"open": 0, "ADDED": 1, "BOOKMARK": 1, "ok": 1, "deadline": 1, "rate_limited": 1}
		if !maps.Equal(counted, want) || testutil.CollectAndCount(metrics.ended) != 3 {
			t.Errorf("counted are %v, want %v", counted, want)
		}
	})
}

// TestI14: a caller that takes nothing costs a place, no queue, and is ended with a reason; the others get the latest state.
func TestI14ASlowWatchIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Limits{Patience: 10 * time.Second}, "east")
		east := w.clusters["east"]
		for n := range 10 {
			east.put(n)
		}
		slow := w.slowly(&list{})
		quick := w.watch(&list{})
		quick.heard()
		for i := range 2000 {
			east.put(i%10, func(s *sandboxv1.Sandbox) { s.Node = fmt.Sprint(i) })
			synctest.Wait()
		}
		quick.heard()
		copied := w.topics[Scope{}]
		copied.mu.Lock()
		if n := len(copied.log); n > 2*10+slack+1 {
			t.Errorf("I10: the log has %d entries for 10 sandboxes", n)
		}
		copied.mu.Unlock()
		time.Sleep(9 * time.Second)
		if got := slow.reason(); got != "" {
			t.Errorf("too early: %s", got)
		}
		time.Sleep(2 * time.Second)
		if got := slow.reason(); got != problem.Deadline {
			t.Errorf("the slow one ended with %q", got)
		}
		close(slow.block)
		quick.end()
	})
}

// TestI14: a slow watch that has missed an end is told so.
func TestI14ASlowWatchThatMissedAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Limits{Patience: time.Hour}, "east")
		east := w.clusters["east"]
		east.put(0)
		slow := w.watch(&list{})
		slow.heard()
		slow.hold()
		for n := range maxEnded + 10 {
			east.put(1 + n)
			synctest.Wait()
			east.end(1 + n)
			synctest.Wait()
		}
		if n := len(w.topics[Scope{}].items); n > maxEnded+1 {
			t.Errorf("I10: a copy has %d sandboxes", n)
		}
		close(slow.block)
		if got := slow.reason(); got != problem.Expired {
			t.Errorf("it ended with %q", got)
		}
	})
}

// TestI14: so is one that has missed ends while it sent a BOOKMARK, although later ends follow.
func TestI14AWatchThatMissedAnEndDuringABookmark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Limits{Patience: time.Hour}, "east")
		east := w.clusters["east"]
		for n := range maxEnded + 10 {
			east.put(n)
		}
		slow := w.watch(&list{})
		slow.heard()
		slow.hold()
		time.Sleep(bookmarkEvery + time.Second)
		for n := range maxEnded + 10 {
			east.end(n)
		}
		synctest.Wait()
		close(slow.block)
		if got := slow.reason(); got != problem.Expired {
			t.Errorf("it ended with %q", got)
		}
	})
}

func TestI14WatchesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Limits{All: 5, Team: 3, Key: 2, Topics: 2}, "east")
		of := func(key, team, namespace string) func(*Request) {
			return func(r *Request) { r.Key, r.Team, r.Scope = key, team, Scope{Namespace: namespace} }
		}
		var open []*ear
		for _, tc := range []struct {
			key, team, namespace string
			want                 problem.Reason
		}{
			{"a", "red", "1", ""}, {"a", "red", "1", ""}, {"a", "red", "1", problem.RateLimited},
			{"b", "red", "1", ""}, {"c", "red", "1", problem.RateLimited},
			{"d", "blue", "2", ""}, {"e", "", "3", problem.RateLimited}, {"e", "", "1", ""}, {"", "", "1", problem.RateLimited},
		} {
			e := w.watch(&list{}, of(tc.key, tc.team, tc.namespace))
			if got := e.reason(); got != tc.want {
				t.Errorf("%+v: %q", tc, got)
			}
			if tc.want == "" {
				open = append(open, e)
			}
		}
		for _, e := range open {
			e.end()
		}
		e := w.watch(&list{}, of("a", "red", "3")) // in the place of one without watches
		if got := e.reason(); got != "" {
			t.Errorf("after the others: %q", got)
		}
		e.end()
		if w.all.Len()+w.teams.Len()+w.keys.Len() != 0 {
			t.Error("I10: something is left of watches that have ended")
		}
	})
}

// TestI14: a cluster that tells more than it may is cut off, and costs the others nothing; what it took is given back.
func TestI14AClusterHasABudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Limits{Bytes: 20 * (itemBytes + 100)}, "east", "west")
		for n := range 100 {
			w.clusters["east"].put(n)
		}
		w.clusters["west"].put(1)
		e := w.watch(&list{ClusterId: "west"})
		e.want("the honest one", "A 1-w, B")
		other := w.watch(&list{})
		time.Sleep(5 * time.Second)
		if got := other.heard(); !strings.HasSuffix(got, "B east") {
			t.Errorf("with the other: %s", got)
		}
		w.budget.mu.Lock()
		if n := w.budget.used["east"]; n == 0 || n > w.limits.Bytes {
			t.Errorf("it has %d bytes", n)
		}
		w.budget.mu.Unlock()
		e.end()
		other.end()
		w.Close()
		if len(w.budget.used) != 0 {
			t.Errorf("I10: %v is left", w.budget.used)
		}
		if e := w.watch(&list{}); e.reason() != problem.Unavailable {
			t.Errorf("after the end: %q", e.reason())
		}
	})
}
