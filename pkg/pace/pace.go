// SPDX-License-Identifier: Apache-2.0

// Package pace limits the rate of work that each of many parties may cause (I14): addresses before authentication, callers after it.
//
// In: the amount of work that a party has caused, in units that the owner defines. Out: how long the party has to wait. Work may be charged
// after it is done, so a party can be in debt.
//
//   - A party that was quiet may cause a burst.
//   - All parties together also have a limit. It is divided by their number; because otherwise parties that cause much work would keep out
//     those that cause little. Each has a minimum burst, enough to be authenticated; held by TestManyPartiesShareWhatThereIs.
//   - Nothing is stored for a party that has its whole burst (I10). Parties beyond a maximum number share one account.
package pace

import (
	"math"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Limits are rates in units per second.
type Limits struct {
	// Rate is the rate of one party, and All that of all parties together; 0: unlimited.
	Rate, All float64
	// Burst is how much a party may cause at once, in seconds of its rate, and Least is the minimum of that, in units.
	Burst time.Duration
	Least float64
}

// maxParties is the number of parties that have their own accounts.
const maxParties = 16 << 10

// Pace has an account for each party.
type Pace[K comparable] struct {
	limits Limits
	clock  clock.PassiveClock

	mu       sync.Mutex
	accounts map[K]*Account
	rest     Account // shared by the parties without their own
	swept    time.Time
}

// New returns a Pace.
func New[K comparable](limits Limits, c clock.PassiveClock) *Pace[K] {
	return &Pace[K]{limits: limits, clock: c, accounts: map[K]*Account{}, swept: c.Now()}
}

// Take charges a party, and returns how long the party has to wait until it is out of debt. A negative amount is a refund.
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

// share returns the rate and burst of each party. The caller holds the lock.
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

// Len returns the number of parties with accounts.
func (p *Pace[K]) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.accounts)
}

// Account records what one party has caused recently. The zero value is an account without charges. The owner must serialize access.
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
