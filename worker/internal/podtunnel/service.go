// SPDX-License-Identifier: Apache-2.0

package podtunnel

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/keyed"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/reach"
	"navix.sh/atoll/worker/internal/inventory"
	"navix.sh/atoll/worker/internal/sandboxes"
)

const (
	// dialTimeout bounds how long the API server and the kubelet may take to start.
	dialTimeout = 10 * time.Second
	// leaseCheck bounds how late an idle tunnel notices that this process no longer leads.
	leaseCheck = time.Second
	// openingsAtOnce is how many conversations an account may be opening at a time (I14): each costs the API server a TLS handshake and a
	// connection to a kubelet.
	openingsAtOnce = 4
)

// Sandboxes looks up sandboxes.
type Sandboxes interface {
	Locate(id string) (sandboxes.Place, error)
	Touch(ctx context.Context, id string) (*sandboxv1.Sandbox, error)
	OnShut(f func(id string))
	// Prepared ends the preparation of a sandbox (Place.Preparing).
	Prepared(ctx context.Context, id string) error
	BeginExec(pod types.UID, id string) (done func(), ok bool)
}

// Upstream reaches Pods.
type Upstream interface {
	// Dial opens a conversation. ctx lasts for the whole conversation.
	Dial(ctx context.Context, place sandboxes.Place, what *federationv1.ReachCall) (reach.Tunnel, error)
}

// Secrets reads the values that SecretsReach refers to.
type Secrets interface {
	Read(ctx context.Context, namespace, team string, refs []*sandboxv1.SandboxSecret) (map[string]string, error)
}

// Options configure a Service. Sandboxes, Activity, Lease and Upstream are required.
type Options struct {
	Sandboxes Sandboxes
	Activity  *Activity
	Lease     inventory.Lease
	Upstream  Upstream
	// Secrets are those that sandboxes may have; nil means none.
	Secrets Secrets
	// Shares bound the tunnels, because each has buffers and a connection to the API server.
	Shares reach.Shares
	Clock  clock.WithTicker
	Log    logr.Logger
}

// Service opens tunnels to sandboxes.
type Service struct {
	opts     Options
	seats    reach.Seats
	openings keyed.Semaphore // by account

	mu       sync.Mutex
	sessions map[string]map[*session]struct{} // by sandbox id
}

var _ reach.Opener = (*Service)(nil)

// errShut returns the error that ends open tunnels when their sandbox can no longer be reached.
func errShut(id string) error {
	return problem.New(problem.NotFound, "sandbox %s has ended, or is about to", id)
}

var errNotLeading = problem.New(problem.Unavailable, "this worker does not lead any more").WithRetryAfter(time.Second)

// New returns a Service. It must run to notice that the lease was lost.
func New(opts Options) (*Service, error) {
	if opts.Sandboxes == nil || opts.Activity == nil || opts.Lease == nil || opts.Upstream == nil {
		return nil, errors.New("reach needs sandboxes, their activity, a lease and a way to Pods")
	}
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	s := &Service{
		opts: opts, seats: reach.Seats{Shares: opts.Shares}, openings: keyed.Semaphore{AtOnce: openingsAtOnce},
		sessions: map[string]map[*session]struct{}{},
	}
	opts.Sandboxes.OnShut(s.shut)
	return s, nil
}

// NeedLeaderElection returns true: followers open no tunnels.
func (s *Service) NeedLeaderElection() bool { return true }

// Start checks the lease until ctx ends, and then ends all tunnels.
func (s *Service) Start(ctx context.Context) error {
	ticker := s.opts.Clock.NewTicker(leaseCheck)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			s.end("", reach.ErrGoingAway)
			return nil
		case <-ticker.C():
			if !s.opts.Lease.Held() {
				s.end("", errNotLeading)
			}
		}
	}
}

// Open opens a tunnel into a sandbox.
func (s *Service) Open(ctx context.Context, id string, what *federationv1.ReachCall) (reach.Tunnel, error) {
	opened, err := s.begin(id, what)
	if err != nil {
		return nil, err
	}
	if err := s.reach(ctx, opened, what); err != nil {
		opened.Close(nil)
		return nil, err
	}
	return opened, nil
}

