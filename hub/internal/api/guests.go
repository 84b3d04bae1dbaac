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
	// reviewsAtOnce is how many guests are reviewed at a time; because each may wait for an API server for seconds.
	reviewsAtOnce = 16
	// unprovedFor is how long a guest goes on whose token is not checked because too many others are; because a caller could send those.
	unprovedFor = 2 * time.Minute
)

// guest is a request that may last longer than its key.
type guest struct {
	token  string
	method access.Method
	end    context.CancelCauseFunc
	as     *principal.Principal // what it was admitted as; nil: it is not admitted yet
	given  given                // what it may do by each Authorizer
	proved time.Time            // when its token was last known to be valid
}

// hasKey reports whether a guest shows an API key, which no other system is asked about.
func (g *guest) hasKey() bool { return strings.HasPrefix(g.token, access.TokenPrefix) }

func (a *Authenticator) enter(g *guest) (leave func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.guests[g] = struct{}{}
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.guests, g)
	}
}

// admitted notes what a guest was admitted as.
func (a *Authenticator) admitted(g *guest, p principal.Principal) {
	a.mu.Lock()
	defer a.mu.Unlock()
	g.as, g.proved = &p, a.clock.Now()
}

// review ends the requests whose keys have expired, were revoked, or permit less, the conversations whose sandbox or cluster is not their
// caller's any more, and the streams whose keys permit something else. While an Authorizer cannot be asked, what it gave last counts.
func (a *Authenticator) review(ctx context.Context, which func(*guest) bool) {
	a.mu.Lock()
	guests := make(map[*guest]*principal.Principal, len(a.guests))
	for g := range a.guests {
		if which(g) {
			guests[g] = g.as
		}
	}
	a.mu.Unlock()
	var group errgroup.Group
	group.SetLimit(reviewsAtOnce)
	for g, as := range guests { // without the lock; because some tokens are checked elsewhere
		group.Go(func() error {
			if err := a.check(ctx, g, as); err != nil && ctx.Err() == nil {
				g.end(err)
			}
			return nil
		})
	}
	_ = group.Wait()
}

// check returns why a guest that was admitted as something may not go on, nil if it may.
func (a *Authenticator) check(ctx context.Context, g *guest, as *principal.Principal) error {
	away := func(err error) bool { // it does not respond, or is asked about no more tokens for now
		return err != nil && slices.Contains([]problem.Reason{problem.Unavailable, problem.RateLimited}, problem.FromError(err).Reason)
	}
	who, err := a.identify(ctx, g.token)
	switch {
	case as == nil: // its admission is under way, and tells what cannot be known now
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
	p, err := authorize(ctx, g.given.by(a.may, true), who, g.method)
	if err == nil && !p.Still(*as) {
		return problem.New(problem.Unavailable, "what %s may do has changed; call again", who.Caller()).WithRetryAfter(time.Second)
	}
	return err
}
