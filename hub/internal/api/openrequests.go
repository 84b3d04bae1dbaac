// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/pkg/access"
	"navix.sh/atoll/pkg/problem"
)

const (
	// reviewsAtOnce bounds the open requests that are reviewed at a time; because each review may wait for an API server for seconds.
	reviewsAtOnce = 16
	// unprovedFor is how long an open request may continue if its token is not checked because too many other tokens are; because a caller
	// could send those.
	unprovedFor = 2 * time.Minute
)

// openRequest is a request that may last longer than its key.
type openRequest struct {
	token      string
	method     access.Method
	end        context.CancelCauseFunc
	as         *principal.Principal // the principal it was admitted as; nil: it is not admitted yet
	lastGrants lastGrants           // the last results of each Authorizer
	proved     time.Time            // when its token was last known to be valid
}

// hasKey reports whether an open request uses an API key, which no other system has to check.
func (g *openRequest) hasKey() bool { return strings.HasPrefix(g.token, access.TokenPrefix) }

func (a *Authenticator) enter(g *openRequest) (leave func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.openRequests[g] = struct{}{}
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.openRequests, g)
	}
}

// admitted records the principal that an open request was admitted as.
func (a *Authenticator) admitted(g *openRequest, p principal.Principal) {
	a.mu.Lock()
	defer a.mu.Unlock()
	g.as, g.proved = &p, a.clock.Now()
}

// review ends requests whose keys have expired, were revoked, or have fewer permissions, conversations whose caller may no longer reach the
// sandbox or cluster, and streams whose keys have other permissions. While an Authorizer does not respond, its last result counts.
func (a *Authenticator) review(ctx context.Context, which func(*openRequest) bool) {
	a.mu.Lock()
	requests := make(map[*openRequest]*principal.Principal, len(a.openRequests))
	for g := range a.openRequests {
		if which(g) {
			requests[g] = g.as
		}
	}
	a.mu.Unlock()
	var group errgroup.Group
	group.SetLimit(reviewsAtOnce)
	for g, as := range requests { // without the lock; because other systems check some tokens
		group.Go(func() error {
			if err := a.check(ctx, g, as); err != nil && ctx.Err() == nil {
				g.end(err)
			}
			return nil
		})
	}
	_ = group.Wait()
}

// check returns why an open request that was admitted as a principal may not continue, or nil if it may.
func (a *Authenticator) check(ctx context.Context, g *openRequest, as *principal.Principal) error {
	away := func(err error) bool { // it does not respond, or checks no more tokens for now
		return err != nil && slices.Contains([]problem.Reason{problem.Unavailable, problem.RateLimited}, problem.FromError(err).Reason)
	}
	who, err := a.identify(ctx, g.token)
	switch {
	case as == nil: // its admission is in progress, and will return errors that cannot be known now
		if err == nil {
			_, err = authorize(ctx, a.may, who, g.method)
		}
		if away(err) {
			return nil
		}
		return err
	case away(err):
		if who = as.Identity; who.Expires != nil && !a.clock.Now().Before(*who.Expires) {
			return problem.New(problem.Unauthenticated, "the token of %s expired at %s", who.Caller(), who.Expires.UTC().Format(time.RFC3339))
		}
		if problem.FromError(err).Reason == problem.RateLimited && a.clock.Since(g.proved) > unprovedFor {
			return err
		}
	case err != nil:
		return err
	default:
		g.proved = a.clock.Now()
	}
	p, err := authorize(ctx, g.lastGrants.recalling(a.may), who, g.method)
	if err == nil && !p.MayContinue(*as) {
		return problem.New(problem.Unavailable, "what %s may do has changed; call again", who.Caller()).WithRetryAfter(time.Second)
	}
	return err
}
