// SPDX-License-Identifier: Apache-2.0

package podtunnel

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// openingsAtOnce is how many conversations of an account are being opened at a time. The next one waits, as long as its caller does.
const openingsAtOnce = 4

// openings bound what an account makes the API server do at a time (I14): opening a conversation costs it a TLS handshake and a
// connection to a kubelet. The zero value is ready.
type openings struct {
	mu sync.Mutex
	of map[string]*opening // by account; those that open nothing have none (I10)
}

type opening struct {
	free  *semaphore.Weighted
	users int // that open or wait
}

// begin waits for the account's turn. The caller calls end when it has opened, or failed to.
func (o *openings) begin(ctx context.Context, account string) (end func(), err error) {
	o.mu.Lock()
	if o.of == nil {
		o.of = map[string]*opening{}
	}
	one := o.of[account]
	if one == nil {
		one = &opening{free: semaphore.NewWeighted(openingsAtOnce)}
		o.of[account] = one
	}
	one.users++
	o.mu.Unlock()
	leave := func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if one.users--; one.users == 0 {
			delete(o.of, account)
		}
	}
	if err := one.free.Acquire(ctx, 1); err != nil {
		leave()
		return nil, context.Cause(ctx)
	}
	return sync.OnceFunc(func() {
		one.free.Release(1)
		leave()
	}), nil
}
