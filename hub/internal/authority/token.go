// SPDX-License-Identifier: Apache-2.0

package authority

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
)

const (
	secretBytes = 20
	idBytes     = 5
)

var letters = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

func random(n int) string {
	raw := make([]byte, n)
	_, _ = rand.Read(raw) // it never fails
	return letters.EncodeToString(raw)
}

func hashOf(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}

// is compares a secret in constant time. Without a hash it compares with zeros; because a refusal must not reveal whether there is an
// invitation.
func is(secret string, hash []byte) bool {
	if len(hash) != sha256.Size {
		hash = make([]byte, sha256.Size)
	}
	return subtle.ConstantTimeCompare(hashOf(secret), hash) == 1
}
