// SPDX-License-Identifier: Apache-2.0

// Package testlog gives a test a logger that falls silent when the test ends; because a manager's event broadcaster and servers
// may log later, which testing reports as a race or a panic.
package testlog

import (
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
)

// New returns a logger that writes to t until t ends.
func New(t testing.TB) logr.Logger {
	var mu sync.Mutex
	ended := false
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		ended = true
	})
	return funcr.New(func(prefix, args string) {
		mu.Lock()
		defer mu.Unlock()
		if !ended {
			t.Log(prefix, args)
		}
	}, funcr.Options{})
}
