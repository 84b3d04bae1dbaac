// SPDX-License-Identifier: Apache-2.0

package members

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"github.com/hashicorp/memberlist"
)

// maxKeys bounds a keyring, because memberlist tries every key on each message.
const maxKeys = 8

var errKeyring = errors.New("the keyring is not valid")

// ring is a keyring that is updated from its file.
type ring struct {
	file string
	keys *memberlist.Keyring
	raw  []byte // as last read
	log  logr.Logger
}

func openRing(file string, log logr.Logger) (*ring, error) {
	raw, keys, err := readKeys(file)
	if err != nil {
		return nil, err
	}
	installed, err := memberlist.NewKeyring(keys[1:], keys[0])
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", file, errKeyring, err)
	}
	return &ring{file: file, keys: installed, raw: raw, log: log}, nil
}

func readKeys(file string) (raw []byte, keys [][]byte, err error) {
	if raw, err = os.ReadFile(file); err != nil {
		return nil, nil, fmt.Errorf("reading the keyring: %w", err)
	}
	for i, line := range strings.Split(string(raw), "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(line)
		if n := len(key); err != nil || n != 16 && n != 24 && n != 32 {
			return nil, nil, fmt.Errorf("%s: %w: line %d, want 16, 24 or 32 bytes in base64", file, errKeyring, i+1)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 || len(keys) > maxKeys {
		return nil, nil, fmt.Errorf("%s: %w: %d keys, want 1 to %d", file, errKeyring, len(keys), maxKeys)
	}
	return raw, keys, nil
}

// reread applies a changed file. If the file is not valid, it keeps the keys.
func (r *ring) reread() {
	raw, keys, err := readKeys(r.file)
	if err == nil && bytes.Equal(raw, r.raw) {
		return
	}
	if err == nil {
		err = r.install(keys)
	}
	if err != nil {
		r.log.Error(err, "Cannot use the keyring as it is now, keeping the keys read before")
		return
	}
	r.raw = raw
	r.log.Info("The keys of gossip have changed", "keys", len(keys))
}

func (r *ring) install(keys [][]byte) error {
	for _, key := range keys {
		if err := r.keys.AddKey(key); err != nil {
			return err
		}
	}
	if err := r.keys.UseKey(keys[0]); err != nil {
		return err
	}
	for _, old := range r.keys.GetKeys() {
		if !slices.ContainsFunc(keys, func(key []byte) bool { return bytes.Equal(key, old) }) {
			if err := r.keys.RemoveKey(old); err != nil {
				return err
			}
		}
	}
	return nil
}
