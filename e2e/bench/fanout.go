// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/protobuf/proto"
	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/bench/crowd"
	"navix.sh/atoll/e2e/load"
	"navix.sh/atoll/hub/hubtest"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/store"
)

const (
	fanRounds = 3  // as many pairs as elsewhere: they are short
	fanEnvs   = 12 // about 2 KB to each
	fanRest   = 300 * time.Millisecond
)

// tap is the hub's end of a stream, into which the bench can write as well.
type tap struct {
	hubtest.Stream
	cluster string

	mu   sync.Mutex
	last *federationv1.HubFrame // with foreign segments
}

// Send implements hubtest.Stream.
func (t *tap) Send(frame *federationv1.HubFrame) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if frame.GetForeign() != nil {
		t.last = frame
	}
	return t.Stream.Send(frame)
}

func (t *tap) repeat() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.Stream.Send(t.last)
}

// fan is a hub in this process, because the bare arm has to use its streams.
type fan struct {
	mu     sync.Mutex
	taps   map[string]*tap
	owed   int            // receivers that have not been told of every Env
	envs   map[string]int // Envs that a receiver has yet to hear of
	began  time.Time
	times  []time.Duration
	done   chan struct{}
	others int
}

func (f *fan) intercept(s hubtest.Stream) hubtest.Stream {
	cluster, err := link.PeerCluster(s.Context())
	if err != nil {
		return s // the hub refuses it
	}
	t := &tap{Stream: s, cluster: cluster}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.taps[cluster] = t
	return t
}

// round times how long what send sends takes to each of the receivers.
func (f *fan) round(ctx context.Context, send func() error) (leg, error) {
	f.mu.Lock()
	f.owed, f.envs, f.times, f.done, f.began = f.others, map[string]int{}, nil, make(chan struct{}), time.Now()
	done := f.done
	f.mu.Unlock()
	if err := send(); err != nil {
		return leg{}, err
	}
	select {
	case <-done:
	case <-time.After(load.Timeout):
		return leg{}, fmt.Errorf("%d of %d workers were not told", f.owed, f.others)
	case <-ctx.Done():
		return leg{}, context.Cause(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return leg{Result: load.Result{Latencies: f.times}}, nil
}

// arrive counts Envs, not messages: a change that came in two is there with the second.
func (f *fan) arrive(receiver string, foreign *federationv1.Foreign) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.owed == 0 || foreign.GetComplete() {
		return
	}
	if f.envs[receiver] += len(foreign.GetEnvs()); f.envs[receiver] != fanEnvs {
		return
	}
	f.times = append(f.times, time.Since(f.began))
	if f.owed--; f.owed == 0 {
		close(f.done)
	}
}

// fanOut measures how long a change takes from the worker that reports it to 100 others, beside the hub writing the very
// same frames into the very same streams.
func (b *bench) fanOut(ctx context.Context, add func(...result)) (err error) {
	w := crowd.World{Clusters: 101, Envs: fanEnvs, Shared: 101}
	f := &fan{taps: map[string]*tap{}, others: w.Clusters - 1}
	s, err := b.atSite()
	if err != nil {
		return err
	}
	address, stop, err := s.hubInside(ctx, f.intercept)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	all, err := s.gather(ctx, w, address, func(cluster int, o *crowd.Options) {
		if cluster > 0 {
			o.Foreign = func(foreign *federationv1.Foreign) { f.arrive(w.ID(cluster), foreign) }
		}
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, all.Stop()) }()
	load.Sleep(ctx, 2*settleTime) // until all have been told of all
	changed := 0
	report := func() error {
		changed++
		var segments []*federationv1.EnvSegment
		for n := range fanEnvs {
			s := w.Segment(0, n, changed)
			if changed%2 == 1 {
				s = full(s)
			}
			segments = append(segments, s)
		}
		return all.Workers[0].Report(segments...)
	}
	var receivers []*tap
	f.mu.Lock()
	for cluster, t := range f.taps {
		if cluster != w.ID(0) {
			receivers = append(receivers, t)
		}
	}
	f.mu.Unlock()
	repeat := func() error {
		for _, t := range receivers {
			if err := t.repeat(); err != nil {
				return err
			}
		}
		return nil
	}
	if _, err := f.round(ctx, report); err != nil { // the first one is what the bare arm repeats
		return err
	}
	round := func(name string, send func() error) arm {
		return arm{name: name, reset: func(ctx context.Context) error { load.Sleep(ctx, fanRest); return nil },
			run: func(ctx context.Context, _ uint64) (leg, error) { return f.round(ctx, send) }}
	}
	legs, err := b.interleave(ctx, "fan-out", fanRounds*b.size.pairs, round("bare", repeat), round("hub", report))
	if err != nil {
		return err
	}
	name := fmt.Sprintf("a worker reports Saturated to 100 others told, the last one; %d B each", proto.Size(receivers[0].last))
	add(compare(name, "ms", quantile(1), legs[1], legs[0]).atMost(1.5))
	return nil
}

// hubInside runs a hub in this process.
func (s *site) hubInside(ctx context.Context, intercept func(hubtest.Stream) hubtest.Stream) (address string, stop func() error, err error) {
	credentials, err := link.LoadCredentials(s.hub, logr.Discard())
	if err != nil {
		return "", nil, err
	}
	claims, err := store.OpenBolt(filepath.Join(s.dir, "inside-claims.db"), "claims")
	if err != nil {
		return "", nil, err
	}
	registry, err := store.OpenBolt(filepath.Join(s.dir, "inside-registry.db"), "registry")
	if err != nil {
		return "", nil, errors.Join(err, claims.Close())
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, errors.Join(fmt.Errorf("listening: %w", err), claims.Close(), registry.Close())
	}
	hub, err := hubtest.Start(ctx, hubtest.Options{
		Clock: clock.RealClock{}, Listener: listener, Credentials: credentials, Claims: claims, Registry: registry,
		Log: logr.Discard(), Intercept: intercept,
	})
	if err != nil {
		return "", nil, errors.Join(err, listener.Close(), claims.Close(), registry.Close())
	}
	return listener.Addr().String(), hub.Stop, nil
}
