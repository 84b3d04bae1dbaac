// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/oklog/ulid/v2"
	"k8s.io/utils/clock"

	"navix.sh/atoll/pkg/problem"
)

const (
	// patience bounds how long a strict call waits for its line, and how long Close waits for the last lines.
	patience = 3 * time.Second
	// foldEvery is the period of summaries.
	foldEvery = time.Minute
)

// Options describe a Log.
type Options struct {
	Sinks []Sink
	// Strict makes Before wait until its line is written.
	Strict  bool
	Replica string // of the hub
	Clock   clock.WithTicker
	Metrics *Metrics
	Log     logr.Logger
}

// Log writes events to its sinks. A nil Log writes nothing.
type Log struct {
	opts     Options
	outlets  []*outlet
	refusals *refusals
	stop     context.CancelFunc
	done     sync.WaitGroup
}

// New returns a running Log.
func New(o Options) *Log {
	ctx, cancel := context.WithCancel(context.Background())
	l := &Log{opts: o, stop: cancel}
	l.refusals = newRefusals(o.Clock.Now())
	for _, sink := range o.Sinks {
		out := newOutlet(l, sink)
		l.outlets = append(l.outlets, out)
		l.done.Go(out.run)
	}
	ticker := o.Clock.NewTicker(foldEvery)
	l.done.Go(func() {
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C():
				l.summarize()
			}
		}
	})
	return l
}

// Strict reports whether calls wait until their lines are written.
func (l *Log) Strict() bool { return l != nil && l.opts.Strict }

// Now returns the time of the Log's clock.
func (l *Log) Now() time.Time { return l.opts.Clock.Now() }

// NewID returns an id for the lines of one call.
func (l *Log) NewID() string {
	return ulid.MustNew(ulid.Timestamp(l.Now()), rand.Reader).String()
}

// Record queues an event and never waits. If the queue is full, the event is dropped and counted.
func (l *Log) Record(e Event) {
	if l == nil {
		return
	}
	line, ok := l.prepare(&e)
	if !ok {
		return
	}
	for _, out := range l.outlets {
		out.offer(pending{event: e, line: line})
	}
}

// Before writes the intent of a call if the Log is strict. If it fails to write it to every sink, it returns an error, and the call must
// not act.
func (l *Log) Before(ctx context.Context, e Event) error {
	if !l.Strict() {
		return nil
	}
	e.Stage = Intent
	if err := l.write(ctx, e); err != nil {
		l.opts.Log.Error(err, "Refusing a call that cannot be recorded", "verb", e.Verb, "resource", e.Object.Resource)
		return problem.New(problem.Unavailable, "the call cannot be recorded, and --audit has strict: it was not done").
			WithRetryAfter(problem.RetrySoon)
	}
	return nil
}

// After writes the outcome of a call. If the Log is strict, it waits for the line. A failure to write does not change the outcome: the call
// has acted, and its intent is recorded.
func (l *Log) After(ctx context.Context, e Event) {
	if !l.Strict() {
		l.Record(e)
		return
	}
	// The line is written even if the caller has left.
	if err := l.write(context.WithoutCancel(ctx), e); err != nil {
		l.opts.Log.Error(err, "The outcome of a call was not recorded", "id", e.ID, "verb", e.Verb, "resource", e.Object.Resource)
	}
}

// write waits until the event is in every sink.
func (l *Log) write(ctx context.Context, e Event) error {
	line, ok := l.prepare(&e)
	if !ok {
		return errors.New("the event cannot be encoded")
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	waiting := make([]chan error, 0, len(l.outlets))
	for _, out := range l.outlets {
		written := make(chan error, 1)
		if !out.offer(pending{event: e, line: line, written: written}) {
			return fmt.Errorf("%s: too many lines wait", out.sink.Name())
		}
		waiting = append(waiting, written)
	}
	for i, written := range waiting {
		select {
		case err := <-written:
			if err != nil {
				return fmt.Errorf("%s: %w", l.outlets[i].sink.Name(), err)
			}
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", l.outlets[i].sink.Name(), ctx.Err())
		}
	}
	return nil
}

// prepare completes and encodes an event.
func (l *Log) prepare(e *Event) ([]byte, bool) {
	e.Schema = Schema
	if e.Time.IsZero() {
		e.Time = l.Now()
	}
	e.Replica = cmp.Or(e.Replica, l.opts.Replica)
	e.Who.Kind, e.Who.Proof = cmp.Or(e.Who.Kind, Anonymous), cmp.Or(e.Who.Proof, ByNothing)
	line, err := e.line()
	if err != nil {
		l.opts.Log.Error(err, "An audit event cannot be encoded")
		return nil, false
	}
	return line, true
}

// Fold records events that a party can cause without limit, such as refusals. A party is an address, a caller or a cluster. Each party has
// a few lines per minute. Further events, and those of parties beyond the bound, are counted in a summary at the end of the minute.
func (l *Log) Fold(party string, e Event) {
	if l == nil {
		return
	}
	if l.refusals.admit(party, e) {
		l.Record(e)
	}
}

func (l *Log) summarize() {
	for _, e := range l.refusals.fold(l.Now()) {
		l.Record(e)
	}
}

// Close writes the queued lines, for at most a few seconds. Later events are lost.
func (l *Log) Close() error {
	if l == nil {
		return nil
	}
	l.summarize()
	l.stop()
	for _, out := range l.outlets {
		out.close()
	}
	ended := make(chan struct{})
	go func() { defer close(ended); l.done.Wait() }()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	var errs []error
	select {
	case <-ended:
		for _, out := range l.outlets {
			errs = append(errs, out.sink.Close())
		}
	case <-timer.C: // a sink hangs, for example because its disk does not respond
		errs = append(errs, errors.New("the last lines of the audit were not written in time"))
	}
	return errors.Join(errs...)
}
