// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"navix.sh/atoll/pkg/access"
)

// KeySize is the size of a gateway's key, in bytes.
const KeySize = 32

// ClientPrefix is the prefix of API keys in the format that E2B clients accept.
const ClientPrefix = "e2b_"

var lower32 = base32.StdEncoding.WithPadding(base32.NoPadding)

// ClientKey returns an API key's token in the format that E2B clients accept: e2b_ followed by hex.
func ClientKey(token string) (string, error) {
	secret, err := lower32.DecodeString(strings.ToUpper(strings.TrimPrefix(token, access.TokenPrefix)))
	if err != nil || !strings.HasPrefix(token, access.TokenPrefix) {
		return "", errors.New("the token is not that of an API key of Atoll")
	}
	return ClientPrefix + hex.EncodeToString(secret), nil
}

// validJWT matches a token of a cluster or an OIDC issuer.
var validJWT = regexp.MustCompile(`^eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$`)

// apiKey is the inverse of ClientKey. Because some clients accept no other format, e2b_ and hex may also contain a JWT, which is no key of
// Atoll's. apiKey returns a key in any other format unchanged.
func apiKey(key string) string {
	text, ok := strings.CutPrefix(key, ClientPrefix)
	if !ok {
		return key
	}
	secret, err := hex.DecodeString(text)
	if err != nil {
		return key
	}
	if validJWT.Match(secret) {
		return string(secret)
	}
	return access.TokenPrefix + strings.ToLower(lower32.EncodeToString(secret))
}

// sealer creates and opens access tokens.
type sealer struct{ aead cipher.AEAD }

func newSealer(key []byte) (*sealer, error) {
	if len(key) != KeySize {
		return nil, fmt.Errorf("the gateway's key has %d bytes, want %d", len(key), KeySize)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("reading the gateway's key: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("reading the gateway's key: %w", err)
	}
	return &sealer{aead}, nil
}

// seal returns the token with which the caller of an API key can reach a sandbox.
func (s *sealer) seal(sandbox, apiKey string) string {
	nonce := make([]byte, s.aead.NonceSize())
	_, _ = rand.Read(nonce) // never fails
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nonce, nonce, []byte(apiKey), []byte(sandbox)))
}

var errToken = errors.New("the access token is not one of this sandbox")

// open returns the API key in a token for a sandbox.
func (s *sealer) open(sandbox, token string) (apiKey string, err error) {
	sealed, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(sealed) < s.aead.NonceSize() {
		return "", errToken
	}
	plain, err := s.aead.Open(nil, sealed[:s.aead.NonceSize()], sealed[s.aead.NonceSize():], []byte(sandbox))
	if err != nil {
		return "", errToken
	}
	return string(plain), nil
}
