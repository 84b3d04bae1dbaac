// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"navix.sh/atoll/pkg/durable"
)

// making is held while a key is created, because a program's API and its gateway may both be the first to need it.
var making sync.Mutex

// Key reads the key of the gateway. Without a key file it reads the key in the data directory, or creates it there.
func (f *Flags) Key(dataDir string) ([]byte, error) {
	path := f.KeyFile
	if path == "" {
		path = filepath.Join(dataDir, "e2b-key")
	}
	making.Lock()
	defer making.Unlock()
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) && f.KeyFile == "" {
		key := make([]byte, KeySize)
		_, _ = rand.Read(key) // never fails
		return key, durable.WriteFile(path, 0o600, func(f *os.File) error {
			_, err := f.WriteString(hex.EncodeToString(key) + "\n")
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("--e2b-key-file: %w", err)
	}
	key, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(key) != KeySize {
		return nil, fmt.Errorf("--e2b-key-file: %s does not have %d hex digits", path, 2*KeySize)
	}
	return key, nil
}

// ErrNoKey means that a program has no key for the daemons of sandboxes.
var ErrNoKey = errors.New("it takes --e2b-key-file (chart value e2b.keySecretName), the same at each replica")

// DaemonKey returns a function that returns the key from which the tokens of sandboxes' daemons are derived. The key is read, or created,
// when it is first needed. shared means that several replicas serve the same sandboxes.
func (f *Flags) DaemonKey(dataDir string, shared bool) func() ([]byte, error) {
	var mu sync.Mutex
	var known []byte
	return func() ([]byte, error) {
		if f.KeyFile == "" && (shared || dataDir == "") {
			return nil, ErrNoKey
		}
		mu.Lock()
		defer mu.Unlock()
		if known != nil {
			return known, nil
		}
		key, err := f.Key(dataDir)
		if err != nil {
			return nil, fmt.Errorf("reading the key for sandboxes' daemons: %w", err)
		}
		known = key
		return known, nil
	}
}
