// SPDX-License-Identifier: Apache-2.0

package envelope

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
)

var (
	// ErrDamaged: an envelope is not what was sealed for its place.
	ErrDamaged = errors.New("the envelope is damaged")
	// ErrNoKey: the key-encryption key of an envelope is missing.
	ErrNoKey = errors.New("the encryption key is missing")
	// ErrWrongKey: there is a key of that name with a different secret.
	ErrWrongKey = errors.New("the encryption key is another one of that name")
)

// Provider holds key-encryption keys and encrypts data keys with them. It is a file or a key management service.
type Provider interface {
	// Current returns the name of the key that encrypts.
	Current() string
	// Wrap encrypts a data key, and returns the name of the key that it used.
	Wrap(ctx context.Context, dataKey []byte) (name string, wrapped []byte, err error)
	// Unwrap decrypts a data key. It returns ErrNoKey or ErrWrongKey if it cannot.
	Unwrap(ctx context.Context, name string, wrapped []byte) (dataKey []byte, err error)
}

const (
	keySize = 32
	// maxSealed is the maximum number of values that one data key encrypts.
	maxSealed = 1 << 30
	// maxKnown bounds the cached, unwrapped data keys.
	maxKnown = 1024
	// maxWrapped bounds a wrapped data key; a key management service's is longer than a file's.
	maxWrapped = 4096
)

// magic is the prefix of every envelope. No JSON and no protobuf message starts with NUL.
var magic = []byte{0, 'e', 'v', 1}

// Sealer seals and opens values. All methods are safe for concurrent use.
type Sealer struct {
	provider Provider

	mu      sync.Mutex
	current *dataKey
	known   map[string]cipher.AEAD // data keys, by the header that holds them
}

// dataKey is a key for values, ready to use.
type dataKey struct {
	name   string // name of the key that wraps it
	header []byte
	aead   cipher.AEAD
	sealed int
}

// New returns a Sealer with the keys of a provider.
func New(p Provider) *Sealer { return &Sealer{provider: p, known: map[string]cipher.AEAD{}} }

// Current returns the name of the key that Seal uses.
func (s *Sealer) Current() string { return s.provider.Current() }

// Seal encrypts a value for a place.
func (s *Sealer) Seal(ctx context.Context, place string, value []byte) ([]byte, error) {
	key, err := s.writing(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]byte, len(key.header), len(key.header)+key.aead.Overhead()+len(value))
	copy(out, key.header)
	return key.aead.Seal(out, nil, value, associated(key.header, place)), nil
}

// Open decrypts an envelope that was sealed for a place.
func (s *Sealer) Open(ctx context.Context, place string, sealed []byte) ([]byte, error) {
	e, err := parse(sealed)
	if err != nil {
		return nil, err
	}
	aead, err := s.reading(ctx, e)
	if err != nil {
		return nil, err
	}
	value, err := aead.Open(nil, nil, e.box, associated(e.header, place))
	if err != nil {
		return nil, fmt.Errorf("%w: it was not sealed for this place, or was changed since", ErrDamaged)
	}
	return value, nil
}

// KeyOf returns the name of the key with which an envelope was sealed, or false if the value is not an envelope.
func KeyOf(sealed []byte) (name string, ok bool) {
	e, err := parse(sealed)
	return e.name, err == nil
}

// writing returns the data key for the next value to seal.
func (s *Sealer) writing(ctx context.Context) (*dataKey, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.current; k != nil && k.name == s.provider.Current() && k.sealed < maxSealed {
		k.sealed++
		return k, nil
	}
	secret := make([]byte, keySize)
	_, _ = rand.Read(secret) // never fails
	name, wrapped, err := s.provider.Wrap(ctx, secret)
	if err != nil {
		return nil, fmt.Errorf("wrapping a data key: %w", err)
	}
	aead, err := newAEAD(secret)
	if err != nil {
		return nil, err
	}
	header, err := headerOf(name, wrapped)
	if err != nil {
		return nil, err
	}
	s.current = &dataKey{name: name, header: header, aead: aead, sealed: 1}
	s.remember(header, aead)
	return s.current, nil
}

// reading returns the data key of an envelope.
func (s *Sealer) reading(ctx context.Context, e parsed) (cipher.AEAD, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if aead := s.known[string(e.header)]; aead != nil {
		return aead, nil
	}
	secret, err := s.provider.Unwrap(ctx, e.name, e.wrapped)
	if err != nil {
		return nil, err
	}
	aead, err := newAEAD(secret)
	if err != nil {
		return nil, err
	}
	s.remember(e.header, aead)
	return aead, nil
}

// remember caches a data key. The caller holds mu.
func (s *Sealer) remember(header []byte, aead cipher.AEAD) {
	if len(s.known) >= maxKnown {
		clear(s.known)
	}
	s.known[string(header)] = aead
}

func newAEAD(secret []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, fmt.Errorf("a data key of %d bytes: %w", len(secret), ErrDamaged)
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// associated returns the additional data that the encryption of an envelope authenticates.
func associated(header []byte, place string) []byte {
	return append(bytes.Clone(header), place...)
}

// parsed are the parts of an envelope:
//
//	magic 4 · length 1 · name of the key · length 2 · wrapped data key · nonce, encrypted value and tag
type parsed struct {
	header  []byte // all up to the nonce
	name    string
	wrapped []byte
	box     []byte
}

func headerOf(name string, wrapped []byte) ([]byte, error) {
	if len(name) == 0 || len(name) > 255 || len(wrapped) > maxWrapped {
		return nil, fmt.Errorf("a key name of %d bytes and a wrapped key of %d, want 1 to 255 and up to %d", len(name), len(wrapped), maxWrapped)
	}
	header := append(bytes.Clone(magic), byte(len(name)))
	header = append(header, name...)
	header = binary.BigEndian.AppendUint16(header, uint16(len(wrapped)))
	return append(header, wrapped...), nil
}

func parse(sealed []byte) (e parsed, err error) {
	rest, ok := bytes.CutPrefix(sealed, magic)
	if !ok {
		return e, fmt.Errorf("%w: it is not encrypted", ErrDamaged)
	}
	name, rest, ok := cut(rest, 1)
	if ok {
		e.name = string(name)
		e.wrapped, e.box, ok = cut(rest, 2)
	}
	if !ok || e.name == "" || len(e.wrapped) > maxWrapped {
		return parsed{}, fmt.Errorf("%w: it is cut off", ErrDamaged)
	}
	e.header = sealed[:len(sealed)-len(e.box)]
	return e, nil
}

// cut reads a length of size bytes, and then that many bytes.
func cut(data []byte, size int) (part, rest []byte, ok bool) {
	if len(data) < size {
		return nil, nil, false
	}
	n := int(data[0])
	if size == 2 {
		n = int(binary.BigEndian.Uint16(data))
	}
	if data = data[size:]; len(data) < n {
		return nil, nil, false
	}
	return data[:n], data[n:], true
}
