// SPDX-License-Identifier: Apache-2.0

package signin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"navix.sh/atoll/pkg/durable"
)

// Store is the file with the tokens of one context.
type Store struct{ path string }

// NewStore returns the store of a context, in a directory.
func NewStore(dir, name string) Store {
	sum := sha256.Sum256([]byte(name))
	return Store{filepath.Join(dir, "tokens", hex.EncodeToString(sum[:8])+".json")}
}

// Load returns the tokens, or nil if there are none for these settings.
func (s Store) Load(settings Settings) (*Tokens, error) {
	data, err := os.ReadFile(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil // not signed in
	case err != nil:
		return nil, fmt.Errorf("reading tokens: %w", err)
	}
	var t Tokens
	if err := json.Unmarshal(data, &t); err != nil {
		return nil, fmt.Errorf("reading tokens, %s: %w", s.path, err)
	}
	if t.Issuer != settings.Issuer || t.ClientID != settings.ClientID {
		return nil, nil // tokens of earlier settings of the context
	}
	return &t, nil
}

// Save replaces the tokens.
func (s Store) Save(t *Tokens) error {
	if err := durable.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
		return err
	}
	return durable.WriteFile(s.path, 0o600, func(f *os.File) error { return json.NewEncoder(f).Encode(t) })
}

// Remove removes the tokens.
func (s Store) Remove() error {
	if err := os.Remove(s.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing tokens: %w", err)
	}
	return nil
}

// Token returns a fresh ID token, and renews it if necessary. ErrEnded means that the user has to sign in.
func (s Store) Token(ctx context.Context, settings Settings) (string, error) {
	tokens, err := s.Load(settings)
	switch {
	case err != nil:
		return "", err
	case tokens == nil:
		return "", fmt.Errorf("%w: there are no tokens", ErrEnded)
	case tokens.Fresh(time.Now()):
		return tokens.ID, nil
	}
	unlock, err := lock(ctx, s.path+".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	// Another process may have renewed the tokens in the meantime.
	if tokens, err = s.Load(settings); err != nil || tokens == nil || tokens.Fresh(time.Now()) {
		if tokens != nil {
			return tokens.ID, err
		}
		return "", errors.Join(ErrEnded, err)
	}
	client, err := New(ctx, settings)
	if err != nil {
		return "", err
	}
	// Finish a renewal that has begun, because a refresh token may be valid only once, and the next one would be lost with the response.
	// requestTimeout bounds the renewal.
	if tokens, err = client.Renew(context.WithoutCancel(ctx), tokens); err != nil {
		return "", err
	}
	return tokens.ID, s.Save(tokens)
}
