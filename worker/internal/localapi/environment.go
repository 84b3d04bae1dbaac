// SPDX-License-Identifier: Apache-2.0

package localapi

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/environment"
	"navix.sh/atoll/pkg/problem"
)

// endTimeout bounds the release of a sandbox whose environment could not be set.
const endTimeout = 20 * time.Second

// NewEnvironment returns an Environment that reaches this worker's sandboxes through Options.Reach. key is environment.Options.Key.
func (o *Options) NewEnvironment(key func() ([]byte, error)) environment.Environment {
	return environment.New(environment.Options{Opener: local{o.Reach}, Key: key, Clock: clock.RealClock{}})
}

// checkEnvironment rejects a claim whose environment could not be set, before a Pod is claimed.
func (a *API) checkEnvironment(fields []string) error {
	switch {
	case len(fields) == 0:
		return nil
	case a.opts.Environment == nil:
		return problem.New(problem.Unimplemented, "%s: this worker does not set them; create the sandbox at the hub", strings.Join(fields, ", "))
	}
	return a.opts.Environment.Ready()
}

// equip sets the environment of a sandbox before it is returned. If that fails, it releases a sandbox that only this call knows. A sandbox
// that another call with its key has returned, or may return, stays.
func (a *API) equip(ctx context.Context, sandbox *sandboxv1.Sandbox, in *sandboxv1.CreateSandboxRequest, alone func() bool) error {
	err := environment.Equip(ctx, a.opts.Environment, sandbox, in) // the error of an ended sandbox is returned as it is
	if err == nil || !alone() {
		return err
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if _, ending := a.opts.Sandboxes.Release(late, sandbox.GetId()); ending != nil {
		a.opts.Log.Info("A sandbox without its environment was not released", "sandbox", sandbox.GetId(), "error", ending.Error())
	}
	return err
}

// callers holds the calls under way of each claim key. The calls bound it.
type callers struct {
	mu    sync.Mutex
	under map[string]*calling
}

// calling holds the calls of one key.
type calling struct {
	calls  int
	met    bool // there was more than one call
	ending bool
	over   chan struct{} // closed when all calls have ended
}

// enter registers a call with a key. If a call is about to release the key's sandbox, enter waits, so that no other call returns it
// meanwhile.
func (c *callers) enter(ctx context.Context, key string) (one *calling, leave func(), err error) {
	for {
		c.mu.Lock()
		one = c.under[key]
		if one == nil {
			one = &calling{over: make(chan struct{})}
			if c.under == nil {
				c.under = map[string]*calling{}
			}
			c.under[key] = one
		}
		if !one.ending {
			one.met = one.met || one.calls > 0
			one.calls++
			c.mu.Unlock()
			return one, func() { c.leave(key, one) }, nil
		}
		c.mu.Unlock()
		select {
		case <-one.over:
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("waiting for another call with the claim key: %w", ctx.Err())
		}
	}
}

func (c *callers) leave(key string, one *calling) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if one.calls--; one.calls == 0 {
		delete(c.under, key)
		close(one.over)
	}
}

// beginRelease reports whether a call has met no other call with its key. If so, no other call begins until it has ended.
func (c *callers) beginRelease(one *calling) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	one.ending = !one.met
	return one.ending
}
