// SPDX-License-Identifier: Apache-2.0

package envelope

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"navix.sh/atoll/e2e/must"
)

const canary = "canary-7f3a"

// keyFileOf writes a file with the entries of other files, in order.
func keyFileOf(t *testing.T, path string, files ...[]byte) string {
	t.Helper()
	if path == "" {
		path = filepath.Join(t.TempDir(), "keys.yaml")
	}
	all := []byte("keys:\n")
	for _, f := range files {
		all = append(all, bytes.TrimPrefix(f, []byte("keys:\n"))...)
	}
	must.Succeed(t, os.WriteFile(path, all, 0o600))
	return path
}

func newKey(t *testing.T, name string) []byte {
	t.Helper()
	file, err := NewKey(name)
	must.Succeed(t, err)
	return file
}

func sealer(t *testing.T, files ...[]byte) *Sealer {
	t.Helper()
	s, err := Open(keyFileOf(t, "", files...))
	must.Succeed(t, err)
	return s
}

func seal(t *testing.T, s *Sealer, place, value string) []byte {
	t.Helper()
	sealed, err := s.Seal(t.Context(), place, []byte(value))
	must.Succeed(t, err)
	return sealed
}

func TestAnEnvelopeOpensInItsPlaceAlone(t *testing.T) {
	s := sealer(t, newKey(t, "a"))
	sealed, again := seal(t, s, "claims\x00k", canary), seal(t, s, "claims\x00k", canary)
	if bytes.Contains(sealed, []byte(canary)) || bytes.Equal(sealed, again) {
		t.Errorf("sealed to %q and %q", sealed, again)
	}
	if name, ok := KeyOf(sealed); !ok || name != "a" {
		t.Errorf("sealed with key %q, %t", name, ok)
	}
	if value, err := s.Open(t.Context(), "claims\x00k", sealed); err != nil || string(value) != canary {
		t.Errorf("opened to %q, %v", value, err)
	}
	if _, err := s.Open(t.Context(), "claims\x00other", sealed); !errors.Is(err, ErrDamaged) {
		t.Errorf("opened elsewhere: %v", err)
	}
	if _, err := s.Open(t.Context(), "claims\x00k", []byte(`{"plain":1}`)); !errors.Is(err, ErrDamaged) {
		t.Errorf("a plain value opened: %v", err)
	}
}

// Every byte of an envelope counts, and so does its length.
func TestAChangedEnvelopeDoesNotOpen(t *testing.T) {
	s := sealer(t, newKey(t, "a"))
	sealed := seal(t, s, "p", canary)
	for i := range sealed {
		changed := bytes.Clone(sealed)
		changed[i] ^= 1
		_, err := s.Open(t.Context(), "p", changed)
		named := i >= len(magic) && i < len(magic)+2+len("a")+2+printSize // the name of its key, and which one that is
		if !errors.Is(err, ErrDamaged) && (!named || !errors.Is(err, ErrNoKey) && !errors.Is(err, ErrWrongKey)) {
			t.Errorf("with byte %d changed: %v", i, err)
		}
		if _, err := s.Open(t.Context(), "p", sealed[:i]); !errors.Is(err, ErrDamaged) {
			t.Errorf("cut off after %d bytes: %v", i, err)
		}
	}
}

func TestWithoutItsKey(t *testing.T) {
	a, b := newKey(t, "a"), newKey(t, "b")
	sealed := seal(t, sealer(t, a), "p", canary)
	if _, err := sealer(t, b).Open(t.Context(), "p", sealed); !errors.Is(err, ErrNoKey) || !strings.Contains(err.Error(), `"a"`) {
		t.Errorf("with another key: %v", err)
	}
	if _, err := sealer(t, newKey(t, "a")).Open(t.Context(), "p", sealed); !errors.Is(err, ErrWrongKey) {
		t.Errorf("with another key of the name: %v", err)
	}
	if value, err := sealer(t, b, a).Open(t.Context(), "p", sealed); err != nil || string(value) != canary {
		t.Errorf("with its key in second place: %q, %v", value, err)
	}
}

