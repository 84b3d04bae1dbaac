// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"k8s.io/utils/clock"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/listing"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/tally"
)

const (
	// reviewEvery is the maximum delay until a new cluster is followed, and until a copy that has lingered is dropped.
	reviewEvery = time.Second
	// linger is how long a copy without watches is kept.
	linger = time.Minute
	// settleWithin is how long a watch waits for clusters that were not heard from before it names them.
	settleWithin = 3 * time.Second
	// bookmarkEvery is the interval of bookmarks. They keep the caller's mark valid, and the connection alive.
	bookmarkEvery = 30 * time.Second
	// batch is the maximum number of changes that a watch reads from a copy at once.
	batch = 256
)

// Options configure a Service.
type Options struct {
	Source  Source
	Clock   clock.WithTicker // the real one if nil
	Limits  Limits
	Metrics *Metrics // nil: none
	Log     logr.Logger
}

// Service serves watches.
type Service struct {
	source  Source
	clock   clock.WithTicker
	limits  Limits
	metrics *Metrics
	log     logr.Logger
	budget  budget
	all     *tally.Tally[struct{}]
	teams   *tally.Tally[string]
	keys    *tally.Tally[string]

	mu     sync.Mutex
	topics map[Scope]*topic
	over   bool
	run    sync.WaitGroup
}

// New returns a Service.
func New(o Options) *Service {
	limits := o.Limits.filled()
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &Service{
		source: o.Source, clock: o.Clock, limits: limits, metrics: o.Metrics, log: o.Log,
		budget: budget{most: limits.Bytes, used: map[string]int{}},
		all:    tally.New[struct{}](limits.All), teams: tally.New[string](limits.Team), keys: tally.New[string](limits.Key),
		topics: map[Scope]*topic{},
	}
}

// Close ends all watches and feeds, and waits for the feeds.
func (s *Service) Close() {
	s.mu.Lock()
	s.over = true
	for scope, t := range s.topics {
		delete(s.topics, scope)
		t.end()
	}
	s.mu.Unlock()
	s.run.Wait()
}

// Request describes a watch.
type Request struct {
	Key, Team string // owner of the watch; empty: not bounded separately
	Scope     Scope  // must contain everything for which Sees returns true
	Cluster   string // empty: all
	// SeesCluster reports whether a cluster may be named while it is away; nil: all clusters may.
	SeesCluster func(cluster string) bool
	Query       *listing.Query
	Sees        func(*sandboxv1.Sandbox) bool
	Marks       listing.Marks
	After       *listing.Mark // nil: from the beginning
}

// names reports whether the watch waits for a cluster, and names the cluster while it is away.
func (r *Request) names(cluster string) bool {
	return (r.Cluster == "" || r.Cluster == cluster) && (r.SeesCluster == nil || r.SeesCluster(cluster))
}

// errEnding ends the watches of a process that terminates or stops serving.
var errEnding = problem.New(problem.Unavailable, "this process is about to end; watch again with the last resumeToken").
	WithRetryAfter(time.Second)

func expired(why string) error {
	return problem.New(problem.Expired, "%s: drop what is known, and watch again without a resumeToken", why)
}

// Watch sends events until ctx ends or the watch cannot continue. It never calls send concurrently. A call of send may still be running
// when Watch returns; it must then end.
func (s *Service) Watch(ctx context.Context, r Request, send func(*sandboxv1.SandboxEvent) error) (err error) {
	defer func() { s.metrics.over(ctx, err) }()
	leave, err := s.enter(r)
	if err != nil {
		return err
	}
	defer leave()
	s.metrics.began()
	defer s.metrics.left()
	t, err := s.join(r.Scope)
	if err != nil {
		return err
	}
	defer s.part(t)
	w := &watch{
		Request: r, topic: t, service: s, known: map[string]bool{}, out: make(chan *sandboxv1.SandboxEvent), sent: make(chan error, 1),
	}
	if err := w.begin(); err != nil {
		return err
	}
	defer close(w.out)
	go func() {
		for event := range w.out {
			w.sent <- send(event)
		}
	}()
	return w.serve(ctx)
}

// enter counts a watch, or fails if a bound is reached.
func (s *Service) enter(r Request) (leave func(), err error) {
	var entered []func()
	leave = func() {
		for _, f := range entered {
			f()
		}
	}
	refuse := func(whose string, most int) error {
		leave()
		return problem.New(problem.RateLimited, "%s has %d watches already", whose, most).WithRetryAfter(problem.RetrySoon)
	}
	if r.Key != "" {
		if !s.keys.Enter(r.Key) {
			return nil, refuse("this API key", s.limits.Key)
		}
		entered = append(entered, func() { s.keys.Leave(r.Key) })
	}
	if r.Team != "" {
		if !s.teams.Enter(r.Team) {
			return nil, refuse("this team", s.limits.Team)
		}
		entered = append(entered, func() { s.teams.Leave(r.Team) })
	}
	if !s.all.Enter(struct{}{}) {
		return nil, refuse("this server", s.limits.All)
	}
	entered = append(entered, func() { s.all.Leave(struct{}{}) })
	return leave, nil
}

// join returns the topic of a Scope, and creates it if necessary.
func (s *Service) join(scope Scope) (*topic, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return nil, errEnding
	}
	t := s.topics[scope]
	if t == nil {
		if len(s.topics) >= s.limits.Topics && !s.evict() {
			return nil, problem.New(problem.RateLimited, "%d teams and namespaces are watched already", s.limits.Topics).
				WithRetryAfter(problem.RetrySoon)
		}
		t = newTopic(s, scope)
		s.topics[scope] = t
		s.run.Go(t.run)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.users++
	return t, nil
}

