// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/pkg/problem"
)

const (
	// countFor is how long a count of live sandboxes is used. Later claims are added to it.
	countFor = time.Second
	// maxBuckets bounds the teams and keys whose rates are kept. Beyond that, buckets that were idle for a minute are dropped, and as many
	// others as needed.
	maxBuckets = 20_000
	// retryLive is the delay after which sandboxes may have ended.
	retryLive = 5 * time.Second
	// retryKeys is the delay after which claim keys may have expired.
	retryKeys = 30 * time.Second
)

// Usage provides the usage of teams and keys. All fields are required for limits to apply.
type Usage struct {
	// Each calls f with each known live sandbox.
	Each func(f func(*sandboxv1.Sandbox))
	// ClaimKeys returns how many claim keys a team has.
	ClaimKeys func(team string) int
	// Held reports whether there is a claim with a key.
	Held func(ctx context.Context, team, namespace, key string) bool
}

// holder is the team or key to which a limit applies.
type holder struct {
	kind, name string // team or key
}

func (h holder) String() string {
	return fmt.Sprintf("%s %q", map[string]string{"team": "team", "key": "API key"}[h.kind], h.name)
}

// limiter holds the counts.
type limiter struct {
	clock         clock.PassiveClock
	mu            *sync.Mutex
	rates         map[holder]*rate
	conversations map[holder]int32
	live          map[holder]int32 // the last count, plus later claims
	until         time.Time        // end of the use of the count
}

// rate holds the claims of a holder.
type rate struct {
	bucket bucket
	second int64 // the second of now and before, which are only shown
	now    int32
	before int32
}

func newLimiter(c clock.PassiveClock) limiter {
	return limiter{clock: c, mu: &sync.Mutex{}, rates: map[holder]*rate{}, conversations: map[holder]int32{}, live: map[holder]int32{}}
}

// limited is a holder with its limits.
type limited struct {
	holder
	*limits
}

// limitsOfCall returns the limits that apply to a call for a team.
func (s *Service) limitsOfCall(p principal.Principal, team string) (out []limited) {
	known := s.state.Load()
	if l := known.team(team); l != nil {
		out = append(out, limited{holder{"team", team}, l})
	}
	if p.Identity != nil && p.Identity.Key != "" {
		if r := known.keys[p.Identity.Key]; r != nil && r.Limits != nil && !s.inFile(r.Name) {
			out = append(out, limited{holder{"key", r.Name}, r.Limits})
		}
	}
	return out
}

// team returns the limits of a team, or nil if there are none. Claims without a team have only the limits of keys.
func (n *state) team(name string) *limits {
	if name == "" {
		return nil
	}
	if l, own := n.teams[name]; own {
		return l
	}
	return n.teams["*"]
}

// Claim admits a claim, or returns an error. The header lines show the remaining quota, even if the claim is not admitted.
func (s *Service) Claim(
	ctx context.Context, p principal.Principal, in *sandboxv1.CreateSandboxRequest,
) (header map[string]string, err error) {
	team, err := p.OwnTeam(in.GetTeam())
	if err != nil {
		return nil, nil // the call itself returns this error
	}
	limits := s.limitsOfCall(p, team)
	if len(limits) == 0 {
		return nil, nil
	}
	header, err = s.takeRates(limits)
	if err != nil {
		return header, err
	}
	full := s.checkKeys(limits, team, in.GetClaimKey())
	if full == nil {
		full = s.takeLive(limits)
	}
	if full == nil {
		return header, nil
	}
	if in.GetClaimKey() != "" && s.opts.Usage.Held != nil &&
		s.opts.Usage.Held(ctx, team, cmp.Or(in.GetNamespace(), "default"), in.GetClaimKey()) {
		return header, nil // a retry gets the existing claim
	}
	return header, full
}

