// SPDX-License-Identifier: Apache-2.0

package hubstate_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/hubstate"
)

// An archive, whose content is fuzzed, is restored as a whole, or leaves the directory as it was and writes nowhere else.
func FuzzArchive(f *testing.F) {
	packed := func(files map[string][]byte, names ...string) []byte {
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		for _, name := range names {
			must.Succeed(f, w.WriteHeader(&tar.Header{Name: name, Size: int64(len(files[name])), Mode: 0o600}))
			_, err := w.Write(files[name])
			must.Succeed(f, err)
		}
		must.Succeed(f, w.Close())
		return out.Bytes()
	}
	manifest := func(claims, registry []byte) []byte {
		m := hubstate.Manifest{Format: 1}
		for kind, data := range map[hubstate.Kind][]byte{hubstate.Claims: claims, hubstate.Registry: registry} {
			sum := sha256.Sum256(data)
			m.Files = append(m.Files, hubstate.File{Kind: kind, Bytes: int64(len(data)), SHA256: hex.EncodeToString(sum[:])})
		}
		if m.Files[0].Kind != hubstate.Claims {
			m.Files[0], m.Files[1] = m.Files[1], m.Files[0]
		}
		data, err := json.Marshal(m)
		must.Succeed(f, err)
		return data
	}
	junk := []byte("this is no file of bbolt")
	files := map[string][]byte{"manifest.json": manifest(junk, nil), "claims.db": junk, "registry.db": nil, "../claims.db": junk,
		"/etc/passwd": junk}
	f.Add(packed(files, "manifest.json", "claims.db", "registry.db"))
	f.Add(packed(files, "manifest.json", "../claims.db", "registry.db"))
	f.Add(packed(files, "manifest.json", "registry.db", "claims.db", "/etc/passwd"))
	f.Add(packed(files, "claims.db"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, archive []byte) {
		var zipped bytes.Buffer
		w := gzip.NewWriter(&zipped)
		_, err := w.Write(archive)
		must.Succeed(t, err)
		must.Succeed(t, w.Close())
		_, inspected := hubstate.Inspect(bytes.NewReader(zipped.Bytes()))
		around := t.TempDir()
		dir := filepath.Join(around, "data")
		_, err = hubstate.Restore(t.Context(), &zipped, dir, false, nil)
		if err == nil && inspected != nil {
			t.Fatalf("restored, and not sound: %v", inspected)
		}
		left, _ := os.ReadDir(dir)
		beside, _ := os.ReadDir(around)
		if err != nil && len(left) > 0 || len(beside) > 1 {
			t.Fatalf("%v: left %v, and %v around", err, left, beside)
		}
	})
}
