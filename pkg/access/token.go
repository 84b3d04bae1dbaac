// SPDX-License-Identifier: Apache-2.0

package access

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"fmt"
	"strings"
)

// TokenPrefix is the prefix of the tokens of all API keys, so that secret scanners recognize them.
const TokenPrefix = "atoll_"

// NewToken creates the token of an API key, and its digest.
func NewToken() (token, digest string, err error) {
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return "", "", fmt.Errorf("minting a token: %w", err)
	}
	token = TokenPrefix + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(secret))
	return token, Digest(token), nil
}

// Digest returns what is stored of a token: its SHA-256, in hex.
func Digest(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// RoleOfScope returns the built-in role for a scope of an API key, or "" if there is no such scope.
func RoleOfScope(scope string) string {
	return map[string]string{"read": Viewer, "claim": Developer, "admin": Admin}[scope]
}
