// SPDX-License-Identifier: Apache-2.0

package authority

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testlog"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/hubstate"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/link/pki"
	"navix.sh/atoll/pkg/store"
)

// openWithFiles returns an Authority with certificate files, and a CA that is not in them.
func openWithFiles(t *testing.T) (*Authority, link.Files, *clocktesting.FakeClock, *pki.CA) {
	t.Helper()
	made, err := pki.New(filepath.Join(t.TempDir(), "pki"))
	must.Succeed(t, err)
	files, err := made.Hub("127.0.0.1")
	must.Succeed(t, err)
	clk := clocktesting.NewFakeClock(time.Now())
	a, err := Open(t.Context(), Options{Store: store.NewMemory(), Clock: clk, Log: testlog.New(t), Files: &files})
	must.Succeed(t, err)
	other, err := pki.NewCA("other", clk.Now())
	must.Succeed(t, err)
	return a, files, clk, other
}

// TestCAsOfFilesAreTakenUp: clusters are sent a CA that is put into the file while the hub runs, and trust those of before as long as the
// file cannot be used.
func TestCAsOfFilesAreTakenUp(t *testing.T) {
	a, files, clk, other := openWithFiles(t)
	before, err := os.ReadFile(files.CA)
	must.Succeed(t, err)
	trust, changed := a.Trust()

	for _, damaged := range []string{"", "no certificate"} {
		if err := a.takeFiles([]byte(damaged)); !errors.Is(err, errNoCA) {
			t.Errorf("a file with %q: %v", damaged, err)
		}
	}
	if now, _ := a.Trust(); now.Hash != trust.Hash {
		t.Error("damage has changed what clusters trust")
	}

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	must.Succeed(t, os.WriteFile(files.CA, slices.Concat(before, other.PEM()), 0o600))
	wait.For(t, time.Minute, "the CA of the file", func(context.Context) error {
		clk.Step(rotateEvery)
		select {
		case <-changed:
			return nil
		default:
			return errors.New("clusters are sent the same CAs")
		}
	})
	cancel()
	must.Succeed(t, <-ended)
	if now, _ := a.Trust(); !bytes.Contains(now.Bundle, other.PEM()) || !bytes.Contains(now.Bundle, trust.Bundle) || now.Hash == trust.Hash {
		t.Errorf("clusters are to trust %s", now.Bundle)
	}
}

// TestCAsOfFilesAreReadOnce: neither taking up CAs that were read, nor a step of a rotation, uses what the file has become since.
func TestCAsOfFilesAreReadOnce(t *testing.T) {
	a, files, _, other := openWithFiles(t)
	read, err := os.ReadFile(files.CA)
	must.Succeed(t, err)
	read = slices.Concat(read, other.PEM())

	must.Succeed(t, os.WriteFile(files.CA, nil, 0o600)) // it is being written again
	must.Succeed(t, a.takeFiles(read))
	if now, _ := a.Trust(); !bytes.Contains(now.Bundle, other.PEM()) {
		t.Errorf("after the CAs were taken up clusters are to trust %s", now.Bundle)
	}
	must.Succeed(t, a.Rotate(t.Context(), hubstate.Stable))
	if now, _ := a.Trust(); a.view.step != hubstate.Distributing || !bytes.Contains(now.Bundle, other.PEM()) {
		t.Errorf("at step %q clusters are to trust %s", a.view.step, now.Bundle)
	}
}
