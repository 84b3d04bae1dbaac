// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"errors"
	"time"
)

// Kind is how an Identity was authenticated.
type Kind string

// The kinds.
const (
	KindKey            Kind = "key"
	KindOIDC           Kind = "oidc"
	KindServiceAccount Kind = "serviceaccount"
	KindKubernetes     Kind = "kubernetes" // with a TokenReview
)

// Identity is an authenticated caller.
type Identity struct {
	Kind   Kind
	Name   string   // for logs, errors and the audit: name of the key, else of the user
	User   string   // name in bindings; empty for most keys
	Groups []string // names in bindings
	Key    string   // name of the API key; empty: none
	Issuer string   // issuer of the token, if the hub verified it itself; empty: none

	Team          string // empty: objects without a team
	AllTeams      bool
	TenantUser    string   // the only user whose sandboxes it may see; empty: every user of the team
	Namespaces    []string // limits the identity, whatever is bound to it; none: see AllNamespaces
	AllNamespaces bool     // no such limit; if neither is set, Roles hold nowhere, and bindings hold where they say

	// Roles are the roles of a key's scopes. They hold within the limits above.
	Roles   []string
	Expires *time.Time // nil: never
	// Extra is additional data for an Authorizer, such as the extra of a TokenReview.
	UID   string
	Extra map[string][]string
}

// Unbound reports whether the identity has no limits of its own.
func (i *Identity) Unbound() bool { return i.AllTeams && i.AllNamespaces && i.TenantUser == "" }

// Authenticator returns the identity of a caller with a token.
type Authenticator interface {
	// Authenticate returns ErrNotMine for a token of another kind or issuer. It returns a problem UNAUTHENTICATED for an invalid token of its
	// own kind.
	Authenticate(ctx context.Context, token string) (*Identity, error)
}

// ErrNotMine is returned by an Authenticator for a token that another Authenticator may accept.
var ErrNotMine = errors.New("the token is of another kind")

// Chain calls Authenticators in order until one recognizes the token.
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
