// SPDX-License-Identifier: Apache-2.0

// Package planetest is what the tests of a package with reconcilers have in common: one plane, which comes up when the first
// test asks for it and goes down after the last one, no goroutine left behind by any, and patience.
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

// upPatience is for the first run on a machine, which builds Kubernetes.
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

// New makes one that is not up yet. Once it is, and before a test gets it, prepare may add what all tests need; nil adds
// nothing.
func New(name string, options plane.Options, prepare func(context.Context, *plane.Plane) error) *Plane {
	return &Plane{name: name, options: options, prepare: prepare}
}

// Up returns the plane, which comes up at the first call. If it does not, the test ends.
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

// neverSynced is what controller-runtime leaves behind of a manager that is stopped before a cache of several namespaces was
// filled: it waits for that without an end.
var neverSynced = goleak.IgnoreTopFunction("sigs.k8s.io/controller-runtime/pkg/cache.newMultiNamespaceInformerHandlerRegistration.func1")

// Main is for TestMain: it runs the tests, takes the plane down, looks for goroutines that are left, and ends the process.
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
	if code == 0 { // of a test that has failed something may be left
		if err := goleak.Find(append(ignore, neverSynced)...); err != nil {
			fail(err)
		}
	}
	os.Exit(code)
}

// Patience is how long a test waits for what should take a second or two.
const Patience = 60 * time.Second

// Eventually waits for what needs no context.
func Eventually(t testing.TB, what string, try func() error) {
	t.Helper()
	wait.For(t, Patience, what, func(context.Context) error { return try() })
}
