// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"sync"
)

// AtEnd calls f once: when ctx ends, or when the caller calls wait, whichever is first. wait returns after f has returned. Use it where a
// server may return before an AfterFunc of ctx has started.
func AtEnd(ctx context.Context, f func()) (wait func()) {
	once := sync.OnceFunc(f)
	forget := context.AfterFunc(ctx, once)
	return func() {
		forget()
		once()
	}
}
