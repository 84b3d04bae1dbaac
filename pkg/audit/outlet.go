// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"sync"
	"time"

	"navix.sh/atoll/pkg/tally"
)

const (
	// maxWaiting is the number of lines that may wait for one sink, and maxEach how many of them one caller may have, so that a caller cannot
	// fill the queue.
	maxWaiting = 4096
	maxEach    = maxWaiting / 4
	// maxBatch is the maximum number of lines in one write.
	maxBatch = 256
	// complainEvery bounds how often failures are logged.
	complainEvery = time.Minute
)

// Line is an event in the form that a sink receives.
type Line struct {
	Event Event
	Text  []byte // JSON, with a line feed
}

// Sink is a destination of lines. One goroutine calls its methods.
type Sink interface {
	Name() string // stdout, file or otlp
	// Write writes lines in order. After an error, any of the lines may be missing.
	Write([]Line) error
	Close() error
}

// pending is a line in the queue.
type pending struct {
	event   Event
	line    []byte
	written chan<- error // nil: no call waits for the line
}

// outlet is the queue of one sink.
type outlet struct {
	log   *Log
	sink  Sink
	queue chan pending
	each  *tally.Tally[string] // lines in the queue, by caller

	mu     sync.Mutex
	closed bool
	lost   int64 // lines lost since the last one that was written

	complained time.Time
}

func newOutlet(l *Log, sink Sink) *outlet {
	return &outlet{log: l, sink: sink, queue: make(chan pending, maxWaiting), each: tally.New[string](maxEach)}
}

// party returns the name under which an event counts against a share of the queue.
func party(e *Event) string { return string(e.Who.Kind) + "\x00" + e.Who.Name }

// offer adds a line to the queue. It reports whether there was room.
func (o *outlet) offer(p pending) bool {
	of := party(&p.event)
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed && o.each.Enter(of) {
		select {
		case o.queue <- p:
			return true
		default:
			o.each.Leave(of)
		}
	}
	o.lose(1, "full")
	return false
}

// lose counts lost lines. The caller holds mu.
func (o *outlet) lose(n int, reason string) {
	o.lost += int64(n)
	o.log.opts.Metrics.dropped(o.sink.Name(), reason, n)
}

func (o *outlet) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.closed = true
		close(o.queue)
	}
}

// run writes lines until the queue is closed and empty.
func (o *outlet) run() {
	for first := range o.queue {
		batch := []pending{first}
	more:
		for len(batch) < maxBatch {
			select {
			case next, ok := <-o.queue:
				if !ok {
					break more
				}
				batch = append(batch, next)
			default:
				break more
			}
		}
		o.write(batch)
	}
}

func (o *outlet) write(batch []pending) {
	o.mu.Lock()
	lost := o.lost
	o.lost = 0
	o.mu.Unlock()
	lines := make([]Line, 0, len(batch)+1)
	if lost > 0 {
		gap := Event{Stage: Gap, Result: Result{Count: lost}}
		if text, ok := o.log.prepare(&gap); ok {
			lines = append(lines, Line{Event: gap, Text: text})
		}
	}
	for _, p := range batch {
		lines = append(lines, Line{Event: p.event, Text: p.line})
	}
	err := o.sink.Write(lines)
	o.mu.Lock()
	if err != nil {
		o.lost += lost
		o.lose(len(batch), "failed")
	} else {
		o.log.opts.Metrics.wrote(o.sink.Name(), len(batch))
	}
	o.mu.Unlock()
	for _, p := range batch {
		o.each.Leave(party(&p.event))
		if p.written != nil {
			p.written <- err
		}
	}
	if now := o.log.Now(); err != nil && now.Sub(o.complained) >= complainEvery {
		o.complained = now
		o.log.opts.Log.Error(err, "Audit lines are lost", "sink", o.sink.Name(), "lines", len(batch))
	}
}
