// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"context"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/hub/internal/slots"
	"navix.sh/atoll/pkg/segment"
)

const (
	// foreignLimit bounds a message; because a stream holds two of them while its cluster does not read: one that gRPC has taken, and one that
	// waits for gRPC. A complete message has up to 1024 chunks of this size; the receiver drops a longer one.
	foreignLimit = 256 << 10
	// foreignBatch is the number of changed Envs that are taken at once. The others stay dirty and absorb later changes.
	foreignBatch = 256
	// foreignPause is the interval between messages about changes, and between starts of complete messages; because after a restart clusters
	// become known one after the other, and each stream would walk all Envs for each of them.
	foreignPause = 200 * time.Millisecond
	// foreignCalm is the interval between messages that change only counts. A receiver writes an Env every 3 s at most, so a shorter interval
	// has no use.
	foreignCalm = time.Second
	// foreignHold bounds how long a complete message waits for first reports of other clusters. After a restart of the hub all of them arrive
	// at once, and claims have no candidates until they have counted. Foreign segments can wait.
	foreignHold = 3 * time.Second
)

// reference names one cluster's part of one Env. Its content is looked up when it is sent, so that the receiver gets the latest.
type reference struct {
	slot  *slot
	about *cluster
}

// feed is the state of the goroutine that writes the stream.
type feed struct {
	started bool
	full    *fullSync
	fullAt  time.Duration // when full started
	rest    []reference   // changed parts that did not fit into the last message
	paused  time.Duration
	timer   clock.Timer // one timer for all waits; because a stream waits every second

	roster   *roster // as last sent
	rosterAt time.Duration

	free func() // frees the slot of the last message; nil: it had none
}

// foreignSlots lets four streams for each processor build and send a chunk of a complete message at a time; because after a restart all
// streams want one, and a chunk takes several times its size until gRPC has it. A chunk that is not sent after 250 ms keeps its memory but
// not its slot.
func foreignSlots(on clock.Clock) slots.Slots {
	return slots.New(slots.Options{Clock: on, PerCPU: 4, Lasts: 250 * time.Millisecond})
}

// after is like time.After, but it reuses one timer: a call invalidates the channel of the previous call.
func (f *feed) after(on clock.Clock, d time.Duration) <-chan time.Time {
	if f.timer == nil {
		f.timer = on.NewTimer(d)
		return f.timer.C()
	}
	f.timer.Reset(d)
	return f.timer.C()
}

// fullSync walks all Envs of the receiver for the parts of some clusters.
type fullSync struct {
	known []string
	about map[*cluster]struct{}
	keys  []segment.Key
	rest  []reference // of the Env before keys
	chunk uint32
}

// NextForeign blocks until there are segments of other clusters to send, and returns a message. It first sends the segments of all known
// clusters, then changes. When another cluster becomes known, it sends all segments of that cluster in between. A complete message
// therefore covers only the clusters that it lists as known. An Env may appear in it more than once, with different clusters. A caller
// sends each message before it calls NextForeign again.
func (s *Session) NextForeign(ctx context.Context) (*federationv1.Foreign, error) {
	c, f := s.cluster, &s.feed
	if f.free != nil {
		f.free()
		f.free = nil
	}
	for {
		if f.full != nil {
			f.free = c.fleet.fulls.Take(ctx, s.replaced, 0)
			return s.withRoster(s.nextChunk()), nil
		}
		now := c.fleet.now()
		dirty, hurry, complete := s.outbox.has()
		calm := !hurry && len(f.rest) == 0
		untilFull, untilChanges := time.Duration(0), pauseLeft(f.paused, foreignPause, now)
		if complete || !f.started {
			untilFull = max(pauseLeft(f.fullAt, foreignPause, now), s.holdLeft(now))
		}
		if calm {
			untilChanges = pauseLeft(f.paused, foreignCalm, now)
		}
		if untilFull == 0 && s.outbox.wantsComplete(!f.started) {
			f.free = c.fleet.fulls.Take(ctx, s.replaced, 0) // taken before the clusters: more may become known while it waits
			f.started, f.fullAt = true, c.fleet.now()
			f.full = s.newFullSync(s.outbox.takeComplete())
			return s.withRoster(s.nextChunk()), nil
		}
		if f.started && untilChanges == 0 { // changes since the complete message
			if message := s.changes(); message != nil {
				f.paused = now
				return message, nil
			}
		}
		untilRoster := pauseLeft(f.rosterAt, foreignCalm, now)
		enrolled := f.started && f.roster != c.fleet.roster.Load()
		if enrolled && untilRoster == 0 {
			return s.withRoster(&federationv1.Foreign{Last: true}), nil
		}
		var pause <-chan time.Time
		wake := s.outbox.wake
		if changes := dirty || len(f.rest) > 0; changes && untilChanges > 0 {
			pause = f.after(c.fleet.clock, untilChanges)
			if !calm {
				wake = nil // nothing is urgent enough to end this wait
			}
		} else if (complete || !f.started) && untilFull > 0 {
			pause = f.after(c.fleet.clock, untilFull)
		} else if enrolled {
			pause = f.after(c.fleet.clock, untilRoster)
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-s.replaced:
			return nil, ErrReplaced
		case <-wake:
		case <-pause:
		}
	}
}

