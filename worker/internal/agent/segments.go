// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"slices"

	"navix.sh/atoll/pkg/segment"
)

// Segment returns this cluster's part of an Env as it would be reported, or nil if it has no member.
func (a *Agent) Segment(ctx context.Context, k segment.Key) (*segment.Segment, error) {
	s, err := a.source.Segment(ctx, k)
	if err != nil || s == nil || len(s.Members()) == 0 {
		return nil, err
	}
	return s, nil
}

// Segments returns this cluster's part of every Env that has members here.
func (a *Agent) Segments(ctx context.Context) ([]*segment.Segment, error) {
	all, err := a.source.All(ctx)
	return slices.DeleteFunc(all, func(s *segment.Segment) bool { return len(s.Members()) == 0 }), err
}
