// SPDX-License-Identifier: Apache-2.0

// Package planetest is shared by the tests of reconcilers: one plane, which starts when the first test needs it and ends after
// the last one, a check for leaked goroutines, and timeouts.
package planetest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/wait"
)

// upPatience allows for the first run on a machine, which builds Kubernetes.
const upPatience = 20 * time.Minute

// Plane is the one plane of a package's tests.
type Plane struct {
	name    string
	options plane.Options
	prepare func(context.Context, *plane.Plane) error

	once sync.Once
	set  *plane.Set
	err  error
}

// New returns a plane that is not started yet. prepare runs after the start, before any test gets the plane; it adds what all
// tests need, and may be nil.
func New(name string, options plane.Options, prepare func(context.Context, *plane.Plane) error) *Plane {
	return &Plane{name: name, options: options, prepare: prepare}
}

// Up returns the plane, and starts it at the first call. If that fails, the test ends.
func (p *Plane) Up(t testing.TB) *plane.Plane {
	t.Helper()
	p.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), upPatience)
		defer cancel()
		if p.set, p.err = plane.Up(ctx, p.options, p.name); p.err == nil && p.prepare != nil {
			p.err = p.prepare(ctx, p.set.Plane(p.name))
		}
	})
	if p.err != nil {
		t.Fatalf("bringing up plane %s: %v", p.name, p.err)
	}
	return p.set.Plane(p.name)
}

// neverSynced is a goroutine that controller-runtime leaks when a manager stops before a cache of several namespaces was
// filled: it waits for that forever.
var neverSynced = goleak.IgnoreTopFunction("sigs.k8s.io/controller-runtime/pkg/cache.newMultiNamespaceInformerHandlerRegistration.func1")

// Main is for TestMain: it runs the tests, ends the plane, checks for leaked goroutines, and ends the process.
func (p *Plane) Main(m *testing.M, ignore ...goleak.Option) {
	code := m.Run()
	fail := func(err error) {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	if p.set != nil {
		if err := p.set.Down(context.Background()); err != nil {
			fail(err)
		}
	}
	if code == 0 { // a failed test may leak
		if err := goleak.Find(append(ignore, neverSynced)...); err != nil {
			fail(err)
		}
	}
	os.Exit(code)
}

// Patience is how long a test waits for what should take a second or two.
const Patience = 60 * time.Second

// Eventually waits for a condition that needs no context.
func Eventually(t testing.TB, what string, try func() error) {
	t.Helper()
	wait.For(t, Patience, what, func(context.Context) error { return try() })
}
