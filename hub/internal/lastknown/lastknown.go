// SPDX-License-Identifier: Apache-2.0

package lastknown

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/calls"
)

const (
	// listEvery is the interval at which a cluster with few sandboxes is listed. Each sandbox adds listPer to it.
	listEvery = 10 * time.Second
	listPer   = 10 * time.Millisecond
	// look is the interval at which the hub checks whether a list is due.
	look = 250 * time.Millisecond
	// spread is the distance between the first lists of two successive clusters, in thousandths of listEvery. The golden ratio leaves even
	// gaps for any number of clusters.
	spread = 618
	// pageSize is the size of the page of one call.
	pageSize = 1000
	// maxSandboxes and maxBytes bound one cluster's share. Sandboxes beyond them are not kept.
	maxSandboxes = 20_000
	maxBytes     = 32 << 20
)

// Why a list is not complete.
var (
	errTooMany = errors.New("the cluster lists more sandboxes than are kept")
	errNoEnd   = errors.New("the cluster's page token does not advance")
)

// Options configure Sandboxes. All are required.
type Options struct {
	Dispatcher calls.Dispatcher
	Clusters   func() []string // lists the registered clusters
	Clock      clock.WithTicker
}

// Sandboxes holds the last known live sandboxes of all clusters. It is a Dispatcher that records the sandboxes in the responses that pass
// through it.
type Sandboxes struct {
	opts    Options
	workers calls.Workers
	running sync.WaitGroup

	mu       sync.Mutex // guards the map only; locked before a share's mu
	clusters map[string]*share
	added    int // number of clusters ever added
}

// share holds the sandboxes of one cluster. Clusters do not wait for each other (I7).
type share struct {
	mu        sync.Mutex
	sandboxes map[string]*entry // by id
	bytes     int
	listing   bool
	next      time.Time // time of the next list
}

type entry struct {
	sandbox *sandboxv1.Sandbox
	bytes   int
	at      time.Time
}

// New returns empty Sandboxes.
func New(opts Options) *Sandboxes {
	s := &Sandboxes{opts: opts, clusters: map[string]*share{}}
	s.workers = calls.Workers{Dispatcher: s}
	return s
}

// Dispatch implements calls.Dispatcher.
func (s *Sandboxes) Dispatch(ctx context.Context, cluster string, d *federationv1.Dispatch) (*federationv1.Answer, error) {
	answer, err := s.opts.Dispatcher.Dispatch(ctx, cluster, d)
	if err != nil || answer.GetError() != nil {
		return answer, err
	}
	if one := answer.GetSandbox(); one != nil {
		s.keep(cluster, one)
	}
	if list := answer.GetList().GetSandboxes(); len(list) > 0 {
		s.keep(cluster, list...)
	}
	return answer, nil
}

// keep records a cluster's sandboxes. It drops ended ones.
func (s *Sandboxes) keep(cluster string, said ...*sandboxv1.Sandbox) {
	now := s.opts.Clock.Now()
	entries := make([]*entry, 0, len(said))
	for _, sandbox := range said {
		kept := proto.CloneOf(sandbox)
		kept.Decision = nil // belongs to one claim, and is large
		if calls.Stamp(kept, cluster) != nil {
			continue // its caller reports it
		}
		entries = append(entries, &entry{kept, proto.Size(kept), now})
	}
	known := s.share(cluster)
	known.mu.Lock()
	defer known.mu.Unlock()
	for _, e := range entries {
		known.put(e)
	}
}

// share returns a cluster's share, and creates it if needed.
func (s *Sandboxes) share(cluster string) *share {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shareLocked(cluster)
}

func (s *Sandboxes) shareLocked(cluster string) *share {
	if s.clusters[cluster] == nil {
		first := time.Duration(s.added*spread%1000) * listEvery / 1000
		s.added++
		s.clusters[cluster] = &share{sandboxes: map[string]*entry{}, next: s.opts.Clock.Now().Add(first)}
	}
	return s.clusters[cluster]
}

func (s *share) put(e *entry) {
	id := e.sandbox.GetId()
	s.drop(id)
	if e.sandbox.GetPhase() == sandboxv1.Phase_ENDED || len(s.sandboxes) >= maxSandboxes || s.bytes+e.bytes > maxBytes {
		return
	}
	s.sandboxes[id] = e
	s.bytes += e.bytes
}