// evict ends the topic that has had no watches for the longest time. The caller holds the lock.
func (s *Service) evict() bool {
	var oldest *topic
	for _, t := range s.topics {
		t.mu.Lock()
		if t.users == 0 && (oldest == nil || t.idle.Before(oldest.idle)) {
			oldest = t
		}
		t.mu.Unlock()
	}
	if oldest == nil {
		return false
	}
	delete(s.topics, oldest.scope)
	oldest.end()
	return true
}

func (s *Service) part(t *topic) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.users--; t.users == 0 {
		t.idle = s.clock.Now()
	}
}

// sweep ends topics that have had no watches for too long.
func (s *Service) sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for scope, t := range s.topics {
		t.mu.Lock()
		over := t.users == 0 && s.clock.Since(t.idle) > linger
		t.mu.Unlock()
		if over {
			delete(s.topics, scope)
			t.end()
		}
	}
}

// watch is one watch.
type watch struct {
	Request
	service *Service
	topic   *topic
	cursor  uint64          // revision up to which everything was sent
	floor   uint64          // ends up to this revision need not be sent
	known   map[string]bool // sandboxes that the caller was sent; false: the last event was an end
	away    []string        // clusters in the last BOOKMARK

	out  chan *sandboxv1.SandboxEvent
	sent chan error
}

// begin determines the position at which the watch starts.
func (w *watch) begin() error {
	at := w.topic.position()
	if w.After == nil {
		w.floor = at.revision
		return nil
	}
	if w.After.Copy != at.copyID || w.After.Revision > at.revision || w.After.Revision < at.horizon {
		return expired("the resumeToken is too old, or of another server")
	}
	w.cursor, w.floor = w.After.Revision, w.After.Revision
	return nil
}

func (w *watch) serve(ctx context.Context) error {
	settle := w.service.clock.NewTimer(settleWithin)
	defer settle.Stop()
	beat := w.service.clock.NewTicker(bookmarkEvery)
	defer beat.Stop()
	patient, begun := true, false
	for {
		seen := w.topic.since(w.cursor, batch, w.names)
		if seen.horizon > max(w.cursor, w.floor) { // check before the cursor moves beyond what was missed
			return expired("the watch has missed sandboxes that have ended, because more ended than it was sent in time")
		}
		for i := range seen.changes {
			if err := w.pass(ctx, &seen.changes[i], seen.ages[i]); err != nil {
				return err
			}
		}
		if len(seen.changes) > 0 {
			continue
		}
		if seen.settled || !patient {
			if !begun || !slices.Equal(seen.away, w.away) {
				if err := w.bookmark(ctx, seen.away); err != nil {
					return err
				}
			}
			begun = true
		}
		select {
		case <-seen.next:
		case <-settle.C():
			patient = false
		case <-beat.C():
			if begun {
				if err := w.bookmark(ctx, seen.away); err != nil {
					return err
				}
			}
		case <-w.topic.ended.Done():
			return errEnding
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// pass sends the change of an item if it concerns the caller.
func (w *watch) pass(ctx context.Context, it *item, age *durationpb.Duration) error {
	w.cursor = it.revision
	s := it.sandbox
	if !w.Query.Concerns(s) || !w.Sees(s) {
		return nil
	}
	known, told := w.known[s.GetId()]
	if !told && w.After != nil && it.born <= w.After.Revision {
		known = true // as far as is known
	}
	if age != nil {
		s = proto.CloneOf(s)
		s.StaleAge = age
	}
	event := &sandboxv1.SandboxEvent{Sandbox: w.Query.Masked(s), ResumeToken: w.mark()}
	switch there := !it.gone && w.Query.Includes(s); {
	case there && known:
		event.Type = sandboxv1.SandboxEvent_MODIFIED
	case there:
		event.Type = sandboxv1.SandboxEvent_ADDED
	case known:
		event.Type = sandboxv1.SandboxEvent_DELETED
	default:
		if it.gone { // it left the filter before it ended
			delete(w.known, s.GetId())
		}
		return nil
	}
	if w.known[s.GetId()] = event.Type != sandboxv1.SandboxEvent_DELETED; it.gone || !w.known[s.GetId()] && w.After == nil {
		delete(w.known, s.GetId())
	}
	return w.deliver(ctx, event)
}

func (w *watch) bookmark(ctx context.Context, away []string) error {
	w.away = away
	return w.deliver(ctx, &sandboxv1.SandboxEvent{
		Type: sandboxv1.SandboxEvent_BOOKMARK, ResumeToken: w.mark(), UnreachableClusters: away,
	})
}

func (w *watch) mark() string {
	return w.Marks.Seal(listing.Mark{Copy: w.topic.copyID, Revision: w.cursor})
}

// deliver waits until the caller has taken the event.
func (w *watch) deliver(ctx context.Context, event *sandboxv1.SandboxEvent) error {
	timer := w.service.clock.NewTimer(w.service.limits.Patience)
	defer timer.Stop()
	w.out <- event
	select {
	case err := <-w.sent:
		if err == nil {
			w.service.metrics.sent(event.GetType())
		}
		return err
	case <-timer.C():
		return problem.New(problem.Deadline, "the caller did not take an event within %s; watch again with the last resumeToken",
			w.service.limits.Patience)
	case <-w.topic.ended.Done():
		return errEnding
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