// begin registers a session before its Pod is looked up, so that any later event of the sandbox ends it. The session counts towards the
// bounds of the sandbox and its team, for every caller (I14); a sandbox never changes its team.
func (s *Service) begin(id string, what *federationv1.ReachCall) (*session, error) {
	place, err := s.opts.Sandboxes.Locate(id)
	if err != nil {
		return nil, err
	}
	if place.Preparing && !what.GetPreparing() {
		return nil, sandboxes.Starting(id)
	}
	if err := permit(place, what); err != nil {
		return nil, err
	}
	leave, err := s.seats.Take(reach.Holder{Account: accountOf(place), Sandbox: id})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	opened := newSession(s, id, leave)
	if s.sessions[id] == nil {
		s.sessions[id] = map[*session]struct{}{}
	}
	s.sessions[id][opened] = struct{}{}
	return opened, nil
}

// accountOf returns the sandbox's team. Sandboxes without a team share one account per namespace.
func accountOf(place sandboxes.Place) string {
	if place.Team == "" {
		return fmt.Sprintf("what has no team in namespace %q", place.Pod.Namespace)
	}
	return fmt.Sprintf("team %q", place.Team)
}

// forget removes a session. It is called once for each.
func (s *Service) forget(session *session) {
	session.leave()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions[session.id], session)
	if len(s.sessions[session.id]) == 0 {
		delete(s.sessions, session.id)
	}
}

func (s *Service) reach(ctx context.Context, session *session, what *federationv1.ReachCall) error {
	session.quiet = what.GetPreparing()
	if !session.quiet {
		// Touch waits for an end that is being written. A failed write of the activity does not keep the caller out.
		if _, err := s.opts.Sandboxes.Touch(ctx, session.id); err != nil && ctx.Err() != nil {
			return err
		}
	}
	place, err := s.opts.Sandboxes.Locate(session.id)
	if err != nil {
		return err
	}
	if err := s.dial(ctx, session, place, what); err != nil {
		if cause := context.Cause(session.ctx); cause != nil {
			return cause
		}
		return err
	}
	session.note()
	return session.check()
}

// dial dials upstream. It returns when the outcome is known, the session ends, or time is up.
func (s *Service) dial(ctx context.Context, session *session, place sandboxes.Place, what *federationv1.ReachCall) error {
	left := context.AfterFunc(ctx, func() { session.cut(context.Cause(ctx)) })
	defer left()
	late := s.opts.Clock.NewTimer(dialTimeout)
	defer late.Stop()
	dialled := make(chan struct{})
	defer close(dialled)
	go func() {
		select {
		case <-late.C():
			session.cut(problem.New(problem.Deadline, "the cluster did not reach sandbox %s within %s", session.id, dialTimeout))
		case <-dialled:
		}
	}()
	opened, err := s.openings.Acquire(session.ctx, accountOf(place))
	if err != nil {
		return err
	}
	defer opened()
	known := func() {}
	if runs(what) {
		var ok bool
		if known, ok = s.opts.Sandboxes.BeginExec(place.UID, session.id); !ok {
			return errShut(session.id)
		}
	}
	if what.GetPrepared() != nil {
		if err := s.opts.Sandboxes.Prepared(session.ctx, session.id); err != nil {
			return err
		}
		session.attach(given{})
		return nil
	}
	if secrets := what.GetSecrets(); secrets != nil {
		return s.give(session, place, secrets, what.GetCaller())
	}
	inner, err := s.opts.Upstream.Dial(session.ctx, place, what)
	var lost unanswered
	if err == nil || session.ctx.Err() == nil && !errors.As(err, &lost) {
		known()
	}
	if err != nil {
		return err
	}
	session.attach(inner)
	return nil
}

// runs reports whether a call runs a command in the Pod.
func runs(what *federationv1.ReachCall) bool {
	return what.GetExec() != nil || what.GetLogs().GetRuntime() != ""
}

// shut ends the tunnels of a sandbox, or all tunnels if the id is empty.
func (s *Service) shut(id string) {
	if id == "" {
		s.end("", errNotLeading)
		return
	}
	s.end(id, errShut(id))
	s.opts.Activity.forget(id)
}

func (s *Service) end(id string, reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id != "" {
		for session := range s.sessions[id] {
			session.cut(reason)
		}
		return
	}
	for _, sessions := range s.sessions {
		for session := range sessions {
			session.cut(reason)
		}
	}
}

// Tunnels returns the number of open tunnels (I10).
func (s *Service) Tunnels() int { return s.seats.Taken() }
