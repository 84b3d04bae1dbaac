// SPDX-License-Identifier: Apache-2.0

// Package pace bounds how much work a second each of many parties may cause (I14): addresses before authentication, callers after
// it.
//
// In: what a party has caused, in units of the owner's. Out: how long the party has to wait. Work is charged when it is known, which
// may be after it is done, so that a party can be in debt.
//
//   - A party that was quiet may cause a burst.
//   - All parties together have a bound too. It is divided by their number; because otherwise those that cause much would keep out
//     those that cause little. Each has a least burst, enough to be authenticated; held by TestManyPartiesShareWhatThereIs.
//   - Nothing is kept of a party that has its whole burst (I10). Parties beyond a number share one account.
package pace

import (
	"math"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Limits are rates, in units a second.
type Limits struct {
	// Rate is that of one party, and All that of all together; 0: unlimited.
	Rate, All float64
	// Burst is how much a party may cause at once, in seconds of its rate, and Least the least of it, in units.
	Burst time.Duration
	Least float64
}

// maxParties bounds the parties that have accounts of their own.
const maxParties = 16 << 10

// Pace has an account for each party.
type Pace[K comparable] struct {
	limits Limits
	clock  clock.PassiveClock

	mu       sync.Mutex
	accounts map[K]*Account
	rest     Account // of those without one
	swept    time.Time
}

// New returns a Pace.
func New[K comparable](limits Limits, c clock.PassiveClock) *Pace[K] {
	return &Pace[K]{limits: limits, clock: c, accounts: map[K]*Account{}, swept: c.Now()}
}

// Take charges a party, and returns how long it has to wait until it is out of debt. A negative amount is given back.
func (p *Pace[K]) Take(key K, amount float64) time.Duration {
	if p.limits.Rate <= 0 {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	if now.Sub(p.swept) >= time.Second {
		p.sweep(now)
	}
	account := p.accounts[key]
	if account == nil {
		account = &p.rest
		if len(p.accounts) < maxParties {
			account = &Account{}
			p.accounts[key] = account
		}
	}
	rate, burst := p.share()
	return account.Take(now, rate, burst, amount)
}

// share returns what each party has. The caller holds the lock.
func (p *Pace[K]) share() (rate, burst float64) {
	rate = p.limits.Rate
	if p.limits.All > 0 {
		rate = min(rate, p.limits.All/float64(max(1, len(p.accounts))))
	}
	return rate, max(p.limits.Least, rate*p.limits.Burst.Seconds())
}

func (p *Pace[K]) sweep(now time.Time) {
	p.swept = now
	rate, burst := p.share()
	for key, account := range p.accounts {
		if account.Take(now, rate, burst, 0); account.spent <= 0 {
			delete(p.accounts, key)
		}
	}
}

// Len is the number of parties with accounts.
func (p *Pace[K]) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.accounts)
}

// Account is what one party has caused lately. Its zero value is that of a party that has caused nothing. Its owner serializes
// access.
type Account struct {
	spent float64 // of the burst; more than that is debt
	at    time.Time
}

// Take charges the account, and returns the time until it is out of debt.
func (a *Account) Take(now time.Time, rate, burst, amount float64) time.Duration {
	if elapsed := now.Sub(a.at); elapsed > 0 {
		a.spent = max(0, a.spent-elapsed.Seconds()*rate)
	}
	a.at = now
	a.spent = max(0, a.spent+amount)
	debt := (a.spent - burst) / rate
	if debt <= 0 {
		return 0
	}
	return time.Duration(min(debt*float64(time.Second), math.MaxInt64/2))
}
