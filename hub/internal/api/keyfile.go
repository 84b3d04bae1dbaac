// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/utils/clock"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/access"
	"navix.sh/atoll/pkg/problem"
)

// KeyFile authenticates callers with the keys of a file.
type KeyFile struct {
	path  string
	clock clock.PassiveClock
	log   logr.Logger
	keys  atomic.Pointer[Keys]
	last  []byte
}

// NewKeyFile reads the file, which must be valid at the start.
func NewKeyFile(path string, c clock.PassiveClock, log logr.Logger) (*KeyFile, error) {
	f := &KeyFile{path: path, clock: c, log: log}
	if _, err := f.reread(); err != nil {
		return nil, err
	}
	return f, nil
}

// takeUp applies a change of the file.
func (f *KeyFile) takeUp() {
	switch changed, err := f.reread(); {
	case err != nil:
		f.log.Error(err, "API keys not taken up; those from before stay valid")
	case changed:
		f.log.Info("API keys taken up", "file", f.path, "keys", len(f.keys.Load().keys))
	}
}

func (f *KeyFile) reread() (changed bool, err error) {
	data, err := os.ReadFile(f.path)
	if err != nil {
		return false, fmt.Errorf("API keys: %w", err)
	}
	if f.last != nil && bytes.Equal(f.last, data) {
		return false, nil
	}
	keys, err := ParseKeys(data)
	if err != nil {
		return false, fmt.Errorf("API keys file %s: %w", f.path, err)
	}
	f.keys.Store(keys)
	f.last = data
	if names := keys.blind(); len(names) > 0 {
		f.log.Info("API keys without namespaces see nothing: give them namespaces, or allNamespaces: true", "keys", names)
	}
	return true, nil
}

// Authenticate implements access.Authenticator.
func (f *KeyFile) Authenticate(_ context.Context, token string) (*access.Identity, error) {
	key := f.keys.Load().find(token)
	switch {
	case key == nil:
		return nil, access.ErrNotMine
	case key.expired(f.clock.Now()):
		return nil, problem.New(problem.Unauthenticated, "API key %q expired at %s", key.Name, key.Expires.UTC().Format(time.RFC3339))
	}
	return key.Identity(), nil
}

// Shown returns the keys of the file for a list.
func (f *KeyFile) Shown() (out []*sandboxv1.ApiKey) {
	for _, k := range f.keys.Load().keys {
		one := &sandboxv1.ApiKey{
			Name: k.Name, Team: k.Team, AllTeams: k.AllTeams, User: k.User, Namespaces: k.Namespaces, AllNamespaces: k.AllNamespaces, FromFile: true,
		}
		for _, s := range k.Scopes {
			one.Scopes = append(one.Scopes, string(s))
		}
		if k.Expires != nil {
			one.Expires = timestamppb.New(*k.Expires)
		}
		out = append(out, one)
	}
	return out
}

// Identity returns the identity of a key's caller, or nil if the file has no key with the name.
func (f *KeyFile) Identity(name string) *access.Identity {
	keys := f.keys.Load().keys
	if i := slices.IndexFunc(keys, func(k Key) bool { return k.Name == name }); i >= 0 {
		return keys[i].Identity()
	}
	return nil
}

// Identity returns the identity of the key's caller.
func (k *Key) Identity() *access.Identity {
	return &access.Identity{
		Kind: access.KindKey, Name: k.Name, Key: k.Name, Team: k.Team, AllTeams: k.AllTeams, TenantUser: k.User,
		Namespaces: k.Namespaces, AllNamespaces: k.AllNamespaces, Roles: k.roles(), Expires: k.Expires,
	}
}

// roles returns the built-in role of the key's widest scope.
func (k *Key) roles() []string {
	for _, is := range []struct {
		scope Scope
		role  string
	}{{ScopeAdmin, access.Admin}, {ScopeClaim, access.Developer}, {ScopeRead, access.Viewer}} {
		if slices.Contains(k.Scopes, is.scope) {
			return []string{is.role}
		}
	}
	return nil
}
