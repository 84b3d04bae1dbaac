// SPDX-License-Identifier: Apache-2.0

package await

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Action is what a task waits for.
type Action string

// The actions.
const (
	Ready  Action = "Ready"
	Pause  Action = "Pause"
	Resume Action = "Resume"
)

// ErrTimeout ends a wait whose time is up.
var ErrTimeout = errors.New("not in time")

// ConflictError refuses a task while the sandbox has another action.
type ConflictError struct {
	ID     string
	Active Action
	Wanted Action
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("sandbox %s: %s is under way, so that %s has to wait", e.ID, e.Active, e.Wanted)
}

// Tasks are those of all sandboxes. Its methods are safe for concurrent use, and call nobody back.
type Tasks struct {
	clock clock.Clock

	mu    sync.Mutex
	hooks map[string]*hook
}

// hook is the one action of a sandbox.
type hook struct {
	action  Action
	tasks   int
	changed chan struct{} // closed by the next change
}

// New answers Tasks that nobody waits with yet.
func New(c clock.Clock) *Tasks { return &Tasks{clock: c, hooks: map[string]*hook{}} }

// Task is one caller's wait.
type Task struct {
	tasks  *Tasks
	id     string
	action Action

	mu   sync.Mutex
	hook *hook // nil: not acquired yet, or released
	done bool
}

// NewPause acquires the hook of a sandbox that is about to be paused.
func (t *Tasks) NewPause(id string) (*Task, error) { return t.acquired(id, Pause) }

// NewResume acquires the hook of a sandbox that is about to be resumed.
func (t *Tasks) NewResume(id string) (*Task, error) { return t.acquired(id, Resume) }

// NewReady answers a task that acquires its hook when it waits.
func (t *Tasks) NewReady(id string) *Task { return &Task{tasks: t, id: id, action: Ready} }

func (t *Tasks) acquired(id string, action Action) (*Task, error) {
	task := &Task{tasks: t, id: id, action: action}
	return task, task.acquire()
}

// Active is the action that a sandbox has; empty for none.
func (t *Tasks) Active(id string) Action {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h := t.hooks[id]; h != nil {
		return h.action
	}
	return ""
}

// Changed wakes whoever waits for a sandbox.
func (t *Tasks) Changed(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h := t.hooks[id]; h != nil {
		close(h.changed)
		h.changed = make(chan struct{})
	}
}

// Len is how many sandboxes are waited for.
func (t *Tasks) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.hooks)
}

// acquire takes the hook, unless the task has it.
func (task *Task) acquire() error {
	task.mu.Lock()
	defer task.mu.Unlock()
	if task.hook != nil || task.done {
		return nil
	}
	t := task.tasks
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.hooks[task.id]
	switch {
	case h == nil:
		h = &hook{action: task.action, changed: make(chan struct{})}
		t.hooks[task.id] = h
	case h.action != task.action:
		return &ConflictError{ID: task.id, Active: h.action, Wanted: task.action}
	}
	h.tasks++
	task.hook = h
	return nil
}

// Release lets go of the hook. It may be called more than once.
func (task *Task) Release() {
	task.mu.Lock()
	defer task.mu.Unlock()
	h := task.hook
	task.hook, task.done = nil, true
	if h == nil {
		return
	}
	t := task.tasks
	t.mu.Lock()
	defer t.mu.Unlock()
	if h.tasks--; h.tasks == 0 {
		delete(t.hooks, task.id)
	}
}

// next is closed by the next change of the sandbox; nil, which never is, once the task is released.
func (task *Task) next() <-chan struct{} {
	task.mu.Lock()
	defer task.mu.Unlock()
	if task.hook == nil {
		return nil
	}
	t := task.tasks
	t.mu.Lock()
	defer t.mu.Unlock()
	return task.hook.changed
}

// Question is what a wait asks.
type Question struct {
	// Done looks at what is known of the sandbox. It is called without any lock, by the waiting goroutine alone.
	Done func() (bool, error)
	// Live reads what the sandbox is now, for Done to see; nil where nothing could be had from that.
	Live func(ctx context.Context) error
	// Within is how long to wait; not at all if it is not above 0.
	Within time.Duration
}

// Wait waits until the answer is yes or an error, and releases the task. It ends with ErrTimeout, with the error of ctx, or
// with a *ConflictError if the task had no hook yet and cannot have it.
func (task *Task) Wait(ctx context.Context, q Question) error {
	defer task.Release()
	if err := task.acquire(); err != nil {
		return err
	}
	timer := task.tasks.clock.NewTimer(q.Within)
	defer timer.Stop()
	for {
		changed := task.next()
		if done, err := q.Done(); done || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-timer.C():
			return task.giveUp(ctx, q)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// giveUp asks for the last time, and goes by what is there now.
func (task *Task) giveUp(ctx context.Context, q Question) error {
	if q.Live != nil {
		if err := q.Live(ctx); err != nil {
			return fmt.Errorf("%w: %w", ErrTimeout, err)
		}
	}
	if done, err := q.Done(); done || err != nil {
		return err
	}
	return ErrTimeout
}
