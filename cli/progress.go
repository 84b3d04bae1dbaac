// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/utils/clock"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/clip"
	"navix.sh/atoll/pkg/wallclock"
)

const (
	// firstProgress is how long a create may take before its progress is shown. It is longer than a create that finds an idle Pod.
	firstProgress = 2 * time.Second
	nextProgress  = 5 * time.Second
	// shortCall bounds additional calls, which the user did not ask for.
	shortCall = 5 * time.Second
)

// progress shows what a create waits for, until ctx ends.
func progress(ctx context.Context, w io.Writer, c clients, request *sandboxv1.CreateSandboxRequest) {
	began := time.Now()
	for wait := firstProgress; wallclock.Sleep(ctx, clock.RealClock{}, wait) == nil; wait = nextProgress {
		short, cancel := context.WithTimeout(ctx, shortCall)
		text := claimProgress(short, c, request)
		cancel()
		if text != "" && ctx.Err() == nil {
			fmt.Fprintf(w, "waiting for %s: %s\n", time.Since(began).Round(time.Second), text)
		}
	}
}

// claimProgress returns where a claim is and why it has no sandbox yet, or "" if the server does not report it. Without a claim key, the
// claim cannot be looked up; claimProgress then says where such a claim would go.
func claimProgress(ctx context.Context, c clients, request *sandboxv1.CreateSandboxRequest) string {
	if request.GetClaimKey() != "" {
		claim, err := c.claims.GetClaim(ctx, &sandboxv1.GetClaimRequest{
			ClaimKey: request.GetClaimKey(), Namespace: request.GetNamespace(), Team: request.GetTeam(),
		})
		if err == nil {
			return whereabouts(claim)
		}
	}
	hypothetical := proto.CloneOf(request)
	hypothetical.ClaimKey, hypothetical.Wait = "", 0
	decision, err := c.envs.ExplainEnv(ctx, &sandboxv1.ExplainEnvRequest{
		Namespace: request.GetNamespace(), Name: request.GetEnv(), Request: hypothetical,
	})
	if err != nil {
		return ""
	}
	if decision.GetClusterId() == "" {
		return fmt.Sprintf("%s (%s)", decision.GetMessage(), decision.GetReason())
	}
	return fmt.Sprintf("a claim goes to %s/%s: %s", decision.GetClusterId(), decision.GetPool(), decision.GetMessage())
}

// whereabouts describes a claim that is not running.
func whereabouts(c *sandboxv1.Claim) string {
	parts := []string{strings.ToLower(c.GetState().String())}
	if c.GetClusterId() != "" {
		parts[0] += " in " + strings.TrimSuffix(c.GetClusterId()+"/"+c.GetPool(), "/")
	}
	if w := c.GetWaiting(); w.GetPosition() > 0 {
		parts = append(parts, fmt.Sprintf("position %d of %d", w.GetPosition(), w.GetClaims()))
	}
	if c.GetMessage() != "" {
		parts = append(parts, clip.Line(c.GetMessage()))
	}
	return strings.Join(parts, ", ")
}
