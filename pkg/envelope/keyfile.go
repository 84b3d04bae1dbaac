// SPDX-License-Identifier: Apache-2.0

package envelope

import (
	"bytes"
	"context"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

const (
	maxKeys    = 64
	maxKeyFile = 64 << 10
)

// KeyFile is a Provider whose keys are in a YAML file, as `atoll-hub encryption-key new` prints them:
//
//	keys:
//	- name: "2026-11"
//	  secret: 32 bytes in base64
//
// The first key encrypts, all of them decrypt. All methods are safe for concurrent use.
type KeyFile struct {
	path string

	mu      sync.RWMutex
	current string
	listed  []string
	keys    map[string]fileKey // keys that are or were in the file
	last    []byte
}

type fileKey struct {
	secret []byte
	print  []byte // distinguishes another secret of the same name from damage
	aead   cipher.AEAD
}

const printSize = 8

type keyFile struct {
	Keys []keyEntry `json:"keys"`
}

type keyEntry struct {
	Name   string `json:"name"`
	Secret []byte `json:"secret"`
}

// OpenKeyFile reads a file of keys.
func OpenKeyFile(path string) (*KeyFile, error) {
	f := &KeyFile{path: path, keys: map[string]fileKey{}}
	_, err := f.Reread()
	return f, err
}

// Open returns a Sealer with the keys of a file, or nil without a path.
func Open(path string) (*Sealer, error) {
	if path == "" {
		return nil, nil //nolint:nilnil // nothing is encrypted
	}
	keys, err := OpenKeyFile(path)
	if err != nil {
		return nil, err
	}
	return New(keys), nil
}

// Reread loads a changed file. After an error the previous keys stay in use.
func (f *KeyFile) Reread() (changed bool, err error) {
	data, err := os.ReadFile(f.path)
	if err != nil {
		return false, fmt.Errorf("encryption keys: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last != nil && bytes.Equal(f.last, data) {
		return false, nil
	}
	names, keys, err := parseKeys(data)
	if err == nil {
		err = f.differ(keys)
	}
	if err != nil {
		return false, fmt.Errorf("encryption keys file %s: %w", f.path, err)
	}
	maps.Copy(f.keys, keys)
	f.current, f.listed, f.last = names[0], names, data
	return true, nil
}

// differ rejects another secret under a known name.
func (f *KeyFile) differ(keys map[string]fileKey) error {
	for name, key := range keys {
		if before, ok := f.keys[name]; ok && !bytes.Equal(before.secret, key.secret) {
			return fmt.Errorf("key %q has another secret than before, want a new name for a new key", name)
		}
	}
	return nil
}

// parseKeys parses a file of keys. Its errors never contain a secret.
func parseKeys(data []byte) (names []string, keys map[string]fileKey, err error) {
	if len(data) > maxKeyFile {
		return nil, nil, fmt.Errorf("it has %d bytes, want at most %d", len(data), maxKeyFile)
	}
	var file keyFile
	if yaml.UnmarshalStrict(data, &file) != nil { // the error may quote the file
		return nil, nil, errors.New("it is not valid, want keys: with a name and a secret in base64 each, as `atoll-hub encryption-key new` " +
			"prints them")
	}
	if len(file.Keys) == 0 || len(file.Keys) > maxKeys {
		return nil, nil, fmt.Errorf("it has %d keys, want 1 to %d", len(file.Keys), maxKeys)
	}
	keys, secrets := map[string]fileKey{}, map[string]int{}
	for i, k := range file.Keys {
		before, twice := secrets[string(k.Secret)]
		_, known := keys[k.Name]
		switch {
		case len(validation.IsDNS1123Label(k.Name)) > 0:
			return nil, nil, fmt.Errorf("keys[%d].name: %q is not valid, want up to 63 of a-z, 0-9 and -", i, k.Name)
		case known:
			return nil, nil, fmt.Errorf("keys[%d].name: %q is there twice", i, k.Name)
		case len(k.Secret) != keySize:
			return nil, nil, fmt.Errorf("keys[%d].secret: it has %d bytes, want %d in base64", i, len(k.Secret), keySize)
		case twice:
			return nil, nil, fmt.Errorf("keys[%d].secret: it is that of keys[%d], want another", i, before)
		}
		aead, err := newAEAD(k.Secret)
		if err != nil {
			return nil, nil, err
		}
		keys[k.Name], secrets[string(k.Secret)] = fileKey{k.Secret, fingerprint(k.Secret), aead}, i
		names = append(names, k.Name)
	}
	return names, keys, nil
}

// Current implements Provider.
func (f *KeyFile) Current() string {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.current
}

// Names returns the names of the keys in the file, in order.
func (f *KeyFile) Names() []string {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.listed
}

// Wrap implements Provider.
func (f *KeyFile) Wrap(_ context.Context, dataKey []byte) (string, []byte, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	key := f.keys[f.current]
	return f.current, key.aead.Seal(bytes.Clone(key.print), nil, dataKey, associated(magic, f.current)), nil
}

// Unwrap implements Provider.
func (f *KeyFile) Unwrap(_ context.Context, name string, wrapped []byte) ([]byte, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	key, ok := f.keys[name]
	if !ok {
		return nil, fmt.Errorf("%w: %q is not in %s, which has %q", ErrNoKey, name, f.path, f.listed)
	}
	box, ok := bytes.CutPrefix(wrapped, key.print)
	if !ok {
		return nil, fmt.Errorf("%w: %q of %s", ErrWrongKey, name, f.path)
	}
	dataKey, err := key.aead.Open(nil, nil, box, associated(magic, name))
	if err != nil {
		return nil, fmt.Errorf("%w: its data key, wrapped with %q, was changed", ErrDamaged, name)
	}
	return dataKey, nil
}

// fingerprint identifies a secret without revealing it.
func fingerprint(secret []byte) []byte {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("atoll encryption key"))
	return mac.Sum(nil)[:printSize]
}

// NewKey returns a file with one new key.
func NewKey(name string) ([]byte, error) {
	secret := make([]byte, keySize)
	_, _ = rand.Read(secret) // never fails
	file := fmt.Appendf(nil, "keys:\n- name: %q\n  secret: %s\n", name, base64.StdEncoding.EncodeToString(secret))
	_, _, err := parseKeys(file)
	return file, err
}
