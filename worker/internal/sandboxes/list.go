// SPDX-License-Identifier: Apache-2.0

package sandboxes

import (
	"cmp"
	"context"
	"slices"

	"google.golang.org/protobuf/proto"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/listing"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/worker/internal/disposition"
	"navix.sh/atoll/worker/internal/inventory"
	"navix.sh/atoll/worker/internal/sandbox"
)

// maxListBytes bounds a page of live sandboxes, which may end it before the requested number, because a response must fit into a frame of
// the link.
const maxListBytes = 512 << 10

// List returns sandboxes in the requested order: those on Pods, or those that have ended. The page token is the position up to which the
// previous page was searched, which can be beyond its last sandbox.
func (s *Service) List(ctx context.Context, r *sandboxv1.ListSandboxesRequest) (*sandboxv1.ListSandboxesResponse, error) {
	query, faults := listing.Parse(r)
	if len(faults) > 0 {
		return nil, disposition.Fault(problem.InvalidFields(faults...))
	}
	if listing.WantsEnded(r) {
		return s.listEnded(ctx, r, query.Size())
	}
	live, next, err := s.listOnPods(r, query)
	return &sandboxv1.ListSandboxesResponse{Sandboxes: live, NextPageToken: next}, err
}

// listOnPods returns sandboxes on Pods.
func (s *Service) listOnPods(r *sandboxv1.ListSandboxesRequest, query *listing.Query) (page []*sandboxv1.Sandbox, next string, err error) {
	s.inventory.View(func(v *inventory.View) {
		if !v.Complete() {
			err = disposition.NotServing()
			return
		}
		var found []listing.Position
		for id, p := range v.Sandboxes() {
			if query.ByID() && !query.Reaches(listing.Position{ID: id}) || !concerns(p, r) {
				continue
			}
			if shown := s.Show(p); query.Includes(shown) && query.Reaches(query.At(shown)) {
				found = append(found, query.At(shown))
			}
		}
		slices.SortFunc(found, query.Compare)
		bytes := 0
		for i, at := range found {
			shown := s.Show(v.Sandbox(at.ID))
			if bytes += proto.Size(shown); i == query.Size() || i > 0 && bytes > maxListBytes {
				next = query.Token(found[i-1])
				return
			}
			page = append(page, shown)
		}
	})
	return page, next, err
}

// concerns reports whether a sandbox may match. It checks the Pod, because building the sandbox costs more.
func concerns(p *inventory.Pod, r *sandboxv1.ListSandboxesRequest) bool {
	pod := p.Object()
	return (r.GetNamespace() == "" || r.GetNamespace() == pod.Namespace) &&
		(r.GetEnv() == "" || r.GetEnv() == sandbox.EnvOf(pod)) &&
		(r.GetTeam() == "" || r.GetTeam() == pod.Annotations[v1alpha1.LabelTeam]) &&
		(r.GetUser() == "" || r.GetUser() == pod.Annotations[v1alpha1.LabelUser]) &&
		(!listing.WantsEnded(r) || sandbox.PhaseOf(pod) == sandbox.Failed)
}

// listEnded merges the history with sandboxes that will soon be recorded: those on failed Pods, and those whose Pod was removed by force.
// Both parts are complete up to the lower of their tokens.
func (s *Service) listEnded(ctx context.Context, r *sandboxv1.ListSandboxesRequest, size int) (*sandboxv1.ListSandboxesResponse, error) {
	asked := proto.CloneOf(r)
	asked.Phase = sandboxv1.Phase_ENDED
	query, _ := listing.Parse(asked)
	match := query.Includes
	found, stopped, err := s.listOnPods(asked, query)
	if err != nil {
		return nil, err
	}
	// Sandboxes without a record are found before the records are read; because one that gets its record in between must be in one of the two.
	found = append(found, s.listVanished(r.GetPageToken(), match)...)
	unrecorded := slices.DeleteFunc(found, func(sandbox *sandboxv1.Sandbox) bool { return s.opts.History.Has(sandbox.GetId()) })
	records, next, err := s.opts.History.List(ctx, r.GetPageToken(), size, match)
	if err != nil {
		return nil, disposition.Doubtful(problem.New(problem.Unavailable, "%w", err).WithRetryAfter(problem.RetrySoon))
	}
	if stopped != "" && (next == "" || stopped < next) {
		next = stopped
	}
	all := slices.Concat(records, unrecorded)
	slices.SortStableFunc(all, func(a, b *sandboxv1.Sandbox) int { return cmp.Compare(a.GetId(), b.GetId()) })
	all = slices.CompactFunc(all, func(a, b *sandboxv1.Sandbox) bool { return a.GetId() == b.GetId() })
	if next != "" {
		all = slices.DeleteFunc(all, func(sandbox *sandboxv1.Sandbox) bool { return sandbox.GetId() > next })
	}
	if len(all) > size {
		all, next = all[:size], all[size-1].GetId()
	}
	return &sandboxv1.ListSandboxesResponse{Sandboxes: all, NextPageToken: next}, nil
}

// listVanished returns sandboxes that are neither in the history yet nor on a Pod any more.
func (s *Service) listVanished(after string, match func(*sandboxv1.Sandbox) bool) (out []*sandboxv1.Sandbox) {
	s.inventory.View(func(v *inventory.View) {
		for r := range s.guarded.In(v).ended.records.All(s.clock.Now()) {
			if r.Sandbox.GetId() > after && match(r.Sandbox) {
				out = append(out, r.Sandbox)
			}
		}
	})
	return out
}
