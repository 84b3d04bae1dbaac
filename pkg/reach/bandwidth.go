// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/pace"
)

// Rates are the bytes per second of conversations, both directions together: of all accounts, of one account, and of a sandbox (I14). Zero
// means the default. All is divided among the accounts that have data to carry.
type Rates struct{ All, Account, Sandbox int }

// DefaultRates leave half of what two processors carry to other accounts, and half of an account's rate to its other sandboxes.
var DefaultRates = Rates{All: 256, Account: 128, Sandbox: 64}.Bytes()

const mib = 1 << 20

func (r *Rates) flags() []struct {
	name, usage string
	value       *int
} {
	return []struct {
		name, usage string
		value       *int
	}{
		{"max-bandwidth", "how many MiB a second all conversations (exec, logs, ports) carry, in equal shares for teams", &r.All},
		{"team-max-bandwidth", "how many MiB a second the conversations of one team carry", &r.Account},
		{"sandbox-max-bandwidth", "how many MiB a second the conversations of one sandbox carry", &r.Sandbox},
	}
}

// Bind registers the flags, in MiB per second.
func (r *Rates) Bind(flags *pflag.FlagSet) {
	defaults := DefaultRates
	for i, flag := range r.flags() {
		flags.IntVar(flag.value, flag.name, *defaults.flags()[i].value/mib, flag.usage)
	}
}

// Validate checks the flags.
func (r *Rates) Validate() error {
	for _, flag := range r.flags() {
		const most = 1 << 20
		if *flag.value < 0 || *flag.value > most {
			return fmt.Errorf("--%s: %d is not valid, want 1 to %d, or 0 for the default", flag.name, *flag.value, most)
		}
	}
	return nil
}

// Bytes converts the rates of the flags to bytes per second.
func (r Rates) Bytes() Rates { return Rates{r.All * mib, r.Account * mib, r.Sandbox * mib} }

// bandwidthBurst is how long a holder may exceed its rate. leastBurst is the size below which a message never waits.
const (
	bandwidthBurst = 100 * time.Millisecond
	leastBurst     = 2 * MaxMessage
)

// Bandwidth limits the rate of conversations. Small conversations, such as those of a terminal, never wait.
type Bandwidth struct {
	clock     clock.Clock
	accounts  *pace.Pace[string]
	sandboxes *pace.Pace[string]
}

// NewBandwidth returns a Bandwidth.
func NewBandwidth(r Rates, c clock.Clock) *Bandwidth {
	each := pace.Limits{Rate: float64(cmp.Or(r.Account, DefaultRates.Account)), Burst: bandwidthBurst, Least: leastBurst}
	one := each
	each.All, one.Rate = float64(cmp.Or(r.All, DefaultRates.All)), float64(cmp.Or(r.Sandbox, DefaultRates.Sandbox))
	return &Bandwidth{clock: c, accounts: pace.New[string](each, c), sandboxes: pace.New[string](one, c)}
}

// Share returns a tunnel that is limited to its holder's share. It delays messages, so that flow control slows the sender down.
func (b *Bandwidth) Share(t Tunnel, h Holder) Tunnel {
	return &sharedTunnel{Tunnel: t, bandwidth: b, holder: h, closed: make(chan struct{})}
}

type sharedTunnel struct {
	Tunnel
	bandwidth *Bandwidth
	holder    Holder
	once      sync.Once
	closed    chan struct{}
}

// Recv implements Tunnel.
func (t *sharedTunnel) Recv() ([]byte, error) {
	message, err := t.Tunnel.Recv()
	if err == nil {
		t.carry(len(message))
	}
	return message, err
}

// Send implements Tunnel.
func (t *sharedTunnel) Send(message []byte) error {
	t.carry(len(message))
	return t.Tunnel.Send(message)
}

// Close implements Tunnel.
func (t *sharedTunnel) Close(reason error) {
	t.once.Do(func() { close(t.closed) })
	t.Tunnel.Close(reason)
}

// carry charges a message to its holder. It returns when the message may pass, or when the conversation has ended. A sandbox without an
// account counts as an account of its own.
func (t *sharedTunnel) carry(size int) {
	b := t.bandwidth
	wait := b.accounts.Take(cmp.Or(t.holder.Account, t.holder.Sandbox), float64(size))
	if t.holder.Sandbox != "" {
		wait = max(wait, b.sandboxes.Take(t.holder.Sandbox, float64(size)))
	}
	if wait <= 0 {
		return
	}
	timer := b.clock.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-t.closed:
	case <-t.Cut():
	}
}

// Opener returns an opener that limits its conversations by sandbox.
func (b *Bandwidth) Opener(to Opener) Opener { return sharedOpener{to, b} }

type sharedOpener struct {
	to        Opener
	bandwidth *Bandwidth
}

// Open implements Opener.
func (o sharedOpener) Open(ctx context.Context, id string, what *federationv1.ReachCall) (Tunnel, error) {
	tunnel, err := o.to.Open(ctx, id, what)
	if err != nil {
		return nil, err
	}
	return o.bandwidth.Share(tunnel, Holder{Sandbox: id}), nil
}
