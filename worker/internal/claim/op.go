// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/hook"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/worker/internal/disposition"
	"navix.sh/atoll/worker/internal/idle"
	"navix.sh/atoll/worker/internal/inventory"
)

// op is one claim under way, for one caller or, with a key, for all callers of the key.
type op struct {
	waiter
	claim    Claim
	queue    *queue
	id       string
	hooks    string // as written on the Pod
	startup  time.Duration
	timeouts idle.Timeouts
	started  time.Time // on the service's clock, as is deadline
	deadline time.Time

	cancel   context.CancelFunc
	canceled bool // by its key, or because its only caller left

	done chan struct{} // closed when err is set
	err  error
}

func (l locked) newOp(c Claim, p *inventory.Pool) (*op, error) {
	id, err := ulid.New(ulid.Timestamp(l.time.Now()), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("minting a sandbox id: %w", err)
	}
	lists := l.Allowed(p)
	image, err := imageOf(c.Request.GetImage(), p.Spec(), lists)
	if err != nil {
		return nil, err
	}
	hooks, err := hooksOf(c.Request)
	if err != nil {
		return nil, err
	}
	if err := containersOf(c.Request, p.Spec(), lists); err != nil {
		return nil, err
	}
	if err := l.belongingsOf(&c, p.Spec()); err != nil {
		return nil, err
	}
	if c.Request.GetDenyEgress() && !l.opts.DeniesEgress {
		return nil, disposition.Refuse(problem.Misconfigured, "denyEgress: cluster %s makes no network policies "+
			"(the worker's --sandbox-network-policy)", l.clusterID)
	}
	o := &op{
		claim: c, queue: l.queueOf(c.Pool), waiter: newWaiter(&c, image), hooks: hooks,
		id:       strings.ToLower(id.String()) + "-" + l.clusterID,
		startup:  startupTimeout(c.Request, p.Spec()),
		timeouts: timeouts(&c, p.Spec()),
		started:  l.clock.Now(),
		done:     make(chan struct{}),
	}
	o.deadline = o.started.Add(o.startup)
	return o, nil
}

// startupTimeout returns the request's timeout, else the pool's, else the default.
func startupTimeout(r *sandboxv1.CreateSandboxRequest, spec *v1alpha1.SandboxPoolSpec) time.Duration {
	if d := r.GetStartupTimeout().AsDuration(); d > 0 {
		return d
	}
	if d := spec.DefaultStartupTimeout; d != nil && d.Duration > 0 {
		return d.Duration
	}
	return DefaultStartupTimeout
}

// timeouts returns the timeouts of a claim: the request's, else the pool's, else the defaults.
func timeouts(c *Claim, spec *v1alpha1.SandboxPoolSpec) idle.Timeouts {
	r := c.Request
	t := idle.Timeouts{
		Idle: r.GetIdleTimeout().AsDuration(), MaxLifetime: r.GetMaxLifetime().AsDuration(),
		FirstActivity: r.GetFirstActivityTimeout().AsDuration(),
	}
	if d := spec.DefaultIdleTimeout; r.GetIdleTimeout() == nil && d != nil {
		t.Idle = d.Duration
	}
	if r.GetFirstActivityTimeout() == nil && c.KeyHash == "" {
		t.FirstActivity = DefaultFirstActivityTimeout
	}
	return t
}

// hooksOf returns the hooks of a checked request in the form in which they are written on a Pod.
func hooksOf(r *sandboxv1.CreateSandboxRequest) (string, error) {
	actions, faults := hook.Parse(r.GetPostStartHooks())
	if len(faults) > 0 {
		return "", disposition.Fault(problem.InvalidFields(faults...))
	}
	return hook.Encode(actions)
}

const (
	// DefaultStartupTimeout applies if neither the request nor the pool sets one.
	DefaultStartupTimeout = 2 * time.Minute
	// DefaultFirstActivityTimeout applies to claims without a key, because no caller can ask for their sandbox again.
	DefaultFirstActivityTimeout = 5 * time.Minute
	// maxTries is how many Pods a claim may lose to other writers before it is refused.
	maxTries = 16
)
