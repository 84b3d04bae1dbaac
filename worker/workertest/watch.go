// SPDX-License-Identifier: Apache-2.0

package workertest

import (
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// watcher delivers the changes of one kind in order, each after a delay.
type watcher struct {
	server *server
	kind   *kind
	lag    func() time.Duration
	out    chan watch.Event
	over   chan struct{}
	once   sync.Once
	woken  chan struct{} // one token

	mu    sync.Mutex
	queue []change
}

type change struct {
	event watch.Event
	due   time.Time
}

// watch returns the changes after the given version. If that version is too old, or not reached yet, the caller must list.
func (s *server) watch(k *kind, since uint64, lag func() time.Duration) (watch.Interface, error) {
	w := &watcher{server: s, kind: k, lag: lag, out: make(chan watch.Event), over: make(chan struct{}), woken: make(chan struct{}, 1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if since > s.version || since < s.version && (len(s.log) == 0 || s.log[0].version > since+1) {
		return nil, apierrors.NewResourceExpired("the version is not in the log")
	}
	for _, l := range s.log {
		if l.version > since {
			w.add(l.before, l.after)
		}
	}
	s.watches[w] = struct{}{}
	go w.run()
	return w, nil
}

// add queues a change. The caller holds the server's lock.
func (w *watcher) add(before, after client.Object) {
	event := watch.Event{Type: watch.Modified, Object: after}
	subject := after
	switch {
	case after == nil:
		event, subject = watch.Event{Type: watch.Deleted, Object: before}, before
	case before == nil:
		event.Type = watch.Added
	}
	if kindOf(subject) != w.kind {
		return
	}
	due := time.Now().Add(w.lag())
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.queue); n > 0 && due.Before(w.queue[n-1].due) {
		due = w.queue[n-1].due
	}
	w.queue = append(w.queue, change{event, due})
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

func (w *watcher) run() {
	defer close(w.out)
	for {
		next, ok := w.next()
		if !ok {
			return
		}
		if wait := time.Until(next.due); wait > 0 {
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-w.over:
				timer.Stop()
				return
			}
		}
		select {
		case w.out <- next.event:
		case <-w.over:
			return
		}
	}
}

func (w *watcher) next() (change, bool) {
	for {
		w.mu.Lock()
		if len(w.queue) > 0 {
			first := w.queue[0]
			w.queue = w.queue[1:]
			w.mu.Unlock()
			return first, true
		}
		w.mu.Unlock()
		select {
		case <-w.woken:
		case <-w.over:
			return change{}, false
		}
	}
}

func (w *watcher) finish() { w.once.Do(func() { close(w.over) }) }

// Stop implements watch.Interface.
func (w *watcher) Stop() {
	w.server.mu.Lock()
	delete(w.server.watches, w)
	w.server.mu.Unlock()
	w.finish()
}

// ResultChan implements watch.Interface.
func (w *watcher) ResultChan() <-chan watch.Event { return w.out }
