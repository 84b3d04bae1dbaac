// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"navix.sh/atoll/pkg/outcome"
	"navix.sh/atoll/pkg/wallclock"
	"navix.sh/atoll/worker/internal/latency"
	"navix.sh/atoll/worker/internal/sandbox"
)

const (
	backoffMin = 200 * time.Millisecond
	backoffMax = 5 * time.Second
	// checkEvery is the longest pause between two tries of a check, because a caller waits for it.
	checkEvery = time.Second
)

// Failure reasons of a sandbox.
const (
	// ReasonFailed: a hook failed permanently.
	ReasonFailed = outcome.HookFailed
	// ReasonSecret: a hook refers to a Secret that it may not use.
	ReasonSecret = outcome.HookSecret
)

// Status is the status of a job.
type Status string

// The statuses.
const (
	Due     Status = "Due" // not started here
	Working Status = "Working"
	Done    Status = "Done"
	Failed  Status = "Failed"
	// Unresolved: it failed because of a Secret that a hook refers to.
	Unresolved Status = "Unresolved"
)

// State is the status of a job, with a message. While the job works, the message is its last failure, if there was one.
type State struct {
	Status  Status
	Message string
}

// Reader reads a Pod live.
type Reader interface {
	Pod(ctx context.Context, name types.NamespacedName) (*corev1.Pod, error)
}

// Execer runs a command in a container, and discards its output.
type Execer interface {
	Exec(ctx context.Context, pod types.NamespacedName, container string, command []string) error
}

// Guard registers commands that are sent to the API server, so that no Pod is reset while the API server may still hold one; see package
// sandboxes.
type Guard interface {
	// BeginExec registers a command before it is sent. done reports that its outcome is known. ok is false if the sandbox is about to end, or
	// is not on the Pod.
	BeginExec(pod types.UID, sandbox string) (done func(), ok bool)
}

type noGuard struct{}

func (noGuard) BeginExec(types.UID, string) (func(), bool) { return func() {}, true }

// Options configure a Runner. Pods and Exec are required.
type Options struct {
	Pods Reader
	Exec Execer
	// Secrets reads the Secrets that hooks refer to; nil if they may refer to none.
	Secrets Secrets
	// Guard keeps Pods from being reset during a command; nil if no Pod is ever reset.
	Guard Guard
	// Held reports whether this process still leads; nil means always.
	Held func() bool
	// Dial opens connections to Pods; that of package net by default.
	Dial    func(ctx context.Context, network, address string) (net.Conn, error)
	Clock   clock.Clock
	Latency *latency.Recorder
	Log     logr.Logger
}

// Runner runs jobs.
type Runner struct {
	opts Options
	tls  *tls.Config
	wg   sync.WaitGroup

	mu      sync.Mutex
	leading context.Context
	jobs    map[types.NamespacedName]map[types.UID]*work
	changed func(pool types.NamespacedName)
}

// work is a job under way.
type work struct {
	container, sandbox string
	cancel             context.CancelFunc
	state              State
}

// New returns a Runner. Jobs can start while Start runs.
func New(o Options) (*Runner, error) {
	if o.Pods == nil || o.Exec == nil {
		return nil, errors.New("a runner of hooks needs a way to read Pods and one to run commands in them")
	}
	if o.Held == nil {
		o.Held = func() bool { return true }
	}
	if o.Guard == nil {
		o.Guard = noGuard{}
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{}).DialContext
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &Runner{
		opts: o, jobs: map[types.NamespacedName]map[types.UID]*work{}, changed: func(types.NamespacedName) {},
		tls: &tls.Config{InsecureSkipVerify: true}, // a Pod has no certificate for its address; kubelets' probes do the same
	}, nil
}

// NeedLeaderElection makes the manager call Start on the leader only.
func (r *Runner) NeedLeaderElection() bool { return true }

// Start lets jobs start until ctx ends, then ends those under way.
func (r *Runner) Start(ctx context.Context) error {
	r.mu.Lock()
	r.leading = ctx
	r.mu.Unlock()
	<-ctx.Done()
	r.mu.Lock()
	r.leading = nil
	r.mu.Unlock()
	r.wg.Wait()
	return nil
}

// OnChange registers f, which is called when the state of a pool's jobs changes, and must not block.
func (r *Runner) OnChange(f func(pool types.NamespacedName)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed = f
}