func (s *share) drop(id string) {
	if old := s.sandboxes[id]; old != nil {
		s.bytes -= old.bytes
		delete(s.sandboxes, id)
	}
}

// Sandbox is the last known state of a sandbox. It must not be modified.
type Sandbox struct {
	*sandboxv1.Sandbox
	Age time.Duration
}

// Shown returns a copy for a caller, marked with its age.
func (s Sandbox) Shown() *sandboxv1.Sandbox {
	shown := proto.CloneOf(s.Sandbox)
	shown.StaleAge = durationpb.New(s.Age.Round(time.Millisecond))
	return shown
}

// known returns a cluster's share, or nil if there is none.
func (s *Sandboxes) known(cluster string) *share {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clusters[cluster]
}

// Of returns the sandboxes of a cluster for which want returns true, ordered by id.
func (s *Sandboxes) Of(cluster string, want func(*sandboxv1.Sandbox) bool) (out []Sandbox) {
	known := s.known(cluster)
	if known == nil {
		return nil
	}
	known.mu.Lock()
	now := s.opts.Clock.Now()
	for _, e := range known.sandboxes {
		if want(e.sandbox) {
			out = append(out, Sandbox{e.sandbox, max(0, now.Sub(e.at))})
		}
	}
	known.mu.Unlock()
	slices.SortFunc(out, func(a, b Sandbox) int { return cmp.Compare(a.GetId(), b.GetId()) })
	return out
}

// Get returns a sandbox of a cluster, or nil if it is not known. The sandbox must not be modified.
func (s *Sandboxes) Get(cluster, id string) *sandboxv1.Sandbox {
	known := s.known(cluster)
	if known == nil {
		return nil
	}
	known.mu.Lock()
	defer known.mu.Unlock()
	if e := known.sandboxes[id]; e != nil {
		return e.sandbox
	}
	return nil
}

// Run lists the clusters until ctx ends.
func (s *Sandboxes) Run(ctx context.Context) error {
	defer s.running.Wait()
	ticker := s.opts.Clock.NewTicker(look)
	defer ticker.Stop()
	for {
		for _, cluster := range s.due() {
			s.running.Go(func() { s.list(ctx, cluster) })
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// due returns the clusters to list now, and drops those that are no longer registered.
func (s *Sandboxes) due() (out []string) {
	all, now := s.opts.Clusters(), s.opts.Clock.Now()
	registered := sets.New(all...)
	s.mu.Lock()
	defer s.mu.Unlock()
	for cluster, known := range s.clusters {
		if !registered.Has(cluster) && !known.busy() {
			delete(s.clusters, cluster)
		}
	}
	for _, cluster := range all {
		if s.shareLocked(cluster).begin(now) {
			out = append(out, cluster)
		}
	}
	return out
}

func (s *share) busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listing
}

// begin reports whether a list is due, and marks it as running.
func (s *share) begin(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listing || now.Before(s.next) {
		return false
	}
	s.listing = true
	return true
}

// list reads all live sandboxes of a cluster, and drops recorded ones that are not among them.
func (s *Sandboxes) list(ctx context.Context, cluster string) {
	began := s.opts.Clock.Now()
	there, err := s.read(ctx, cluster)
	known := s.share(cluster)
	known.mu.Lock()
	defer known.mu.Unlock()
	known.listing, known.next = false, s.opts.Clock.Now().Add(listEvery+time.Duration(len(known.sandboxes))*listPer)
	if err != nil {
		return
	}
	for id, e := range known.sandboxes {
		if !there[id] && e.at.Before(began) {
			known.drop(id)
		}
	}
}

// read lists a cluster, page by page. Dispatch records the sandboxes of the pages.
func (s *Sandboxes) read(ctx context.Context, cluster string) (there map[string]bool, err error) {
	there = map[string]bool{}
	for token := ""; ; {
		answer, err := s.workers.Call(ctx, cluster, &federationv1.Dispatch{Call: &federationv1.Dispatch_List{
			List: &sandboxv1.ListSandboxesRequest{PageSize: pageSize, PageToken: token},
		}})
		if err != nil {
			return nil, err
		}
		for _, sandbox := range answer.GetList().GetSandboxes() {
			if there[sandbox.GetId()] = true; len(there) > maxSandboxes {
				return nil, errTooMany
			}
		}
		next := answer.GetList().GetNextPageToken()
		if next == "" {
			return there, nil
		}
		if next <= token {
			return nil, errNoEnd
		}
		token = next
	}
}
