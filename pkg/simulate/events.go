// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"container/heap"
	"context"
	"fmt"
	"time"
)

// event is an action at a given time. Events with the same time run in the order in which they were scheduled.
type event struct {
	at    time.Duration
	order uint64
	do    func()
}

type eventHeap []event

func (h eventHeap) Len() int      { return len(h) }
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h eventHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].order < h[j].order
}
func (h *eventHeap) Push(x any) { *h = append(*h, x.(event)) }
func (h *eventHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = event{}
	*h = old[:len(old)-1]
	return last
}

// agenda is the simulated clock with its scheduled events.
type agenda struct {
	now   time.Duration
	order uint64
	heap  eventHeap
}

// in schedules an action for d from now.
func (a *agenda) in(d time.Duration, do func()) { a.when(a.now+max(0, d), do) }

// when schedules an action for a time, or for now if that time has passed.
func (a *agenda) when(at time.Duration, do func()) {
	a.order++
	heap.Push(&a.heap, event{max(at, a.now), a.order, do})
}

// run runs the scheduled events until end.
func (a *agenda) run(ctx context.Context, end time.Duration) error {
	const often = 1 << 12
	for n := 0; len(a.heap) > 0 && a.heap[0].at <= end; n++ {
		if n%often == 0 && ctx.Err() != nil {
			return fmt.Errorf("simulated as far as %s: %w", a.now, context.Cause(ctx))
		}
		next := heap.Pop(&a.heap).(event)
		a.now = next.at
		next.do()
	}
	a.now = end
	return nil
}
