// SPDX-License-Identifier: Apache-2.0

package link

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Invitation is the content of a token with which a cluster joins.
type Invitation struct {
	// CA is the hash of the CA of the hub that issued the invitation; see CAHash.
	CA string
	// ID names the invitation, and is no secret.
	ID     string
	secret string
}

const (
	invitationPrefix = "atoll-join.v1."
	// MaxInvitation is the maximum length of a token in bytes.
	MaxInvitation = 512
)

// ErrInvitation means that a text is not the token of an invitation.
var ErrInvitation = errors.New("no invitation")

var (
	hexHash   = regexp.MustCompile(`^[0-9a-f]{64}$`)
	tokenPart = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
)

// ParseInvitation reads a token. White space around it is ignored, because files end with a newline. The error never contains the
// token's secret.
func ParseInvitation(text string) (Invitation, error) {
	const want = invitationPrefix + "<hash of the CA>.<id>.<secret>, as atollctl cluster invite prints it"
	text = strings.TrimSpace(text)
	if text == "" {
		return Invitation{}, fmt.Errorf("%w: it is empty, want %s", ErrInvitation, want)
	}
	if len(text) > MaxInvitation {
		return Invitation{}, fmt.Errorf("%w: it has %d bytes, want at most %d", ErrInvitation, len(text), MaxInvitation)
	}
	rest, ok := strings.CutPrefix(text, invitationPrefix)
	if !ok {
		return Invitation{}, fmt.Errorf("%w: it does not begin with %s, want %s", ErrInvitation, invitationPrefix, want)
	}
	parts := strings.Split(rest, ".")
	if len(parts) != 3 {
		return Invitation{}, fmt.Errorf("%w: it has %d parts after %s, want 3: %s", ErrInvitation, len(parts), invitationPrefix, want)
	}
	if !hexHash.MatchString(parts[0]) {
		return Invitation{}, fmt.Errorf("%w: the hash of its CA has %d characters or others than 0-9 and a-f, want 64 of these",
			ErrInvitation, len(parts[0]))
	}
	for i, name := range []string{"id", "secret"} {
		if !tokenPart.MatchString(parts[i+1]) {
			return Invitation{}, fmt.Errorf("%w: its %s is empty or has other characters than A-Z, a-z, 0-9, _ and -", ErrInvitation, name)
		}
	}
	return Invitation{CA: parts[0], ID: parts[1], secret: parts[2]}, nil
}

// NewInvitation returns an invitation to the hub with the given CA.
func NewInvitation(ca, id, secret string) Invitation {
	return Invitation{CA: ca, ID: id, secret: secret}
}

// Secret proves that the bearer was invited.
func (i Invitation) Secret() string { return i.secret }

// Token is the whole token, secret included.
func (i Invitation) Token() string { return invitationPrefix + i.CA + "." + i.ID + "." + i.secret }

// String names the invitation without its secret.
func (i Invitation) String() string { return "invitation " + i.ID }

// CAHash identifies a CA's certificate: the SHA-256 of its DER, in hex.
func CAHash(der []byte) string {
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:])
}
