// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/hub/hubtest"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/wallclock"
)

// fate is a rule's effect on a frame.
type fate struct {
	drop   bool
	twice  bool
	delay  time.Duration // later frames overtake it
	before func()        // called before the frame is passed on
}

// frames is between link and hub, in both directions. Without rules every frame passes.
type frames struct {
	mu     sync.Mutex
	random *rand.Rand
	up     func(cluster string, f *federationv1.WorkerFrame) fate
	down   func(cluster string, f *federationv1.HubFrame) fate
}

func newFrames(random *rand.Rand) *frames { return &frames{random: random} }

func (f *frames) setUp(rule func(cluster string, frame *federationv1.WorkerFrame) fate) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.up = rule
}

func (f *frames) setDown(rule func(cluster string, frame *federationv1.HubFrame) fate) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = rule
}

// clear removes all rules.
func (f *frames) clear() {
	f.setUp(nil)
	f.setDown(nil)
}

func (f *frames) percent() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.random.IntN(100)
}

func (f *frames) below(most time.Duration) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Duration(f.random.Int64N(int64(most)))
}

func (f *frames) intercept(s hubtest.Stream) hubtest.Stream {
	cluster, err := link.PeerCluster(s.Context())
	if err != nil {
		return s
	}
	return &stream{Stream: s, frames: f, cluster: cluster, received: make(chan received), sending: make(chan struct{}, 1)}
}

// stream is one stream with the rules of frames.
type stream struct {
	hubtest.Stream
	frames  *frames
	cluster string

	reading  sync.Once
	received chan received

	sending chan struct{} // a lock whose waiters do not stop the bubble's clock
}

type received struct {
	frame *federationv1.WorkerFrame
	err   error
}

// Recv implements hubtest.Stream.
func (s *stream) Recv() (*federationv1.WorkerFrame, error) {
	s.reading.Do(func() { go s.read() })
	select {
	case r := <-s.received:
		return r.frame, r.err
	case <-s.Context().Done():
		return nil, s.Context().Err()
	}
}

func (s *stream) read() {
	for {
		frame, err := s.Stream.Recv()
		if err != nil {
			s.pass(received{nil, err})
			return
		}
		s.frames.mu.Lock()
		rule := s.frames.up
		s.frames.mu.Unlock()
		var what fate
		if rule != nil {
			what = rule(s.cluster, frame)
		}
		if what.before != nil {
			what.before()
		}
		var repeated *federationv1.WorkerFrame
		if what.twice {
			repeated = proto.CloneOf(frame) // as from the wire: the hub keeps and changes what it receives
		}
		switch {
		case what.drop:
		case what.delay > 0:
			go func() {
				if s.wait(what.delay) {
					s.pass(received{frame, nil})
				}
			}()
		default:
			s.pass(received{frame, nil})
		}
		if repeated != nil {
			s.pass(received{repeated, nil})
		}
	}
}

func (s *stream) pass(r received) {
	select {
	case s.received <- r:
	case <-s.Context().Done():
	}
}

func (s *stream) wait(d time.Duration) bool {
	return wallclock.Sleep(s.Context(), clock.RealClock{}, d) == nil
}

// Send implements hubtest.Stream.
func (s *stream) Send(frame *federationv1.HubFrame) error {
	s.frames.mu.Lock()
	rule := s.frames.down
	s.frames.mu.Unlock()
	var what fate
	if rule != nil {
		what = rule(s.cluster, frame)
	}
	if what.before != nil {
		what.before()
	}
	switch {
	case what.drop:
		return nil
	case what.delay > 0:
		go func() {
			if s.wait(what.delay) {
				_ = s.send(frame) // a stream that broke meanwhile is noticed elsewhere
			}
		}()
		return nil
	}
	err := s.send(frame)
	if err == nil && what.twice {
		err = s.send(frame)
	}
	return err
}

func (s *stream) send(frame *federationv1.HubFrame) error {
	s.sending <- struct{}{}
	defer func() { <-s.sending }()
	return s.Stream.Send(frame)
}
