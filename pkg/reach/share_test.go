// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"fmt"
	"strings"
	"testing"

	"navix.sh/atoll/pkg/problem"
)

func TestI14SharesOfConversations(t *testing.T) {
	shares := Shares{All: 100, Account: 40, Sandbox: 10}
	red := Holder{Account: `team "red"`, Sandbox: "s"}
	for name, c := range map[string]struct {
		shares Shares
		holder Holder
		used   inUse
		want   string // in the refusal; empty: none
	}{
		"the first":                    {shares, red, inUse{}, ""},
		"a sandbox's last":             {shares, red, inUse{9, 9, 9}, ""},
		"a sandbox's share is used up": {shares, red, inUse{10, 10, 10}, "sandbox s has 10 conversations already, want at most 10"},
		"an account's last":            {shares, red, inUse{39, 39, 0}, ""},
		"an account's share is used up": {shares, red, inUse{40, 40, 0},
			`team "red" has 40 conversations with sandboxes of this cluster already, want at most 40`},
		"as many as are free": {shares, red, inUse{70, 30, 0},
			`team "red" has 30 of this cluster's 100 conversations, and 30 are free`},
		"fewer than are free":             {shares, red, inUse{70, 29, 0}, ""},
		"the last of all is a newcomer's": {shares, red, inUse{99, 0, 0}, ""},
		"and not another's":               {shares, red, inUse{99, 1, 0}, "and 1 are free"},
		"all are used up": {shares, red, inUse{100, 0, 0},
			"the sandboxes of this cluster have 100 conversations already, want at most 100"},
		"no account, no share of an account": {shares, Holder{Sandbox: "s"}, inUse{99, 99, 9}, ""},
		"no account, but a sandbox":          {shares, Holder{Sandbox: "s"}, inUse{99, 99, 10}, "sandbox s has 10"},
		"half of a cluster by default":       {Shares{}, red, inUse{1023, 1023, 0}, ""},
		"no more than half of it":            {Shares{}, red, inUse{1024, 1024, 0}, "want at most 1024"},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.shares.withDefaults().refuse(c.holder, c.used)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("refused with %v, want %q", err, c.want)
			}
			if p := problem.FromError(err); err != nil && (p.Reason != problem.RateLimited || p.RetryAfter == 0) {
				t.Errorf("refused with reason %s, to be retried after %s", p.Reason, p.RetryAfter)
			}
		})
	}
}

// Each of many greedy accounts leaves room for the next.
func TestI14EveryAccountHasAConversation(t *testing.T) {
	seats := Seats{Shares: Shares{All: 64, Account: 64, Sandbox: 64}}
	var leave []func()
	for account := range 6 {
		h := Holder{Account: fmt.Sprint("team ", account), Sandbox: fmt.Sprint("s", account)}
		held := 0
		for ; ; held++ {
			over, err := seats.Take(h)
			if err != nil {
				break
			}
			leave = append(leave, over)
		}
		if held == 0 {
			t.Errorf("team %d has no conversation, the others have %d of 64", account, seats.Taken())
		}
	}
	for _, over := range leave {
		over()
		over() // counts once
	}
	if seats.Taken() != 0 || len(seats.accounts) != 0 || len(seats.sandboxes) != 0 {
		t.Errorf("%d conversations, %v and %v are left (I10)", seats.Taken(), seats.accounts, seats.sandboxes)
	}
}
