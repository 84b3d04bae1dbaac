// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"sync"
	"time"

	processv1 "navix.sh/atoll/api/envd/process"
)

// keepBytes is how much of a process's output is kept for late or slow readers.
const keepBytes = 256 << 10

type stream int

const (
	stdout stream = iota
	stderr
	terminal
)

// piece is the output of one read.
type piece struct {
	from stream
	data []byte
}

func (p piece) event() *processv1.ProcessEvent {
	data := &processv1.ProcessEvent_DataEvent{}
	switch p.from {
	case stdout:
		data.Output = &processv1.ProcessEvent_DataEvent_Stdout{Stdout: p.data}
	case stderr:
		data.Output = &processv1.ProcessEvent_DataEvent_Stderr{Stderr: p.data}
	default:
		data.Output = &processv1.ProcessEvent_DataEvent_Pty{Pty: p.data}
	}
	return &processv1.ProcessEvent{Event: &processv1.ProcessEvent_Data{Data: data}}
}

// output keeps the latest pieces of a process's output.
type output struct {
	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each change
	pieces  []piece
	first   int // number of the first kept piece
	bytes   int
	total   int // bytes written, including dropped ones
	waiting int // writes that wait for readers
	readers map[*reader]struct{}
	end     *processv1.ProcessEvent // set once
}

func newOutput() *output {
	return &output{changed: make(chan struct{}), readers: map[*reader]struct{}{}}
}

// reader is a connected caller.
type reader struct {
	from *output
	next int
}

func (o *output) notify() {
	close(o.changed)
	o.changed = make(chan struct{})
}

// write appends a piece and drops the oldest ones beyond keepBytes. It waits for connected readers that have not read them.
func (o *output) write(ctx context.Context, from stream, data []byte) {
	kept := append([]byte(nil), data...)
	o.mu.Lock()
	for o.bytes+len(kept) > keepBytes && len(o.pieces) > 0 {
		if o.awaited() && ctx.Err() == nil {
			changed := o.changed
			o.waiting++
			o.mu.Unlock()
			select {
			case <-changed:
			case <-ctx.Done():
			}
			o.mu.Lock()
			o.waiting--
			continue
		}
		o.bytes -= len(o.pieces[0].data)
		o.pieces = o.pieces[1:]
		o.first++
	}
	o.pieces = append(o.pieces, piece{from, kept})
	o.bytes += len(kept)
	o.total += len(kept)
	o.notify()
	o.mu.Unlock()
}

// drain waits, after a process has ended, until all of its output is written and read is closed. It stops at the end of a pause if no write
// waits for readers, or if the bytes written since the call exceed the parameter most: only the process's children can have written that
// many.
func (o *output) drain(read <-chan struct{}, most int) {
	o.mu.Lock()
	most += o.total
	o.mu.Unlock()
	for waits := true; waits; {
		select {
		case <-read:
			return
		case <-time.After(drainTimeout):
		}
		o.mu.Lock()
		waits = o.waiting > 0 && o.total <= most
		o.mu.Unlock()
	}
}

// awaited reports whether a reader still needs the first piece.
func (o *output) awaited() bool {
	for r := range o.readers {
		if r.next <= o.first {
			return true
		}
	}
	return false
}

func (o *output) close(end *processv1.ProcessEvent) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.end = end
	o.notify()
}

func (o *output) read() *reader {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := &reader{from: o, next: o.first}
	o.readers[r] = struct{}{}
	return r
}

func (r *reader) close() {
	r.from.mu.Lock()
	defer r.from.mu.Unlock()
	delete(r.from.readers, r)
	r.from.notify()
}

// take returns the next event, and whether it is the last one. If there is none yet, it returns a channel to wait for.
func (r *reader) take() (event *processv1.ProcessEvent, last bool, wait <-chan struct{}) {
	o := r.from
	o.mu.Lock()
	defer o.mu.Unlock()
	r.next = max(r.next, o.first)
	if i := r.next - o.first; i < len(o.pieces) {
		r.next++
		o.notify()
		return o.pieces[i].event(), false, nil
	}
	if o.end != nil {
		return o.end, true, nil
	}
	return nil, false, o.changed
}
