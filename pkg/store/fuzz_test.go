// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"navix.sh/atoll/e2e/must"
)

// sound is a file with entries of all sizes.
func sound(f *testing.F) []byte {
	f.Helper()
	path := filepath.Join(f.TempDir(), "claims.db")
	s, err := OpenBolt(path, "claims")
	must.Succeed(f, err)
	for i := range 200 {
		put := Put{Key: fmt.Sprintf("claim/%03d", i), Value: bytes.Repeat([]byte{byte(i)}, i*i%5000)}
		_, err := s.Commit(context.Background(), Txn{Puts: []Put{put}})
		must.Succeed(f, err)
	}
	must.Succeed(f, s.Close())
	data, err := os.ReadFile(path)
	must.Succeed(f, err)
	return data
}

// A file with damage in any two places, or truncated, is refused or read, and never ends the process.
func FuzzDamage(f *testing.F) {
	whole := sound(f)
	f.Add(uint32(0), []byte{}, uint32(0), []byte{}, uint32(0))
	f.Add(uint32(16), []byte{0xff, 0xff, 0xff, 0xff}, uint32(4096+16), []byte{0}, uint32(0))
	f.Add(uint32(8192), []byte{2, 0, 0, 0}, uint32(3*4096+8), bytes.Repeat([]byte{0xff}, 64), uint32(0))
	f.Add(uint32(0), []byte{}, uint32(0), []byte{}, uint32(5000))
	f.Add(uint32(12345), []byte("claim/"), uint32(54321), make([]byte, 4096), uint32(1))
	f.Fuzz(func(t *testing.T, at uint32, patch []byte, and uint32, other []byte, cut uint32) {
		data := bytes.Clone(whole)
		copy(data[int(at)%len(data):], patch)
		copy(data[int(and)%len(data):], other)
		data = data[:len(data)-int(cut)%len(data)]
		path := filepath.Join(t.TempDir(), "claims.db")
		must.Succeed(t, os.WriteFile(path, data, 0o600))
		s, err := OpenBolt(path, "claims")
		if err != nil {
			return
		}
		ctx := t.Context()
		for i := range 200 {
			_, _, _ = s.Get(ctx, fmt.Sprintf("claim/%03d", i))
		}
		_, _ = s.Range(ctx, "claim/", "", 0)
		_, _ = s.Commit(ctx, Txn{Puts: []Put{{Key: "claim/050", Value: []byte("new")}}, Deletes: []string{"claim/051"}})
		_ = s.Close()
	})
}
