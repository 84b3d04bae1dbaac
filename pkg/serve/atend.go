// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"sync"
)

// AtEnd calls f when ctx ends, and not later than wait, which returns after f. A server may return before ctx's AfterFunc has begun.
func AtEnd(ctx context.Context, f func()) (wait func()) {
	once := sync.OnceFunc(f)
	forget := context.AfterFunc(ctx, once)
	return func() {
		forget()
		once()
	}
}
