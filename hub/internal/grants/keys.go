// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/emptypb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/pkg/access"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/store"
	"navix.sh/atoll/pkg/validate"
)

// Authenticate implements access.Authenticator with the keys in the store.
func (s *Service) Authenticate(_ context.Context, token string) (*access.Identity, error) {
	if !strings.HasPrefix(token, access.TokenPrefix) {
		return nil, access.ErrNotMine
	}
	digest := access.Digest(token)
	r := s.state.Load().byDigest[digest]
	if r == nil {
		return nil, access.ErrNotMine
	}
	now := s.opts.Clock.Now()
	switch {
	case s.inFile(r.Name):
		return nil, problem.New(problem.Unauthenticated, "API key %q of the store does not count, because --api-keys-file has the name", r.Name)
	case r.expired(now):
		return nil, problem.New(problem.Unauthenticated, "API key %q expired at %s", r.Name, r.Expires.UTC().Format(time.RFC3339))
	case r.SHA256 != digest && !now.Before(r.Old.Until):
		return nil, problem.New(problem.Unauthenticated, "API key %q has a new token since its rotation; this one expired at %s", r.Name,
			r.Old.Until.UTC().Format(time.RFC3339))
	}
	s.used.note(r.Name, now)
	return r.identity, nil
}

func (s *Service) inFile(name string) bool {
	return s.opts.File != nil && s.opts.File.Identity(name) != nil
}

// KeysAPI implements the service Keys.
type KeysAPI struct {
	sandboxv1.UnimplementedKeysServer
	*Service
}

// CreateKey creates a key.
func (a KeysAPI) CreateKey(ctx context.Context, in *sandboxv1.CreateKeyRequest) (*sandboxv1.ApiKey, error) {
	if err := checkKey(in); err != nil {
		return nil, err
	}
	s := a.Service
	known := s.state.Load()
	switch {
	case s.inFile(in.GetName()), known.keys[in.GetName()] != nil:
		return nil, taken(in.GetName())
	case len(known.keys) >= maxKeys:
		return nil, problem.New(problem.Quota, "the hub has %d API keys, which is as many as it keeps: revoke some", maxKeys)
	}
	valid := DefaultValidity
	if in.GetValidFor() != nil {
		valid = in.GetValidFor().AsDuration()
	}
	now := s.opts.Clock.Now().UTC().Truncate(time.Second)
	r := &record{
		Name: in.GetName(), Team: in.GetTeam(), AllTeams: in.GetAllTeams(), User: in.GetUser(), Namespaces: in.GetNamespaces(),
		AllNamespaces: in.GetAllNamespaces(), Scopes: in.GetScopes(), Created: now, CreatedBy: principal.From(ctx).Name,
		Limits: limitsOf(in.GetLimits()),
	}
	r.setValidity(now, valid)
	if err := s.mayGive(ctx, r); err != nil {
		return nil, err
	}
	return s.mint(ctx, r, 0)
}

func taken(name string) error { return problem.InvalidField("name", name, "a name that no key has") }

// mint creates a token for a record and writes the record.
func (s *Service) mint(ctx context.Context, r *record, revision uint64) (*sandboxv1.ApiKey, error) {
	token, digest, err := access.NewToken()
	if err != nil {
		return nil, err
	}
	r.SHA256 = digest
	value, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encoding key %s: %w", r.Name, err)
	}
	switch err = s.commit(ctx, keyPrefix+r.Name, revision, value); {
	case errors.Is(err, store.ErrConflict) && revision == 0:
		return nil, taken(r.Name)
	case errors.Is(err, store.ErrConflict):
		return nil, problem.New(problem.Unavailable, "API key %q was changed at the same time; call again", r.Name).WithRetryAfter(time.Second)
	case err != nil:
		return nil, err
	}
	out := r.show(time.Time{})
	out.Token = token
	return out, nil
}

// mayGive returns an error for a key with permissions that the caller lacks, by its scopes or by bindings to its name or its team.
func (s *Service) mayGive(ctx context.Context, r *record) error {
	caller := principal.From(ctx).Identity
	if caller == nil {
		return nil // without credentials every caller may do everything
	}
	key := r.prepare(0).identity
	policy := s.state.Load().policy
	for _, p := range access.Permissions() {
		given := policy.Grant(key, p)
		if given.Empty() {
			continue
		}
		has, err := s.opts.Authorizer.Authorize(ctx, caller, p)
		if err != nil {
			return err
		}
		for i := range given.Scopes {
			if !slices.ContainsFunc(has.Scopes, func(own access.Scope) bool { return gives(caller, &own, key, &given.Scopes[i]) }) {
				if has.Away != nil {
					return has.Away
				}
				return problem.New(problem.Forbidden,
					"%s may give no key the permission to %s for all that key %q is for, because it lacks that itself",
					caller.Caller(), p, r.Name)
			}
		}
	}
	return nil
}

