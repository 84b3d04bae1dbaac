// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"cmp"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"navix.sh/atoll/pkg/problem"
)

// Shares limit the conversations of a cluster: of all accounts, of one account, and of a sandbox (I14). Zero means the default.
type Shares struct{ All, Account, Sandbox int }

// DefaultShares leave half of a cluster to other accounts.
var DefaultShares = Shares{All: 2048, Account: 1024, Sandbox: 128}

// shareRetry is the delay after which a caller may retry, because a conversation may have ended.
const shareRetry = time.Second

// Bind adds flags for the shares of an account and of a sandbox.
func (s *Shares) Bind(flags *pflag.FlagSet) {
	flags.IntVar(&s.Account, "team-max-tunnels", DefaultShares.Account,
		"how many conversations (exec, logs, ports) a team may have with the sandboxes "+
			"of one cluster, and never more than are left for others; then RATE_LIMITED")
	flags.IntVar(&s.Sandbox, "sandbox-max-tunnels", DefaultShares.Sandbox, "how many conversations one sandbox may have; then RATE_LIMITED")
}

// Validate checks the flags.
func (s *Shares) Validate() error {
	for _, flag := range []struct {
		name  string
		value int
	}{{"team-max-tunnels", s.Account}, {"sandbox-max-tunnels", s.Sandbox}} {
		if most := DefaultShares.All; flag.value < 0 || flag.value > most {
			return fmt.Errorf("--%s: %d is not valid, want 1 to %d", flag.name, flag.value, most)
		}
	}
	return nil
}

func (s Shares) withDefaults() Shares {
	return Shares{
		All: cmp.Or(s.All, DefaultShares.All), Account: cmp.Or(s.Account, DefaultShares.Account),
		Sandbox: cmp.Or(s.Sandbox, DefaultShares.Sandbox),
	}
}

// Holder identifies the account and the sandbox against which a conversation counts.
type Holder struct {
	// Account is the name of the account in messages, such as `team "red"`. An empty account has no share of its own; only the shares of the
	// cluster and of the sandbox bound it.
	Account string
	// Sandbox has a share as well. It is empty for the API server of a cluster.
	Sandbox string
}

// inUse are the numbers of current conversations.
type inUse struct{ all, account, sandbox int }

// refuse returns why a holder may not open another conversation, or nil. An account may hold at most as many conversations as are free, so
// that other accounts have room.
func (s Shares) refuse(h Holder, used inUse) error {
	var why string
	free := s.All - used.all
	switch {
	case h.Sandbox != "" && used.sandbox >= s.Sandbox:
		why = fmt.Sprintf("sandbox %s has %d conversations already, want at most %d", h.Sandbox, used.sandbox, s.Sandbox)
	case free <= 0:
		why = fmt.Sprintf("the sandboxes of this cluster have %d conversations already, want at most %d", used.all, s.All)
	case h.Account != "" && used.account >= s.Account:
		why = fmt.Sprintf("%s has %d conversations with sandboxes of this cluster already, want at most %d", h.Account, used.account, s.Account)
	case h.Account != "" && used.account >= free:
		why = fmt.Sprintf("%s has %d of this cluster's %d conversations, and %d are free; want no more than are free for others",
			h.Account, used.account, s.All, free)
	default:
		return nil
	}
	return problem.New(problem.RateLimited, "%s", why).WithRetryAfter(shareRetry)
}

// Seats counts the conversations of a cluster. The zero value has the default shares.
type Seats struct {
	Shares Shares

	mu        sync.Mutex
	all       int
	accounts  map[string]int
	sandboxes map[string]int
}

// Take counts a conversation, or returns an error that names the exhausted share. The caller calls leave when the conversation has ended.
func (s *Seats) Take(h Holder) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.Shares.withDefaults().refuse(h, inUse{s.all, s.accounts[h.Account], s.sandboxes[h.Sandbox]}); err != nil {
		return nil, err
	}
	if s.accounts == nil {
		s.accounts, s.sandboxes = map[string]int{}, map[string]int{}
	}
	s.move(h, 1)
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.move(h, -1)
	}), nil
}

// Taken returns the number of conversations.
func (s *Seats) Taken() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all
}

// move changes the counts. It deletes a count of zero (I10). The caller holds mu.
func (s *Seats) move(h Holder, by int) {
	s.all += by
	for _, count := range []struct {
		of  map[string]int
		key string
	}{{s.accounts, h.Account}, {s.sandboxes, h.Sandbox}} {
		if count.of[count.key] += by; count.of[count.key] == 0 {
			delete(count.of, count.key)
		}
	}
}
