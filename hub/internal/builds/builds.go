// SPDX-License-Identifier: Apache-2.0

// Package builds keeps the templates of E2B clients that builds have made, in the hub's store.
//
// In: templates of package e2b. Out: the same, of each name and team one. A name is another team's own; because a name of a team must not
// change what another one's creates get: TestANameIsOfATeam. How many there are is bounded, of a team and in all: TestTemplatesAreBounded,
// TestBuildsAtOnceAreBounded.
package builds

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"

	"navix.sh/atoll/pkg/e2b"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/store"
)

const prefix = "e2b-template/"

const (
	// Max is how many templates there may be.
	Max = 5000
	// MaxPerTeam is how many there may be of a team; or of callers without one, all together.
	MaxPerTeam = 500
	// MaxBuilding is how many builds of a team may be under way.
	MaxBuilding = 4
)

// Store keeps templates. It implements e2b.Templates.
type Store struct {
	store        store.Store
	max, perTeam int
}

// New returns a Store.
func New(s store.Store) *Store { return &Store{s, Max, MaxPerTeam} }

// A name has no slash.
func keyOf(name, team string) string { return prefix + name + "/" + url.PathEscape(team) }

// Find implements e2b.Templates.
func (s *Store) Find(ctx context.Context, name string) ([]e2b.Template, error) {
	entries, err := s.store.Range(ctx, prefix+name+"/", "", s.max)
	if err != nil {
		return nil, fmt.Errorf("reading templates of builds: %w", err)
	}
	out := make([]e2b.Template, len(entries))
	for i := range entries {
		if err := json.Unmarshal(entries[i].Value, &out[i]); err != nil {
			return nil, fmt.Errorf("reading template %s: %w", entries[i].Key, err)
		}
	}
	return out, nil
}

// Room implements e2b.Templates.
func (s *Store) Room(ctx context.Context, t e2b.Template) error {
	entries, err := s.store.Range(ctx, prefix, "", s.max)
	if err != nil {
		return fmt.Errorf("counting templates of builds: %w", err)
	}
	has, own, building := false, 0, 0
	for i := range entries {
		var one e2b.Template
		if err := json.Unmarshal(entries[i].Value, &one); err != nil {
			return fmt.Errorf("reading template %s: %w", entries[i].Key, err)
		}
		if one.Team != t.Team {
			continue
		}
		own++
		has = has || one.Name == t.Name
		if one.State == e2b.Building && t.Begun.Sub(one.Begun) < e2b.BuildTimeout {
			building++
		}
	}
	switch {
	case building >= MaxBuilding:
		return problem.New(problem.RateLimited, "%d builds of this team are under way, which is the most at once", building).
			WithRetryAfter(problem.RetrySoon)
	case !has && own >= s.perTeam:
		return problem.New(problem.Quota, "there are %d templates of builds of this team, which is the most; delete one", own)
	case !has && len(entries) >= s.max:
		return problem.New(problem.Quota, "there are %d templates of builds, which is the most; delete one", s.max)
	}
	return nil
}

// Put implements e2b.Templates.
func (s *Store) Put(ctx context.Context, t e2b.Template) error {
	if err := s.Room(ctx, t); err != nil {
		return err
	}
	value, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("writing template %s: %w", t.Name, err)
	}
	if _, err := s.store.Commit(ctx, store.Txn{Puts: []store.Put{{Key: keyOf(t.Name, t.Team), Value: value}}}); err != nil {
		return fmt.Errorf("storing template %s: %w", t.Name, err)
	}
	return nil
}

// Settle implements e2b.Templates.
func (s *Store) Settle(ctx context.Context, t e2b.Template) error {
	key := keyOf(t.Name, t.Team)
	entry, has, err := s.store.Get(ctx, key)
	if err != nil || !has {
		return err
	}
	var now e2b.Template
	if err := json.Unmarshal(entry.Value, &now); err != nil {
		return fmt.Errorf("reading template %s: %w", t.Name, err)
	}
	if now.Build != t.Build {
		return nil
	}
	value, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("writing template %s: %w", t.Name, err)
	}
	if _, err := store.CompareAndSwap(ctx, s.store, key, entry.Revision, value); err != nil && !errors.Is(err, store.ErrConflict) {
		return fmt.Errorf("storing template %s: %w", t.Name, err)
	}
	return nil // after a conflict another call has settled it, or replaced it
}

// Delete implements e2b.Templates.
func (s *Store) Delete(ctx context.Context, name, team string) error {
	if _, err := s.store.Commit(ctx, store.Txn{Deletes: []string{keyOf(name, team)}}); err != nil {
		return fmt.Errorf("deleting template %s: %w", name, err)
	}
	return nil
}
