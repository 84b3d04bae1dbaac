// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"cmp"
	"context"
	"slices"

	"google.golang.org/protobuf/proto"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/serve"
	"navix.sh/atoll/worker/internal/sandbox"
)

// maxListBytes is where a page of live sandboxes ends before it has as many as were asked for: an answer has to fit into a
// frame of the link.
const maxListBytes = 512 << 10

// List answers sandboxes ordered by id: those on Pods, or those that have ended. The page token is how far the page before
// has looked, which can be further than its last sandbox.
func (s *Service) List(ctx context.Context, r *sandboxv1.ListSandboxesRequest) (*sandboxv1.ListSandboxesResponse, error) {
	if faults := serve.ListFaults(r); len(faults) > 0 {
		return nil, fault(problem.InvalidFields(faults...))
	}
	size := serve.PageSize(r)
	if serve.WantsEnded(r) {
		return s.listEnded(ctx, r, size)
	}
	live, next, err := s.listOnPods(r, size)
	return &sandboxv1.ListSandboxesResponse{Sandboxes: live, NextPageToken: next}, err
}

// listOnPods answers sandboxes on Pods.
func (s *Service) listOnPods(r *sandboxv1.ListSandboxesRequest, size int) (page []*sandboxv1.Sandbox, next string, err error) {
	s.mu.Lock()
	defer s.unlock()
	if !s.loaded {
		return nil, "", notServing()
	}
	var ids []string
	for id, e := range s.byID {
		if id > r.GetPageToken() && s.matches(e, r) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	bytes := 0
	for i, id := range ids {
		shown := s.show(s.byID[id])
		if bytes += proto.Size(shown); i == size || i > 0 && bytes > maxListBytes {
			return page, ids[i-1], nil
		}
		page = append(page, shown)
	}
	return page, "", nil
}

// matches asks what is on the Pod before it has the sandbox described, which costs more. The lock is held.
func (s *Service) matches(e *entry, r *sandboxv1.ListSandboxesRequest) bool {
	if r.GetNamespace() != "" && r.GetNamespace() != e.pod.Namespace ||
		r.GetEnv() != "" && r.GetEnv() != sandbox.EnvOf(e.pod) ||
		r.GetTeam() != "" && r.GetTeam() != e.pod.Annotations[v1alpha1.LabelTeam] ||
		r.GetUser() != "" && r.GetUser() != e.pod.Annotations[v1alpha1.LabelUser] ||
		serve.WantsEnded(r) && sandbox.PhaseOf(e.pod) != sandbox.Failed {
		return false
	}
	return serve.Listed(r, s.show(e))
}

// listEnded merges what the history has with what is recorded in a moment: sandboxes on failed Pods, and those whose Pod went
// by force. Both parts are complete up to the lower of their tokens.
func (s *Service) listEnded(ctx context.Context, r *sandboxv1.ListSandboxesRequest, size int) (*sandboxv1.ListSandboxesResponse, error) {
	asked := proto.CloneOf(r)
	asked.Phase = sandboxv1.Phase_ENDED
	match := func(record *sandboxv1.Sandbox) bool { return serve.Listed(asked, record) }
	unrecorded, stopped, err := s.listOnPods(asked, size)
	if err != nil {
		return nil, err
	}
	records, next, err := s.opts.History.List(ctx, r.GetPageToken(), size, match)
	if err != nil {
		return nil, doubtful(problem.New(problem.Unavailable, "%w", err).WithRetryAfter(retrySoon))
	}
	if stopped != "" && (next == "" || stopped < next) {
		next = stopped
	}
	unrecorded = append(unrecorded, s.listVanished(r.GetPageToken(), match)...)
	all := records
	for _, sandbox := range unrecorded {
		if !s.opts.History.Has(sandbox.GetId()) {
			all = append(all, sandbox)
		}
	}
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

// listVanished answers what is not in the history yet and on no Pod any more.
func (s *Service) listVanished(after string, match func(*sandboxv1.Sandbox) bool) (out []*sandboxv1.Sandbox) {
	s.mu.Lock()
	defer s.unlock()
	for r := range s.ended.records.all(s.opts.Clock.Now()) {
		if r.Sandbox.GetId() > after && match(r.Sandbox) {
			out = append(out, r.Sandbox)
		}
	}
	return out
}