// takeRates takes a token from the bucket of each limit, or from none.
func (s *Service) takeRates(limits []limited) (header map[string]string, err error) {
	l, now, replicas := &s.limiter, s.limiter.clock.Now(), s.opts.Live()
	var policy, left []string
	var taken []func()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range limits {
		if one.ClaimsPerSecond == 0 {
			continue
		}
		part := share(one.ClaimsPerSecond, replicas)
		r := l.rate(one.holder, part, now)
		next, wait := r.bucket.take(part, now)
		quota, seconds := window(one.ClaimsPerSecond)
		name := `"` + one.kind + `-claims"`
		policy = append(policy, fmt.Sprintf("%s;q=%d;w=%d", name, quota, seconds))
		reset := int(math.Ceil(max(wait.Seconds(), (burst(part)-next.tokens)/part)))
		left = append(left, fmt.Sprintf("%s;r=%d;t=%d", name, int(next.tokens), reset))
		if wait > 0 && err == nil {
			err = problem.New(problem.RateLimited, "%s may claim %g sandboxes a second, and this is one more", one.holder, one.ClaimsPerSecond).
				WithRetryAfter(wait)
		}
		taken = append(taken, func() {
			r.bucket = next
			r.count(now)
		})
	}
	if err == nil {
		for _, take := range taken {
			take()
		}
	}
	if len(policy) == 0 {
		return nil, err
	}
	return map[string]string{policyHeader: strings.Join(policy, ", "), leftHeader: strings.Join(left, ", ")}, err
}

// rate returns the rate of a holder. Called with the lock held.
func (l *limiter) rate(h holder, part float64, now time.Time) *rate {
	if r := l.rates[h]; r != nil {
		return r
	}
	if len(l.rates) >= maxBuckets {
		for other, r := range l.rates {
			if now.Sub(r.bucket.at) > time.Minute || len(l.rates) >= maxBuckets { // in most cases this bucket is full
				delete(l.rates, other)
			}
		}
	}
	r := &rate{bucket: newBucket(part, now)}
	l.rates[h] = r
	return r
}

func (r *rate) count(now time.Time) {
	r.rotate(now)
	r.now++
}

// rotate makes the given second the current one, and the one before it the previous.
func (r *rate) rotate(now time.Time) {
	switch second := now.Unix(); second - r.second {
	case 0:
	case 1:
		r.second, r.before, r.now = second, r.now, 0
	default:
		r.second, r.before, r.now = second, 0, 0
	}
}

// takeLive counts one more live sandbox for each holder, or returns the error of the first holder that has too many.
func (s *Service) takeLive(limits []limited) error {
	if !slices.ContainsFunc(limits, func(one limited) bool { return one.LiveSandboxes > 0 }) {
		return nil
	}
	s.recount()
	l := &s.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range limits {
		if !within(l.live[one.holder], one.LiveSandboxes) {
			return problem.New(problem.Quota, "%s has %d live sandboxes, and may have %d", one.holder, l.live[one.holder], one.LiveSandboxes).
				WithRetryAfter(retryLive)
		}
	}
	for _, one := range limits {
		if one.LiveSandboxes > 0 {
			l.live[one.holder]++
		}
	}
	return nil
}

