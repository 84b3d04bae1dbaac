// SPDX-License-Identifier: Apache-2.0

package ledger

import "sync"

// Usage is the number of an account's keys, and the bytes of their records.
type Usage struct {
	Keys  int
	Bytes int64
}

func (u Usage) plus(keys, bytes int) Usage { return Usage{u.Keys + keys, u.Bytes + int64(bytes)} }

// accounts holds the usage of each account. Empty accounts are dropped (I10).
type accounts struct {
	mu   sync.Mutex
	held map[string]Usage
}

// move updates the usage when one record replaces another.
func (a *accounts) move(from, to Held) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if from.Record != nil {
		a.add(from.Record.Account, -1, -from.size)
	}
	if to.Record != nil {
		a.add(to.Record.Account, 1, to.size)
	}
}

// add is called with mu held.
func (a *accounts) add(account string, keys, bytes int) {
	next := a.held[account].plus(keys, bytes)
	if next.Keys <= 0 {
		delete(a.held, account)
		return
	}
	if a.held == nil {
		a.held = map[string]Usage{}
	}
	a.held[account] = next
}

func (a *accounts) set(held map[string]Usage) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held = held
}

// Usage returns an account's usage. It counts the writes of this process, and since the first Count all records.
func (l *Ledger) Usage(account string) Usage {
	l.accounts.mu.Lock()
	defer l.accounts.mu.Unlock()
	return l.accounts.held[account]
}

// With returns what an account's usage would be if next replaced old.
func (l *Ledger) With(old Held, next *Record) Usage {
	u := l.Usage(next.Account)
	if old.Record != nil && old.Record.Account == next.Account {
		u = u.plus(-1, -old.size)
	}
	// The encoding of bytes takes a third more space; the rest of a record is small.
	return u.plus(1, (len(next.Request)+len(next.Decision)+len(next.Terminal))*4/3)
}
