// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/clip"
	"navix.sh/atoll/pkg/outcome"
	"navix.sh/atoll/pkg/problem"
)

// endedError is the error of a command that needs a live sandbox but got one that has ended. Its exit code is exitEnded.
type endedError struct {
	id, cause, key string
}

func (e *endedError) Error() string {
	text := fmt.Sprintf("sandbox %s has ended", e.id)
	if e.id == "" { // cancelled before it got an id
		text = "the claim has ended"
	}
	if e.cause != "" {
		text += ": " + clip.Line(e.cause)
	}
	if e.key != "" {
		text += fmt.Sprintf("; claim key %q stands for it: another sandbox needs another key", e.key)
	}
	return text
}

// usable returns an error for a sandbox that has ended.
func usable(s *sandboxv1.Sandbox) error {
	if !outcome.Over(s) {
		return nil
	}
	return &endedError{id: s.GetId(), cause: outcome.Cause(s), key: s.GetClaimKey()}
}

// anyState accepts every sandbox: releasing an ended sandbox succeeds.
func anyState(*sandboxv1.Sandbox) error { return nil }

// explainGone replaces the error of a sandbox that cannot be reached with the reason why it ended, if it has ended.
func (a *app) explainGone(ctx context.Context, id string, err error) error {
	if err == nil || problem.FromError(err).Reason != problem.NotFound {
		return err
	}
	if over := (*endedError)(nil); errors.As(a.gone(context.WithoutCancel(ctx), id), &over) {
		return over
	}
	return err
}

// gone returns the error of a sandbox that has ended, or that the server does not know. Nil: it is there, or the server does not say.
func (a *app) gone(ctx context.Context, id string) (gone error) {
	ctx, cancel := context.WithTimeout(ctx, shortCall)
	defer cancel()
	_ = a.connect(ctx, func(c clients) error {
		s, err := c.sandboxes.GetSandbox(ctx, &sandboxv1.GetSandboxRequest{Id: id})
		switch {
		case err == nil:
			gone = usable(s)
		case problem.FromError(err).Reason == problem.NotFound:
			gone = err
		}
		return nil
	})
	return gone
}
