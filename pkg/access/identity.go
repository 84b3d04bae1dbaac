// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"errors"
	"time"
)

// Kind is how an Identity was proved.
type Kind string

// The kinds.
const (
	KindKey            Kind = "key"
	KindOIDC           Kind = "oidc"
	KindServiceAccount Kind = "serviceaccount"
	KindKubernetes     Kind = "kubernetes" // by TokenReview
)

// Identity is a caller whose token was valid.
type Identity struct {
	Kind   Kind
	Name   string   // in logs, errors and the audit: of the key, else the user
	User   string   // as bindings name it; empty for most keys
	Groups []string // as bindings name them
	Key    string   // name of the API key; empty: none
	Issuer string   // of the token, where the hub has verified it itself; empty: none

	Team          string // empty: what has no team
	AllTeams      bool
	TenantUser    string   // the only user whose sandboxes it may see; empty: every user of the team
	Namespaces    []string // that it stays within, whatever it is bound to; none: see AllNamespaces
	AllNamespaces bool     // no such bounds; without it and without Namespaces, Roles hold nowhere and bindings where they say

	// Roles hold within the bounds above: those of a key's scopes.
	Roles   []string
	Expires *time.Time // nil: never
	// Extra is what an Authorizer needs beside these, such as the extra of a TokenReview.
	UID   string
	Extra map[string][]string
}

// Unbound reports whether the identity has no bounds of its own.
func (i *Identity) Unbound() bool { return i.AllTeams && i.AllNamespaces && i.TenantUser == "" }

// Authenticator returns who shows a token.
type Authenticator interface {
	// Authenticate returns ErrNotMine for a token of another kind or issuer, and a problem UNAUTHENTICATED for one of its own that is
	// not valid.
	Authenticate(ctx context.Context, token string) (*Identity, error)
}

// ErrNotMine is the error of an Authenticator for a token that another one may know.
var ErrNotMine = errors.New("the token is of another kind")

// Chain asks Authenticators in turn, until one knows the token.
type Chain []Authenticator

// Authenticate implements Authenticator.
func (c Chain) Authenticate(ctx context.Context, token string) (*Identity, error) {
	for _, a := range c {
		if who, err := a.Authenticate(ctx, token); !errors.Is(err, ErrNotMine) {
			return who, err
		}
	}
	return nil, ErrNotMine
}
