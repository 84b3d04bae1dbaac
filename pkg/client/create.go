// SPDX-License-Identifier: Apache-2.0

package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/outcome"
	"navix.sh/atoll/pkg/problem"
)

// Pauses between attempts of a create.
const (
	firstPause = 200 * time.Millisecond
	maxPause   = 10 * time.Second
)

// repeated are the errors after which the same create may soon succeed.
var repeated = []problem.Reason{problem.Unavailable, problem.OutcomeUnknown, problem.Recovering, problem.RateLimited}

// Create claims a sandbox, and returns when it runs. If the request has no claim key, Create generates one, with which it retries a call
// whose outcome is unknown, so that at most one sandbox is created. If it then fails, it cancels the claim.
func (c *Client) Create(ctx context.Context, request *sandboxv1.CreateSandboxRequest) (*Sandbox, error) {
	request = proto.CloneOf(request)
	own := request.GetClaimKey() == ""
	if own {
		random := make([]byte, 16)
		_, _ = rand.Read(random) // never fails
		request.ClaimKey = "client-" + hex.EncodeToString(random)
	}
	info, err := c.claim(ctx, request)
	if err == nil && outcome.Over(info) {
		err = problem.New(problem.NotFound, "sandbox %s has ended: %s", info.GetId(), outcome.Cause(info))
	}
	if err == nil {
		return &Sandbox{client: c, info: info}, nil
	}
	if own && uncertain(err) {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
		query := url.Values{"namespace": {cmp.Or(request.GetNamespace(), "default")}}
		if request.GetTeam() != "" {
			query.Set("team", request.GetTeam())
		}
		gone := c.call(late, http.MethodDelete, "/v1/claims/"+url.PathEscape(request.GetClaimKey()), query, nil, nil)
		if gone != nil && problem.FromError(gone).Reason != problem.NotFound {
			err = errors.Join(err, fmt.Errorf("cancelling claim %s: %w", request.GetClaimKey(), gone))
		}
	}
	return nil, err
}

// uncertain reports whether a failed create may still get a sandbox.
func uncertain(err error) bool {
	var p *problem.Error
	return !errors.As(err, &p) || slices.Contains(repeated, p.Reason) || p.Reason == problem.Deadline || p.Reason == problem.Internal
}

func (c *Client) claim(ctx context.Context, request *sandboxv1.CreateSandboxRequest) (*sandboxv1.Sandbox, error) {
	began := time.Now()
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		info := &sandboxv1.Sandbox{}
		err := c.call(ctx, http.MethodPost, "/v1/sandboxes", nil, request, info)
		if err == nil {
			return info, nil
		}
		var p *problem.Error
		if !errors.As(err, &p) || !slices.Contains(repeated, p.Reason) || time.Since(began) > c.opts.Patience {
			return nil, err
		}
		timer := time.NewTimer(max(pause, p.RetryAfter))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, fmt.Errorf("%w; the last try: %w", context.Cause(ctx), err)
		}
	}
}