func TestRotation(t *testing.T) {
	a, b := newKey(t, "a"), newKey(t, "b")
	path := keyFileOf(t, "", a)
	keys, err := OpenKeyFile(path)
	must.Succeed(t, err)
	s := New(keys)
	first := seal(t, s, "p", canary)
	reread := func(want bool, valid string, files ...[]byte) {
		t.Helper()
		keyFileOf(t, path, files...)
		if changed, err := keys.Reread(); changed != want || (err == nil) != (valid == "") || err != nil &&
			!strings.Contains(err.Error(), valid) {
			t.Errorf("reread: %t, %v; want %t, %q", changed, err, want, valid)
		}
	}
	reread(false, "", a)
	reread(true, "", b, a)
	second := seal(t, s, "p", canary)
	if name, _ := KeyOf(second); name != "b" || s.Current() != "b" {
		t.Errorf("after the rotation sealed with %q", name)
	}
	reread(false, "another secret", newKey(t, "a"), b)
	reread(true, "", b)
	for _, sealed := range [][]byte{first, second} {
		if value, err := s.Open(t.Context(), "p", sealed); err != nil || string(value) != canary {
			t.Errorf("after the removal: %q, %v", value, err)
		}
	}
}

func TestADataKeyIsReplacedInTime(t *testing.T) {
	s := sealer(t, newKey(t, "a"))
	first := seal(t, s, "p", canary)
	s.current.sealed = maxSealed
	second := seal(t, s, "p", canary)
	one, _ := parse(first)
	other, _ := parse(second)
	if bytes.Equal(one.header, other.header) {
		t.Error("more values than a data key is for")
	}
	for n := range maxKnown + 1 {
		s.remember([]byte(fmt.Sprint(n)), nil)
	}
	if len(s.known) > maxKnown {
		t.Errorf("%d data keys are kept (I10)", len(s.known))
	}
	if value, err := s.Open(t.Context(), "p", first); err != nil || string(value) != canary {
		t.Errorf("a data key that was dropped: %q, %v", value, err)
	}
}

func TestKeyFilesAreCheckedAndNotQuoted(t *testing.T) {
	const secret = "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3I="
	entry := func(name, secret string) string { return "- {name: " + name + ", secret: " + secret + "}\n" }
	for name, c := range map[string]struct{ text, want string }{
		"nothing":            {"", "0 keys, want 1 to 64"},
		"no YAML":            {"keys: [" + secret, "not valid"},
		"unknown fields":     {"keys:\n- {name: a, secret: " + secret + ", sceret: x}", "not valid"},
		"no base64":          {"keys:\n" + entry("a", "hunter2hunter2!"), "not valid"},
		"short":              {"keys:\n" + entry("a", "aHVudGVyMg=="), "keys[0].secret: it has 7 bytes, want 32"},
		"a name":             {"keys:\n" + entry("A_b", secret), `keys[0].name: "A_b" is not valid`},
		"a name twice":       {"keys:\n" + entry("a", secret) + entry("a", secret), `keys[1].name: "a" is there twice`},
		"a secret twice":     {"keys:\n" + entry("a", secret) + entry("b", secret), "keys[1].secret: it is that of keys[0]"},
		"too large":          {"keys:\n" + strings.Repeat("# comment\n", maxKeyFile/10+1), "want at most 65536"},
		"more keys than 64":  {"keys:\n" + strings.Repeat(entry("a", secret), 65), "65 keys, want 1 to 64"},
		"a key, and all set": {"keys:\n" + entry("a", secret), ""},
	} {
		path := filepath.Join(t.TempDir(), "keys.yaml")
		must.Succeed(t, os.WriteFile(path, []byte(c.text), 0o600))
		_, err := OpenKeyFile(path)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if err != nil && (strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "hunter2")) {
			t.Errorf("%s: the error quotes the file: %v", name, err)
		}
	}
	if _, err := NewKey("A"); err == nil {
		t.Error("a key with a name that no file may have")
	}
	if s, err := Open(""); s != nil || err != nil {
		t.Errorf("without a file: %v, %v", s, err)
	}
}

func FuzzOpen(f *testing.F) {
	path := filepath.Join(f.TempDir(), "keys.yaml")
	file, err := NewKey("a")
	if err == nil {
		err = os.WriteFile(path, file, 0o600)
	}
	must.Succeed(f, err)
	s, err := Open(path)
	must.Succeed(f, err)
	sealed, err := s.Seal(f.Context(), "p", []byte(canary))
	must.Succeed(f, err)
	f.Add(sealed)
	f.Add(sealed[:20])
	f.Add([]byte("\x00ev\x01\x01a\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		value, err := s.Open(t.Context(), "p", data)
		if err == nil && (string(value) != canary || !bytes.Equal(data, sealed)) {
			t.Fatalf("%q opened to %q", data, value)
		}
	})
}