// Follow returns the states of the given jobs of a pool, and ends and removes the pool's other jobs: their Pods have another container,
// another sandbox, or left the phase starting.
func (r *Runner) Follow(pool types.NamespacedName, jobs []Job) map[types.UID]State {
	r.mu.Lock()
	defer r.mu.Unlock()
	begun := r.jobs[pool]
	states := make(map[types.UID]State, len(jobs))
	for i := range jobs {
		j := &jobs[i]
		states[j.UID] = State{Status: Due}
		if w := begun[j.UID]; w != nil && w.container == j.Container && w.sandbox == j.Sandbox {
			states[j.UID] = w.state
		}
	}
	for uid, w := range begun {
		if s, wanted := states[uid]; !wanted || s.Status == Due {
			w.cancel()
			delete(begun, uid)
		}
	}
	if len(begun) == 0 {
		delete(r.jobs, pool)
	}
	return states
}

// Begin starts a job, unless it was already started or this process does not lead.
func (r *Runner) Begin(job Job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leading == nil || r.jobs[job.Pool][job.UID] != nil {
		return
	}
	ctx, cancel := context.WithCancel(r.leading)
	w := &work{container: job.Container, sandbox: job.Sandbox, cancel: cancel, state: State{Status: Working}}
	if r.jobs[job.Pool] == nil {
		r.jobs[job.Pool] = map[types.UID]*work{}
	}
	r.jobs[job.Pool][job.UID] = w
	r.wg.Go(func() {
		defer cancel()
		began := r.opts.Clock.Now()
		err := r.carryOut(ctx, &job, w)
		switch {
		case err == nil:
			r.opts.Latency.Took(latency.Hook, r.opts.Clock.Since(began))
			r.set(&job, w, State{Status: Done})
		case errors.Is(err, errNotOurs) || ctx.Err() != nil:
			r.drop(&job, w)
		default:
			r.opts.Log.Info("A sandbox's hook failed", "pool", job.Pool.String(), "pod", job.Pod.Name, "sandbox", job.Sandbox, "error", err.Error())
			status := Failed
			if errors.Is(err, errSecret) {
				status = Unresolved
			}
			r.set(&job, w, State{Status: status, Message: err.Error()})
		}
	})
}

func (r *Runner) set(job *Job, w *work, s State) {
	r.mu.Lock()
	news := w.state != s
	w.state = s
	changed := r.changed
	r.mu.Unlock()
	if news {
		changed(job.Pool)
	}
}

// drop removes a job that no longer seems to match its Pod. If it does match, the job starts again.
func (r *Runner) drop(job *Job, w *work) {
	r.mu.Lock()
	if r.jobs[job.Pool][job.UID] == w {
		delete(r.jobs[job.Pool], job.UID)
		if len(r.jobs[job.Pool]) == 0 {
			delete(r.jobs, job.Pool)
		}
	}
	r.mu.Unlock()
}

func (r *Runner) carryOut(ctx context.Context, job *Job, w *work) error {
	if job.Invalid != nil {
		return fmt.Errorf("the hooks on the Pod cannot be read: %w", job.Invalid)
	}
	for i := range job.Steps {
		if err := r.step(ctx, job, &job.Steps[i], w); err != nil {
			return err
		}
	}
	return nil
}

// step tries a step until it succeeds or has failed permanently, or the job is over.
func (r *Runner) step(ctx context.Context, job *Job, s *Step, w *work) error {
	wait, failures := backoffMin, 0
	for {
		err := r.try(ctx, job, s)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil, errors.Is(err, errNotOurs):
			return err
		case !errors.Is(err, errUnsure):
			failures++
		}
		err = stepError(s, failures, err)
		if s.Retries != forever && failures > s.Retries || errors.Is(err, errHopeless) {
			return err
		}
		r.set(job, w, State{Status: Working, Message: err.Error()})
		if err := wallclock.Sleep(ctx, r.opts.Clock, wait); err != nil {
			return err
		}
		wait = min(2*wait, backoffMax)
		if s.Retries == forever {
			wait = min(wait, checkEvery)
		}
	}
}

func stepError(s *Step, failures int, err error) error {
	if s.Retries == forever {
		return fmt.Errorf("%s: %w", s.Title, err) // without a count, which would change the message every time
	}
	return fmt.Errorf("%s failed %d of %d times: %w", s.Title, failures, s.Retries+1, err)
}

// ours reports whether a Pod still matches the job.
func (j *Job) ours(pod *corev1.Pod) bool {
	s := sandbox.Read(pod)
	return pod.UID == j.UID && pod.DeletionTimestamp == nil && s.ID == j.Sandbox && s.Phase == sandbox.Starting &&
		sandbox.ContainerID(pod) == j.Container
}
