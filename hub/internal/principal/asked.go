// SPDX-License-Identifier: Apache-2.0

package principal

import (
	"sync"

	"navix.sh/atoll/pkg/problem"
)

// asked keeps the first error of an Authorizer that did not respond. The copies of a Principal share it.
type asked struct {
	away error // error of an Authorizer that did not respond at all: see access.Grant

	mu     sync.Mutex
	err    error
	failed func(error) // set by OnFailure; nil: none
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

// OnFailure sets the function that is called with the first later error of an Authorizer that does not respond.
func (p Principal) OnFailure(f func(error)) {
	for _, a := range p.allAsked() {
		a.mu.Lock()
		a.failed = f
		a.mu.Unlock()
	}
}

func (p Principal) allAsked() (out []*asked) {
	for _, one := range []*Principal{&p, p.seeing} {
		if one != nil && one.asked != nil {
			out = append(out, one.asked)
		}
	}
	return out
}

// Settle returns the final error of a call. While an Authorizer does not respond, the caller's permissions are not fully known: a refusal
// then becomes UNAVAILABLE, and so does the result of a read for which an Authorizer decides by namespace. If one Authorizer permits a
// read, it succeeds even if another does not respond. A change that was made stays successful.
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
