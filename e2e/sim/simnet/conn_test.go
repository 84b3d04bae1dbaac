// SPDX-License-Identifier: Apache-2.0

package simnet

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"navix.sh/atoll/e2e/must"
)

// A reset ends both directions of the end that wrote, and does not get through a path that is stalled.
func TestAWriteToAClosedEndIsReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(1)
		l, err := n.Listen("b")
		must.Succeed(t, err)
		a, err := n.Dial(t.Context(), "a", "b")
		must.Succeed(t, err)
		b, err := l.Accept()
		must.Succeed(t, err)
		n.Path("a", "b").Stall()
		must.Succeed(t, b.Close())
		if _, err := a.Write([]byte("x")); err != nil {
			t.Errorf("across a stalled path: %v", err)
		}
		n.Path("a", "b").Heal()
		if _, err := a.Write([]byte("x")); !errors.Is(err, ErrReset) {
			t.Errorf("then: %v", err)
		}
		began := time.Now()
		if _, err := a.Read(make([]byte, 1)); !errors.Is(err, ErrReset) || time.Since(began) > 0 {
			t.Errorf("reading after a reset: %v after %s", err, time.Since(began))
		}
		must.Succeed(t, a.Close())
		must.Succeed(t, l.Close())
	})
}

// An end that closes without a write of the other one is read to its end.
func TestWhatWasWrittenBeforeTheCloseArrives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(1)
		l, err := n.Listen("b")
		must.Succeed(t, err)
		a, err := n.Dial(t.Context(), "a", "b")
		must.Succeed(t, err)
		b, err := l.Accept()
		must.Succeed(t, err)
		_, err = b.Write([]byte("last"))
		must.Succeed(t, errors.Join(err, b.Close()))
		if got, err := io.ReadAll(a); err != nil || string(got) != "last" {
			t.Errorf("read %q, %v", got, err)
		}
		must.Succeed(t, a.Close())
		must.Succeed(t, l.Close())
	})
}
