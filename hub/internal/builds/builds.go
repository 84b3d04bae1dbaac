// SPDX-License-Identifier: Apache-2.0

// Package builds keeps the templates of E2B clients that builds have made, in the hub's store.
//
// In: templates of package e2b. Out: the same, of each name and team one. A name is another team's own; because a name of a team must not
// change what another one's creates get: TestANameIsOfATeam.
package builds

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"

	"navix.sh/atoll/pkg/e2b"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/store"
)

const prefix = "e2b-template/"

// Max is how many templates there may be.
const Max = 5000

// Store keeps templates. It implements e2b.Templates.
type Store struct {
	store store.Store
	max   int
}

// New returns a Store.
func New(s store.Store) *Store { return &Store{s, Max} }

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

// Put implements e2b.Templates.
func (s *Store) Put(ctx context.Context, t e2b.Template) error {
	value, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("writing template %s: %w", t.Name, err)
	}
	key := keyOf(t.Name, t.Team)
	_, has, err := s.store.Get(ctx, key)
	if err != nil {
		return fmt.Errorf("reading template %s: %w", t.Name, err)
	}
	if !has {
		all, err := s.store.Range(ctx, prefix, "", s.max)
		if err != nil {
			return fmt.Errorf("counting templates of builds: %w", err)
		}
		if len(all) >= s.max {
			return problem.New(problem.Quota, "there are %d templates of builds, which is the most; delete one", s.max)
		}
	}
	if _, err := s.store.Commit(ctx, store.Txn{Puts: []store.Put{{Key: key, Value: value}}}); err != nil {
		return fmt.Errorf("storing template %s: %w", t.Name, err)
	}
	return nil
}

// Delete implements e2b.Templates.
func (s *Store) Delete(ctx context.Context, name, team string) error {
	if _, err := s.store.Commit(ctx, store.Txn{Deletes: []string{keyOf(name, team)}}); err != nil {
		return fmt.Errorf("deleting template %s: %w", name, err)
	}
	return nil
}