// gives reports whether a caller's scope own includes everything that the scope given gives to a key.
func gives(caller *access.Identity, own *access.Scope, key *access.Identity, given *access.Scope) bool {
	return own.Plain() && own.AllNamespaces && (own.Whole || !given.Whole) && (own.Shared || !given.Shared) &&
		(own.AllTeams || !given.AllTeams && key.Team == caller.Team) &&
		(caller.TenantUser == "" || key.TenantUser == caller.TenantUser)
}

// ListKeys lists the keys of the store and the file.
func (a KeysAPI) ListKeys(ctx context.Context, _ *sandboxv1.ListKeysRequest) (*sandboxv1.ListKeysResponse, error) {
	s := a.Service
	used, err := s.lastUses(ctx)
	if err != nil {
		return nil, err
	}
	out := &sandboxv1.ListKeysResponse{}
	if s.opts.File != nil {
		out.Keys = s.opts.File.Shown()
	}
	for _, r := range s.state.Load().keys {
		if !s.inFile(r.Name) {
			out.Keys = append(out.Keys, r.show(used[r.Name]))
		}
	}
	slices.SortFunc(out.Keys, func(a, b *sandboxv1.ApiKey) int { return strings.Compare(a.GetName(), b.GetName()) })
	return out, nil
}

// lastUses returns the last use of each key, including uses here that are not written yet.
func (s *Service) lastUses(ctx context.Context) (map[string]time.Time, error) {
	out := map[string]time.Time{}
	for e, err := range store.All(ctx, s.opts.Store, usedPrefix, store.MaxRange) {
		if err != nil {
			return nil, storeFailed(err)
		}
		if at, err := time.Parse(time.RFC3339, string(e.Value)); err == nil {
			out[strings.TrimPrefix(e.Key, usedPrefix)] = at
		}
	}
	s.used.mu.Lock()
	defer s.used.mu.Unlock()
	for name, at := range s.used.since {
		if at.After(out[name]) {
			out[name] = at
		}
	}
	return out, nil
}

// find returns a key of the store, which can be changed.
func (s *Service) find(name string) (*record, error) {
	if r := s.state.Load().keys[name]; r != nil {
		return r, nil
	}
	if s.inFile(name) {
		return nil, problem.InvalidField("name", name, "a key of the hub's store; this one is in --api-keys-file, and is changed there")
	}
	return nil, problem.New(problem.NotFound, "no API key %q", validate.Clip(name))
}

// RotateKey replaces a key's token.
func (a KeysAPI) RotateKey(ctx context.Context, in *sandboxv1.RotateKeyRequest) (*sandboxv1.ApiKey, error) {
	var f faults
	overlap := defaultOverlap
	if in.GetOverlap() != nil {
		overlap = in.GetOverlap().AsDuration()
	}
	f.Check(overlap >= 0 && overlap <= maxOverlap, "overlap", overlap.String(), "0 to 720h")
	f.validity("validFor", in.GetValidFor() != nil, in.GetValidFor().AsDuration())
	if err := f.Err(); err != nil {
		return nil, err
	}
	s := a.Service
	before, err := s.find(in.GetName())
	if err != nil {
		return nil, err
	}
	next := *before
	if err := s.mayGive(ctx, &next); err != nil {
		return nil, err
	}
	now := s.opts.Clock.Now().UTC().Truncate(time.Second)
	valid, _ := time.ParseDuration(before.ValidFor) // empty: for ever
	if in.GetValidFor() != nil {
		valid = in.GetValidFor().AsDuration()
	}
	next.setValidity(now, valid)
	next.Old = nil
	until := now.Add(overlap)
	if before.Expires != nil && before.Expires.Before(until) {
		until = *before.Expires // a rotation never extends the old token
	}
	if until.After(now) {
		next.Old = &old{SHA256: before.SHA256, Until: until}
	}
	return s.mint(ctx, &next, before.revision)
}

// DeleteKey revokes a key.
func (a KeysAPI) DeleteKey(ctx context.Context, in *sandboxv1.DeleteKeyRequest) (*emptypb.Empty, error) {
	s := a.Service
	for {
		r, err := s.find(in.GetName())
		if err != nil {
			return nil, err
		}
		switch err = s.commit(ctx, keyPrefix+r.Name, r.revision, nil); {
		case errors.Is(err, store.ErrConflict):
			if err := s.load(ctx); err != nil { // another replica has changed it
				return nil, storeFailed(err)
			}
			continue
		case err != nil:
			return nil, err
		}
		if _, err := s.opts.Store.Commit(ctx, store.Txn{Deletes: []string{usedPrefix + r.Name}, Lazy: true}); err != nil {
			s.opts.Log.Info("The last use of a revoked key was not removed", "key", r.Name, "error", err.Error())
		}
		return &emptypb.Empty{}, nil
	}
}
