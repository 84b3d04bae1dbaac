// SPDX-License-Identifier: Apache-2.0

package listing

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/validate"
)

// Position is a place in the order of a list.
type Position struct {
	key string // value of the field that orders the list; empty in the order of ids
	ID  string
}

// order is an order by a key and then by id.
type order struct {
	name string // as callers write it
	key  func(*sandboxv1.Sandbox) string
	desc bool
}

// orders are by fields of a sandbox that never change.
var orders = []order{
	{name: "id", key: func(*sandboxv1.Sandbox) string { return "" }},
	{name: "claimedAt", key: claimedAt},
	{name: "env", key: func(s *sandboxv1.Sandbox) string { return s.GetNamespace() + "/" + s.GetEnv() }},
	{name: "clusterId", key: (*sandboxv1.Sandbox).GetClusterId},
	{name: "pool", key: func(s *sandboxv1.Sandbox) string { return s.GetNamespace() + "/" + s.GetPool() }},
	{name: "team", key: (*sandboxv1.Sandbox).GetTeam},
	{name: "user", key: (*sandboxv1.Sandbox).GetUser},
}

// claimedAt returns the claim time in a form that sorts as text. A sandbox without one comes first.
func claimedAt(s *sandboxv1.Sandbox) string {
	at := s.GetClaimedAt()
	if at == nil || !at.IsValid() || at.GetSeconds() < 0 {
		return ""
	}
	return fmt.Sprintf("%012d.%09d", at.GetSeconds(), at.GetNanos())
}

// Orders returns the fields by which a list can be ordered.
func Orders() []string {
	names := make([]string, 0, len(orders))
	for _, o := range orders {
		names = append(names, o.name)
	}
	return names
}

func parseOrder(f *validate.Faults, text string, ended bool) order {
	words := strings.Fields(text)
	if len(words) == 0 {
		return orders[0]
	}
	valid := "one of " + strings.Join(Orders(), ", ") + `, with " desc" for the reverse`
	i := slices.IndexFunc(orders, func(o order) bool { return strings.EqualFold(o.name, strings.ReplaceAll(words[0], "_", "")) })
	if i < 0 || len(words) > 2 || len(words) == 2 && words[1] != "asc" && words[1] != "desc" {
		f.Add("orderBy", validate.Clip(text), valid)
		return orders[0]
	}
	o := orders[i]
	o.desc = len(words) == 2 && words[1] == "desc"
	f.Check(!ended || o.byID(), "orderBy", validate.Clip(text), "id: ended sandboxes are in the order of their ids")
	return o
}

// byID reports whether the order is ascending by id, which is the order of claiming and requires only ids.
func (o order) byID() bool { return o.name == orders[0].name && !o.desc }

func (o order) compare(a, b Position) int {
	c := cmp.Or(strings.Compare(a.key, b.key), strings.Compare(a.ID, b.ID))
	if o.desc {
		return -c
	}
	return c
}

// maxPosition bounds the text of a position. A key consists of at most two names.
const maxPosition = 1024

// parse returns the position in a text. The empty text is before everything.
func (o order) parse(text string) (p Position, ok bool) {
	if text == "" || o.byID() {
		return Position{ID: text}, true
	}
	p.ID, p.key, ok = strings.Cut(text, "/")
	return p, ok && p.ID != "" && len(text) <= maxPosition
}

// text returns the text that parse accepts. In the order of ids it is an id, as earlier versions of hub and worker expect.
func (o order) text(p Position) string {
	if o.byID() {
		return p.ID
	}
	return p.ID + "/" + p.key
}

// ByID reports whether the list is in the order of ids.
func (q *Query) ByID() bool { return q.order.byID() }

// At returns the position of a sandbox.
func (q *Query) At(s *sandboxv1.Sandbox) Position {
	return Position{key: q.order.key(s), ID: s.GetId()}
}

// Compare compares positions in the order of the list.
func (q *Query) Compare(a, b Position) int { return q.order.compare(a, b) }

// Reaches reports whether the page can include a position, which is the case if it is after the page token.
func (q *Query) Reaches(p Position) bool {
	return q.request.GetPageToken() == "" || q.order.compare(p, q.after) > 0
}

// Token returns a position as the page token between hub and worker.
func (q *Query) Token(p Position) string { return q.order.text(p) }

// Page checks a page from another process: it must be in order and after the page token, and its next page must not begin before its last
// sandbox. next is nil if there is no next page.
func (q *Query) Page(sandboxes []*sandboxv1.Sandbox, token string) (next *Position, err error) {
	last, begun := q.after, q.request.GetPageToken() != ""
	for _, s := range sandboxes {
		at := q.At(s)
		if begun && q.order.compare(at, last) <= 0 {
			return nil, fmt.Errorf("sandbox %q is not after %q in the order by %s", validate.Clip(at.ID), validate.Clip(last.ID), q.order.name)
		}
		last, begun = at, true
	}
	if token == "" {
		return nil, nil
	}
	p, ok := q.order.parse(token)
	if _, named := validate.ClusterOf(p.ID); !ok || !named {
		return nil, fmt.Errorf("the next page %q is none", validate.Clip(token))
	}
	if !q.Reaches(p) || len(sandboxes) > 0 && q.order.compare(p, last) < 0 {
		return nil, fmt.Errorf("the next page %q is not after this one", validate.Clip(token))
	}
	return &p, nil
}
