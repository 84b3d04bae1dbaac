// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/bench/crowd"
	"navix.sh/atoll/e2e/load"
	"navix.sh/atoll/pkg/link"
)

const (
	fanRounds = 3  // as many pairs as elsewhere: they are short
	fanEnvs   = 12 // about 2 KB to each
	fanRest   = 300 * time.Millisecond
)

// fan times a change until each of many receivers has it.
type fan struct {
	mu    sync.Mutex
	owed  int            // receivers that lack some Env
	envs  map[string]int // Envs that a receiver has
	began time.Time
	times []time.Duration
	last  *federationv1.Foreign
	done  chan struct{}
}

// round times a send to n receivers.
func (f *fan) round(ctx context.Context, n int, send func() error) (leg, error) {
	f.mu.Lock()
	f.owed, f.envs, f.times, f.done, f.began = n, map[string]int{}, nil, make(chan struct{}), time.Now()
	done := f.done
	f.mu.Unlock()
	if err := send(); err != nil {
		return leg{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, load.Timeout)
	defer cancel()
	select {
	case <-done:
	case <-ctx.Done():
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.owed > 0 {
		return leg{}, fmt.Errorf("%d of %d workers were not told: %w", f.owed, n, context.Cause(ctx))
	}
	return leg{Result: load.Result{Latencies: f.times}}, nil
}

// arrive counts Envs, not messages: a change in two messages arrives with the second.
func (f *fan) arrive(receiver string, foreign *federationv1.Foreign) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.owed == 0 || foreign.GetComplete() {
		return
	}
	if f.envs[receiver] += len(foreign.GetEnvs()); f.envs[receiver] != fanEnvs {
		return
	}
	f.times, f.last = append(f.times, time.Since(f.began)), foreign
	if f.owed--; f.owed == 0 {
		close(f.done)
	}
}

// broadcaster is a server that only sends the same to all.
type broadcaster struct {
	except  string // the cluster of a change
	mu      sync.Mutex
	streams []hubStream
}

func (b *broadcaster) attached(stream hubStream) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if cluster, err := link.PeerCluster(stream.Context()); err == nil && cluster != b.except {
		b.streams = append(b.streams, stream)
	}
}

func (b *broadcaster) send(frame *federationv1.HubFrame) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.streams {
		if err := s.Send(frame); err != nil {
			return err
		}
	}
	return nil
}

// fanOut measures how long a change takes from the worker that reports it to 100 others, beside a server that sends the same
// frame into as many streams.
func (b *bench) fanOut(ctx context.Context, add func(...result)) (err error) {
	w := crowd.World{Clusters: 101, Envs: fanEnvs, Shared: 101}
	told := &fan{}
	receive := func(cluster int, o *crowd.Options) {
		if cluster > 0 {
			o.Foreign = func(foreign *federationv1.Foreign) { told.arrive(w.ID(cluster), foreign) }
		}
	}
	f, err := b.federate(ctx, "fanout", w, receive)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	defer func() { _ = listener.Close() }()
	bare := &broadcaster{except: w.ID(0)}
	go func() { _ = serveBare(listener, f.site.hub, decoder{attached: bare.attached}) }() // until the listener is closed
	others, err := f.site.gather(ctx, w, listener.Addr().String(), func(cluster int, o *crowd.Options) { o.Bare = true; receive(cluster, o) })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, others.Stop()) }()
	load.Sleep(ctx, settleTime) // until all have everything
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
		return f.crowd.Workers[0].Report(segments...)
	}
	if _, err := told.round(ctx, w.Clusters-1, report); err != nil {
		return err
	}
	frame := &federationv1.HubFrame{Body: &federationv1.HubFrame_Foreign{Foreign: told.last}}
	if n := len(told.last.GetEnvs()); n != fanEnvs {
		return fmt.Errorf("a change of %d Envs came in several messages, the last one with %d: what to send beside it is not known", fanEnvs, n)
	}
	round := func(name string, send func() error) arm {
		return arm{name: name, reset: func(ctx context.Context) error { load.Sleep(ctx, fanRest); return nil },
			run: func(ctx context.Context, _ uint64) (leg, error) { return told.round(ctx, w.Clusters-1, send) }}
	}
	legs, err := b.interleave(ctx, "fan-out", fanRounds*b.size.pairs, round("bare", func() error { return bare.send(frame) }),
		round("hub", report))
	if err != nil {
		return err
	}
	name := fmt.Sprintf("a worker reports Saturated to 100 others told, the last one; %d B each", proto.Size(frame))
	add(compare(name, "ms", quantile(1), legs[1], legs[0]).atMost(1.5))
	return nil
}
