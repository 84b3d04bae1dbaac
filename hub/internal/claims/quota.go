// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"time"

	"navix.sh/atoll/hub/internal/ledger"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/pkg/problem"
)

// Quota bounds the records of one team in the ledger (I14).
type Quota struct {
	Keys  int
	Bytes int64
}

// DefaultQuota is enough for six claims a second during a day.
var DefaultQuota = Quota{Keys: 500_000, Bytes: 512 << 20}

// retryQuota is the delay after which keys may have expired.
const retryQuota = 30 * time.Second

// check returns an error if an account would exceed its quota. The empty account belongs to unrestricted callers, which exist by the
// operator's choice.
func (q Quota) check(account string, would ledger.Usage) error {
	if account == "" || would.Keys <= q.Keys && would.Bytes <= q.Bytes {
		return nil
	}
	return problem.New(problem.RateLimited, "the claims with a key of %q would keep %d keys and %d bytes, want at most %d and %d; "+
		"they go when the retention of ended claims is over, and claims without a key go on", account, would.Keys, would.Bytes, q.Keys, q.Bytes).
		WithRetryAfter(retryQuota)
}

// KeysOf returns how many claim keys a team has.
func (s *Service) KeysOf(team string) int { return s.ledger.Usage(team).Keys }

// Holds reports whether there is a record of a claim key.
func (s *Service) Holds(ctx context.Context, team, namespace, key string) bool {
	h, err := s.ledger.Load(ctx, ledger.KeyHash(team, namespace, key))
	return err == nil && h.Record != nil
}

// accountOf returns the account of a claim, which is its team. A restricted caller without a team has an account of its own; because it
// could name any team.
func accountOf(p principal.Principal, team string) string {
	if p.Team == "" && p.Restricted() {
		return "API key " + p.Name
	}
	return team
}