// holdLeft returns how long the stream's next complete message must still wait for first reports that are arriving.
func (s *Session) holdLeft(now time.Duration) time.Duration {
	since, ok := s.outbox.openedAt()
	if s.feed.started {
		since = s.feed.fullAt
	}
	if !ok || now >= since+foreignHold {
		return 0
	}
	for _, c := range s.cluster.fleet.sorted() {
		if !c.known.Load() && c.session.Load() != nil {
			return since + foreignHold - now
		}
	}
	return 0
}

// pauseLeft returns the rest of a pause after the last message, or 0 if there was none.
func pauseLeft(last, pause, now time.Duration) time.Duration {
	if last == 0 {
		return 0
	}
	return max(0, last+pause-now)
}

func (s *Session) newFullSync(about map[*cluster]struct{}) *fullSync {
	full := &fullSync{about: about}
	for c := range about {
		full.known = append(full.known, c.ID)
	}
	slices.Sort(full.known)
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	full.keys = s.cluster.holdings.keys()
	return full
}

// nextChunk returns the next chunk of the complete message. It never sets Removed: the receiver drops every segment that a complete message
// omits.
func (s *Session) nextChunk() *federationv1.Foreign {
	full := s.feed.full
	p := packer{receiver: s.cluster, message: &federationv1.Foreign{Complete: true, Chunk: full.chunk, Known: full.known}}
	full.chunk++
	for {
		for len(full.rest) > 0 {
			if !p.add(full.rest[0]) {
				return p.message
			}
			full.rest = full.rest[1:]
		}
		if len(full.keys) == 0 {
			break
		}
		full.rest = s.parts(full.keys[0])
		full.keys = full.keys[1:]
	}
	s.feed.full = nil
	p.message.Last = true
	return p.message
}

func (s *Session) parts(k segment.Key) []reference {
	slot := s.cluster.fleet.index.get(k)
	if slot == nil {
		return nil
	}
	var out []reference
	slot.mu.Lock()
	defer slot.mu.Unlock()
	for _, part := range slot.parts {
		if _, wanted := s.feed.full.about[part.owner]; wanted {
			out = append(out, reference{slot, part.owner})
		}
	}
	return out
}

// changes returns a message with changed parts, or nil if nothing is left to send.
func (s *Session) changes() *federationv1.Foreign {
	f := &s.feed
	for {
		if len(f.rest) == 0 {
			f.rest = s.outbox.takeDirty(foreignBatch)
			if len(f.rest) == 0 {
				return nil
			}
			slices.SortFunc(f.rest, func(a, b reference) int {
				return cmp.Or(a.slot.key.Compare(*b.slot.key), cmp.Compare(a.about.ID, b.about.ID))
			})
		}
		p := packer{receiver: s.cluster, message: &federationv1.Foreign{Last: true}, removals: true}
		for len(f.rest) > 0 && p.add(f.rest[0]) {
			f.rest = f.rest[1:]
		}
		if len(p.message.Envs) > 0 {
			return p.message
		}
	}
}

// packer fills one message.
type packer struct {
	receiver *cluster
	message  *federationv1.Foreign
	removals bool
	size     int
}

// add adds a part to the message, or returns false if it does not fit any more.
func (p *packer) add(r reference) bool {
	if r.about == p.receiver {
		return true
	}
	seg, wanted := r.slot.foreign(p.receiver, r.about)
	if !wanted || seg == nil && !p.removals {
		return true
	}
	var out *federationv1.ForeignSegment
	size := len(r.about.ID) + len(r.slot.key.Namespace) + len(r.slot.key.Name) + 32
	if seg != nil {
		out = &federationv1.ForeignSegment{
			ClusterId: r.about.ID, Stale: r.about.stale(), Members: seg.MembersProto(),
			Age: durationpb.New(max(0, r.about.fleet.now()-r.about.Seen())),
		}
		size += proto.Size(out)
	}
	if size > foreignLimit { // segments are bounded on receipt: if that fails, the receiver's stream still works
		p.receiver.fleet.metrics.unsent.Inc()
		return true
	}
	if p.size > 0 && p.size+size > foreignLimit {
		return false
	}
	p.size += size
	env := p.env(*r.slot.key)
	if out != nil {
		env.Segments = append(env.Segments, out)
	} else {
		env.Removed = append(env.Removed, r.about.ID)
	}
	return true
}

func (p *packer) env(k segment.Key) *federationv1.ForeignEnv {
	if n := len(p.message.Envs); n > 0 {
		last := p.message.Envs[n-1]
		if last.Key.GetNamespace() == k.Namespace && last.Key.GetName() == k.Name {
			return last
		}
	}
	env := &federationv1.ForeignEnv{Key: k.Proto()}
	p.message.Envs = append(p.message.Envs, env)
	return env
}

// foreign returns another cluster's segment, or nil if that cluster does not have the Env. The bool is false if the receiver does not have
// the Env: it then has no object to write the segment to.
func (s *slot) foreign(receiver, about *cluster) (*segment.Segment, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, has := s.find(receiver); !has {
		return nil, false
	}
	if i, has := s.find(about); has {
		s.parts[i].noted = unnoted
		return s.parts[i].segment, true
	}
	return nil, true
}
