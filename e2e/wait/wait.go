// SPDX-License-Identifier: Apache-2.0

// Package wait polls for conditions.
package wait

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// The pause between two tries is a twentieth of the time waited, within these; because a try may be a call that loads what it waits for.
const least, most = 10 * time.Millisecond, 250 * time.Millisecond

// Until tries until there is no error. When patience is over, or ctx ends, it returns the last error.
func Until(ctx context.Context, patience time.Duration, what string, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var last error
	for begin := time.Now(); ; {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err // an error by the end of ctx says nothing
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited %s for %s: %w", time.Since(begin).Round(time.Millisecond), what, last)
		case <-time.After(min(max(time.Since(begin)/20, least), most)):
		}
	}
}

// For is Until for a test, which ends with the error.
func For(t testing.TB, patience time.Duration, what string, try func(context.Context) error) {
	t.Helper()
	if err := Until(context.Background(), patience, what, try); err != nil {
		t.Fatal(err)
	}
}

// If returns nil if ok, and otherwise an error with the observed value.
func If(ok bool, seen any) error {
	if ok {
		return nil
	}
	return fmt.Errorf("saw %+v", seen)
}