// recount counts the live sandboxes of all teams, and of all keys with a limit of them, if the last count is too old.
func (s *Service) recount() {
	l, now := &s.limiter, s.limiter.clock.Now()
	l.mu.Lock()
	fresh := now.Before(l.until) && l.until.Sub(now) <= countFor
	l.mu.Unlock()
	if fresh || s.opts.Usage.Each == nil {
		return
	}
	var everywhere []*record
	byTeam := map[string][]*record{}
	for _, r := range s.state.Load().keys {
		switch {
		case r.Limits == nil || r.Limits.LiveSandboxes == 0:
		case r.AllTeams:
			everywhere = append(everywhere, r)
		default:
			byTeam[r.Team] = append(byTeam[r.Team], r)
		}
	}
	live := map[holder]int32{}
	s.opts.Usage.Each(func(one *sandboxv1.Sandbox) {
		live[holder{"team", one.GetTeam()}]++
		for _, keys := range [][]*record{byTeam[one.GetTeam()], everywhere} {
			for _, r := range keys {
				if (r.User == "" || r.User == one.GetUser()) && (r.AllNamespaces || slices.Contains(r.Namespaces, one.GetNamespace())) {
					live[holder{"key", r.Name}]++
				}
			}
		}
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.live, l.until = live, now.Add(countFor)
}

// checkKeys returns an error if a team has reached a limit of claim keys.
func (s *Service) checkKeys(limits []limited, team, key string) error {
	if key == "" || s.opts.Usage.ClaimKeys == nil {
		return nil
	}
	has := s.opts.Usage.ClaimKeys(team)
	for _, one := range limits {
		if one.ClaimKeys > 0 && has >= int(one.ClaimKeys) {
			return problem.New(problem.Quota, "team %q has %d claim keys, and by the limits of %s may have %d; they go when the retention of ended "+
				"claims is over, and claims without a key go on", team, has, one.holder, one.ClaimKeys).WithRetryAfter(retryKeys)
		}
	}
	return nil
}

// Converse admits a conversation with a sandbox, which counts until leave is called. The header lines show the remaining quota, even if the
// conversation is not admitted. A conversation lasts as long as its caller likes, so its limit has no window.
func (s *Service) Converse(p principal.Principal) (header map[string]string, leave func(), err error) {
	limits := s.limitsOfCall(p, p.Team)
	if p.AllTeams && p.Team == "" { // its team is not known
		limits = slices.DeleteFunc(limits, func(one limited) bool { return one.kind == "team" })
	}
	l := &s.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range limits {
		if !within(l.conversations[one.holder], one.Conversations) {
			return l.conversationsLeft(limits), nil, problem.New(problem.Quota,
				"%s has %d conversations with sandboxes, and may have %d", one.holder, l.conversations[one.holder], one.Conversations).
				WithRetryAfter(time.Second)
		}
	}
	for _, one := range limits {
		l.conversations[one.holder]++
	}
	return l.conversationsLeft(limits), func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, one := range limits {
			if l.conversations[one.holder]--; l.conversations[one.holder] == 0 {
				delete(l.conversations, one.holder)
			}
		}
	}, nil
}

// conversationsLeft returns the header lines of conversations, or nil without limits. Called with the lock held.
func (l *limiter) conversationsLeft(limits []limited) map[string]string {
	var policy, left []string
	for _, one := range limits {
		if one.Conversations == 0 {
			continue
		}
		name := `"` + one.kind + `-conversations"`
		policy = append(policy, fmt.Sprintf("%s;q=%d", name, one.Conversations))
		left = append(left, fmt.Sprintf("%s;r=%d", name, max(0, one.Conversations-l.conversations[one.holder])))
	}
	if policy == nil {
		return nil
	}
	return map[string]string{policyHeader: strings.Join(policy, ", "), leftHeader: strings.Join(left, ", ")}
}

// The header lines of limits.
const (
	policyHeader = "RateLimit-Policy"
	leftHeader   = "RateLimit"
)

// GetQuotas returns the limits that the caller may see: those of its team and key, or all if it may see everything.
func (a AccessAPI) GetQuotas(ctx context.Context, in *sandboxv1.GetQuotasRequest) (*sandboxv1.Quotas, error) {
	s, p := a.Service, principal.From(ctx)
	team, err := p.ListedTeam(in.GetTeam())
	if err != nil {
		return nil, err
	}
	known := s.state.Load()
	s.recount()
	out := &sandboxv1.Quotas{}
	all := p.AllTeams && !p.Restricted() && in.GetTeam() == ""
	teams := map[string]bool{}
	if all {
		for name := range known.teams {
			teams[name] = name != "*"
		}
		s.limiter.mu.Lock()
		for h := range s.limiter.live {
			teams[h.name] = teams[h.name] || h.kind == "team"
		}
		s.limiter.mu.Unlock()
	} else {
		teams[team] = true
	}
	for name, shown := range teams {
		if shown && (known.team(name) != nil || !all) {
			out.Teams = append(out.Teams, s.use(holder{"team", name}, known.team(name), name))
		}
	}
	for _, r := range known.keys {
		own := p.Identity != nil && p.Identity.Key == r.Name
		if r.Limits != nil && (all || own) {
			out.Keys = append(out.Keys, s.use(holder{"key", r.Name}, r.Limits, r.Team))
		}
	}
	for _, list := range [][]*sandboxv1.QuotaUse{out.Teams, out.Keys} {
		slices.SortFunc(list, func(a, b *sandboxv1.QuotaUse) int { return cmp.Compare(a.GetName(), b.GetName()) })
	}
	return out, nil
}

// use returns a holder's limits and its usage.
func (s *Service) use(h holder, limits *limits, team string) *sandboxv1.QuotaUse {
	used := &sandboxv1.KeyLimits{}
	if s.opts.Usage.ClaimKeys != nil {
		used.ClaimKeys = int32(min(s.opts.Usage.ClaimKeys(team), math.MaxInt32))
	}
	l := &s.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	used.LiveSandboxes, used.Conversations = l.live[h], l.conversations[h]
	if r := l.rates[h]; r != nil {
		r.rotate(l.clock.Now())
		used.ClaimsPerSecond = float64(max(r.now, r.before))
	}
	return &sandboxv1.QuotaUse{Name: h.name, Limits: limits.proto(), Used: used}
}
