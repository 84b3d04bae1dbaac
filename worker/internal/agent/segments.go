// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"

	"navix.sh/atoll/pkg/segment"
)

// Segment describes this cluster's part of an Env as it would be reported; nil if there is none.
func (a *Agent) Segment(ctx context.Context, k segment.Key) (*segment.Segment, error) {
	return a.source.segment(ctx, k)
}

// Segments describes this cluster's part of every Env.
func (a *Agent) Segments(ctx context.Context) ([]*segment.Segment, error) { return a.source.all(ctx) }
