// SPDX-License-Identifier: Apache-2.0

package principal

import (
	"sync"

	"navix.sh/atoll/pkg/problem"
)

// asked keeps the first error of an Authorizer that could not be asked. The copies of a Principal share it.
type asked struct {
	away error // of one that could not be asked at all: see access.Grant

	mu     sync.Mutex
	err    error
	failed func(error) // nil: no one waits for it
}

func (a *asked) ask(ask func(namespace string) (bool, error)) func(namespace string) bool {
	if ask == nil {
		return nil
	}
	return func(namespace string) bool {
		held, err := ask(namespace)
		if err == nil {
			return held
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.err == nil {
			a.err = err
			if a.failed != nil {
				a.failed(err)
			}
		}
		return false
	}
}

// OnFailure calls f with the first error of an Authorizer that cannot be asked, from then on.
func (p Principal) OnFailure(f func(error)) {
	for _, a := range p.allAsked() {
		a.mu.Lock()
		a.failed = f
		a.mu.Unlock()
	}
}

func (p Principal) allAsked() (out []*asked) {
	for _, one := range []*Principal{&p, p.look} {
		if one != nil && one.asked != nil {
			out = append(out, one.asked)
		}
	}
	return out
}

// Settle returns how a call ended. While what authorizes cannot be asked, what the caller may not see or do is not known: a refusal
// because of it is UNAVAILABLE, and so is all that was read where namespaces are asked about. What one Authorizer permits is read while
// another one is away. What was done stays as it is.
func (p Principal) Settle(changes bool, err error) error {
	if err == nil && changes {
		return nil
	}
	if err != nil {
		switch problem.FromError(err).Reason {
		case problem.Forbidden, problem.NotFound:
		default:
			return err
		}
	}
	for _, a := range p.allAsked() {
		a.mu.Lock()
		failed := a.err
		a.mu.Unlock()
		if failed == nil && err != nil {
			failed = a.away
		}
		if failed != nil {
			return failed
		}
	}
	return err
}
