// SPDX-License-Identifier: Apache-2.0

// Package builds stores the templates that builds of E2B clients have created, in the hub's store.
//
// In: templates of package e2b. Out: the stored templates, one for each name and team. Each team has its own names; because a team's name
// must not change what the creates of another team get: TestANameIsOfATeam. The number of templates is bounded, per team and in total:
// TestTemplatesAreBounded, TestBuildsAtOnceAreBounded.
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
	// Max bounds the number of templates.
	Max = 5000
	// MaxPerTeam bounds the number of templates of a team. Callers without a team share one such bound.
	MaxPerTeam = 500
	// MaxBuilding bounds the running builds of a team.
	MaxBuilding = 4
)

// Store stores templates. It implements e2b.Templates.
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
