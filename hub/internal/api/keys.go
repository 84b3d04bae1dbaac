// SPDX-License-Identifier: Apache-2.0

package api

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

// Scope is what a key permits.
type Scope string

// The scopes.
const (
	ScopeRead  Scope = "read"
	ScopeClaim Scope = "claim" // and read
	ScopeAdmin Scope = "admin" // everything
)

// TokenPrefix is the prefix of every token, so that secret scanners recognise it.
const TokenPrefix = "atoll_"

// Key is one entry of the keys file.
type Key struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"` // of the token, in hex
	// Team and Namespaces bound what the key's caller may see and name. Without a team it reaches only what has no team. Without namespaces it
	// reaches nothing.
	Team          string   `json:"team,omitempty"`
	AllTeams      bool     `json:"allTeams,omitempty"`
	User          string   `json:"user,omitempty"` // empty: every user of the team
	Namespaces    []string `json:"namespaces,omitempty"`
	AllNamespaces bool     `json:"allNamespaces,omitempty"`

	Scopes  []Scope    `json:"scopes"`
	Expires *time.Time `json:"expires,omitempty"`

	digest []byte
}

type keysFile struct {
	Keys []Key `json:"keys"`
}

// Keys is a parsed keys file.
type Keys struct{ keys []Key }

// ParseKeys parses a keys file. One invalid entry makes the whole file invalid.
func ParseKeys(data []byte) (*Keys, error) {
	var file keysFile
	if err := yaml.UnmarshalStrict(data, &file); err != nil {
		return nil, fmt.Errorf("reading keys, want a list of entries below the line `keys:`, as `atoll-hub api-key new` prints it: %w", err)
	}
	var errs []error
	seen := map[string]int{}
	for i := range file.Keys {
		k := &file.Keys[i]
		if err := k.prepare(); err != nil {
			errs = append(errs, fmt.Errorf("keys[%d] %q: %w", i, k.Name, err))
			continue
		}
		for _, unique := range []string{"name " + k.Name, "sha256 " + k.SHA256} {
			if before, twice := seen[unique]; twice {
				errs = append(errs, fmt.Errorf("keys[%d] and keys[%d] have the same %s", before, i, unique))
			}
			seen[unique] = i
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if len(file.Keys) == 0 {
		return nil, errors.New("no keys: an empty list would lock every caller out")
	}
	return &Keys{file.Keys}, nil
}

func (k *Key) prepare() error {
	var err error
	if k.Name == "" {
		return errors.New("name: is missing")
	}
	if k.digest, err = hex.DecodeString(k.SHA256); err != nil || len(k.digest) != sha256.Size {
		return errors.New("sha256: want 64 hex digits, as `atoll-hub api-key new` prints them")
	}
	k.SHA256 = strings.ToLower(k.SHA256)
	if len(k.Scopes) == 0 {
		return errors.New("scopes: want at least one of read, claim, admin")
	}
	for _, s := range k.Scopes {
		if s != ScopeRead && s != ScopeClaim && s != ScopeAdmin {
			return fmt.Errorf("scopes: %q is not one of read, claim, admin", s)
		}
	}
	if k.AllTeams && k.Team != "" {
		return errors.New("allTeams: true beside a team, want one of them")
	}
	if k.AllNamespaces && len(k.Namespaces) > 0 {
		return errors.New("allNamespaces: true beside namespaces, want one of them")
	}
	for _, n := range k.Namespaces {
		if len(validation.IsDNS1123Label(n)) > 0 {
			return fmt.Errorf("namespaces: %q is not valid, want a DNS label of at most 63 characters", n)
		}
	}
	return nil
}

// blind returns the names of the keys without access to anything, as in files from before an empty list stopped meaning all.
func (k *Keys) blind() (names []string) {
	for i := range k.keys {
		if len(k.keys[i].Namespaces) == 0 && !k.keys[i].AllNamespaces {
			names = append(names, k.keys[i].Name)
		}
	}
	return names
}

// find returns the key of a token. It takes as long for a wrong token as for a right one.
func (k *Keys) find(token string) *Key {
	digest := sha256.Sum256([]byte(token))
	var found *Key
	for i := range k.keys {
		if subtle.ConstantTimeCompare(digest[:], k.keys[i].digest) == 1 {
			found = &k.keys[i]
		}
	}
	return found
}

func (k *Key) expired(now time.Time) bool { return k.Expires != nil && !now.Before(*k.Expires) }

// NewToken creates a token and its entry for the keys file.
func NewToken(entry Key) (token string, yamlEntry []byte, err error) {
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return "", nil, fmt.Errorf("minting a token: %w", err)
	}
	token = TokenPrefix + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(secret))
	digest := sha256.Sum256([]byte(token))
	entry.SHA256 = hex.EncodeToString(digest[:])
	if err := entry.prepare(); err != nil {
		return "", nil, err
	}
	yamlEntry, err = yaml.Marshal(keysFile{[]Key{entry}})
	return token, yamlEntry, err
}
