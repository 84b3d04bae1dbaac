// SPDX-License-Identifier: Apache-2.0

package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/client"
)

// releaseTimeout bounds the release of a session's sandboxes.
const releaseTimeout = 30 * time.Second

// Options configure a Session.
type Options struct {
	Client *client.Client
	// Env is the default Env for sandboxes, NAME or NAMESPACE/NAME. Empty: each call must name an Env.
	Env string
	// IdleTimeout is the idle timeout of the sandboxes.
	IdleTimeout time.Duration
	// MaxSandboxes is the maximum number of sandboxes that a session has at the same time.
	MaxSandboxes int
	// Origin is the API's origin for the agent, such as https://hub.example. Empty: the client's.
	Origin  string
	Version string
}

// maxCalls is the maximum number of tool calls of a session at the same time.
const maxCalls = 8

// Session is one agent's use of sandboxes.
type Session struct {
	opts   Options
	server *mcp.Server
	ending context.Context // ends with the session, and ends its tool calls
	end    context.CancelFunc
	tools  chan struct{} // holds an entry for each running tool call

	mu        sync.Mutex
	sandboxes map[string]*client.Sandbox
	creating  int
	over      bool
	calls     sync.WaitGroup // running creates
}

// New returns a Session that has not begun.
func New(o Options) *Session { return newSession(o, mcp.ServerOptions{}) }

func newSession(o Options, of mcp.ServerOptions) *Session {
	s := &Session{opts: o, sandboxes: map[string]*client.Sandbox{}, tools: make(chan struct{}, maxCalls)}
	s.ending, s.end = context.WithCancel(context.Background())
	of.Instructions = "Create a sandbox, run commands in it, read and write its files, and release it. What is in it is gone after that."
	s.server = mcp.NewServer(&mcp.Implementation{Name: "atoll", Title: "Atoll sandboxes", Version: o.Version}, &of)
	s.addTools()
	return s
}

// Run serves the session until its agent leaves or ctx ends, and then releases its sandboxes.
func (s *Session) Run(ctx context.Context, transport mcp.Transport) error {
	err := s.server.Run(ctx, transport)
	if ctx.Err() != nil {
		err = nil // the session was ended on purpose
	}
	return errors.Join(err, s.leave(context.WithoutCancel(ctx)))
}

// leave releases the session's sandboxes, including those that are still being created.
func (s *Session) leave(ctx context.Context) error {
	s.end()
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	s.calls.Wait()
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	s.mu.Lock()
	left := slices.Collect(maps.Values(s.sandboxes))
	s.sandboxes = map[string]*client.Sandbox{}
	s.mu.Unlock()
	errs := make([]error, len(left))
	var group sync.WaitGroup
	for i, sandbox := range left {
		group.Go(func() {
			if err := sandbox.Release(ctx); err != nil {
				errs[i] = fmt.Errorf("releasing sandbox %s: %w", sandbox.ID(), err)
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// create claims a sandbox for the session.
func (s *Session) create(ctx context.Context, request *sandboxv1.CreateSandboxRequest) (*client.Sandbox, error) {
	s.mu.Lock()
	switch {
	case s.over:
		s.mu.Unlock()
		return nil, errors.New("the session ends")
	case len(s.sandboxes)+s.creating >= s.opts.MaxSandboxes:
		s.mu.Unlock()
		return nil, fmt.Errorf("this session has %d sandboxes, which is the most; release one first", s.opts.MaxSandboxes)
	}
	s.creating++
	s.calls.Add(1)
	s.mu.Unlock()
	defer s.calls.Done()
	if s.opts.IdleTimeout > 0 {
		request.IdleTimeout = durationpb.New(s.opts.IdleTimeout)
	}
	sandbox, err := s.opts.Client.Create(ctx, request)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.creating--
	if err == nil {
		s.sandboxes[sandbox.ID()] = sandbox
	}
	return sandbox, err
}

// sandbox returns a sandbox of the session. id may be empty if there is only one.
func (s *Session) sandbox(id string) (*client.Sandbox, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.sandboxes[id]; found != nil {
		return found, nil
	}
	all := slices.Sorted(maps.Keys(s.sandboxes))
	switch {
	case id == "" && len(all) == 1:
		return s.sandboxes[all[0]], nil
	case len(all) == 0:
		return nil, errors.New("this session has no sandbox; create one first")
	case id == "":
		return nil, fmt.Errorf("sandbox is missing; this session has: %s", strings.Join(all, ", "))
	default:
		return nil, fmt.Errorf("sandbox %.64q is not of this session, which has: %s", id, strings.Join(all, ", "))
	}
}

func (s *Session) release(ctx context.Context, id string) (string, error) {
	sandbox, err := s.sandbox(id)
	if err != nil {
		return "", err
	}
	if err := sandbox.Release(ctx); err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sandboxes, sandbox.ID())
	return sandbox.ID(), nil
}
