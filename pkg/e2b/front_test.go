// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"navix.sh/atoll/e2e/must"
)

func TestFlags(t *testing.T) {
	for _, row := range []struct {
		flags        Flags
		open, shared bool
		says         string // empty: valid
	}{
		{Flags{}, true, true, ""},
		{Flags{Domain: "x.test"}, true, false, "--e2b-domain"},
		{Flags{Listen: "127.0.0.1:8083"}, true, false, ""},
		{Flags{Listen: ":8083"}, true, false, "--auth"},
		{Flags{Listen: ":8083"}, false, false, ""},
		{Flags{Listen: ":8083"}, false, true, "--e2b-key-file"},
		{Flags{Listen: ":8083", KeyFile: "key"}, false, true, ""},
	} {
		err := row.flags.Validate(row.open, row.shared, "--auth")
		if (err == nil) != (row.says == "") || err != nil && !strings.Contains(err.Error(), row.says) {
			t.Errorf("%+v, open %v, shared %v: %v, want %q", row.flags, row.open, row.shared, err, row.says)
		}
	}
}

func TestTheKeyIsMadeOnce(t *testing.T) {
	dir := t.TempDir()
	made, err := new(Flags).Key(dir)
	must.Succeed(t, err)
	read, err := new(Flags).Key(dir)
	if err != nil || string(read) != string(made) || len(made) != KeySize {
		t.Errorf("keys %x and %x, %v", made, read, err)
	}
	bad := filepath.Join(dir, "bad")
	must.Succeed(t, os.WriteFile(bad, []byte("zz"), 0o600))
	for _, path := range []string{bad, filepath.Join(dir, "none")} {
		if _, err := (&Flags{KeyFile: path}).Key(dir); err == nil || !strings.Contains(err.Error(), "--e2b-key-file") {
			t.Errorf("%s: %v", path, err)
		}
	}
}
