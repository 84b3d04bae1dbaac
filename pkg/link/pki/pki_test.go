// SPDX-License-Identifier: Apache-2.0

package pki_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/link/pki"
)

func TestACAIsMadeOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	if _, err := pki.Open(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("opening nothing: %v", err)
	}
	first, err := pki.Create(dir)
	must.Succeed(t, err)
	if _, err := pki.Create(dir); !errors.Is(err, fs.ErrExist) {
		t.Errorf("making a second one: %v", err)
	}
	for name, open := range map[string]func(string) (*pki.Authority, error){"Open": pki.Open, "New": pki.New} {
		if again, err := open(dir); err != nil || !again.Certificate().Equal(first.Certificate()) {
			t.Errorf("%s: another CA (%v)", name, err)
		}
	}
}

// A CA of which one file is missing must not be replaced: the other may be put back.
func TestHalfACAIsLeftAlone(t *testing.T) {
	for _, lost := range []string{"ca.key", "ca.crt"} {
		dir := t.TempDir()
		_, err := pki.Create(dir)
		must.Succeed(t, err)
		must.Succeed(t, os.Remove(filepath.Join(dir, lost)))
		if _, err := pki.New(dir); !errors.Is(err, fs.ErrExist) {
			t.Errorf("without %s: %v, want a refusal", lost, err)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
			t.Errorf("without %s: left are %v (%v)", lost, entries, err)
		}
	}
}

func TestKeysAreForTheirOwnerWhateverTheUmask(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	dir := filepath.Join(t.TempDir(), "pki")
	authority, err := pki.New(dir)
	must.Succeed(t, err)
	_, err = authority.Hub("hub.example.org")
	must.Succeed(t, err)
	_, err = authority.Cluster("east")
	must.Succeed(t, err)
	for name, want := range map[string]fs.FileMode{
		".": 0o700, "ca.key": 0o600, "hub.key": 0o600, "cluster-east.key": 0o600, "ca.crt": 0o644, "hub.crt": 0o644,
	} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v (%v), want %v", name, info.Mode().Perm(), err, want)
		}
	}
}

func TestIssuedIsTheLastOne(t *testing.T) {
	authority, err := pki.New(t.TempDir())
	must.Succeed(t, err)
	if _, err := authority.Issued(link.Cluster("east")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("before: %v", err)
	}
	var serials []string
	for range 2 {
		_, err = authority.Cluster("east")
		must.Succeed(t, err)
		cert, err := authority.Issued(link.Cluster("east"))
		must.Succeed(t, err)
		serials = append(serials, cert.SerialNumber.String())
	}
	if serials[0] == serials[1] {
		t.Error("the second certificate is the first")
	}
	if _, err := authority.Issued(link.Hub()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the hub: %v", err)
	}
}
