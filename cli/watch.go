// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/utils/clock"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/wallclock"
)

// watching follows the changes of sandboxes, over as many streams as necessary.
type watching struct {
	clients  clients
	request  *sandboxv1.WatchSandboxesRequest
	errs     io.Writer
	listener listener[*sandboxv1.Sandbox]
	renew    func() // called before a stream with another token

	taken    bool // the server took the token of the last stream
	away     []string
	troubled bool
	unshown  error // why an event could not be shown
}

func (w *watching) run(ctx context.Context) error {
	for {
		err := w.once(ctx)
		if ctx.Err() != nil || w.unshown != nil {
			return w.unshown
		}
		p := problem.FromError(err)
		switch p.Reason {
		case problem.Expired: // what has changed meanwhile is told as if it were new
			w.request.ResumeToken = ""
		case problem.Unavailable, problem.Deadline, problem.Internal:
			if !w.troubled {
				reportError(w.errs, p)
			}
			w.troubled = true
		case problem.Unauthenticated:
			if !w.taken {
				return p
			}
			w.taken = false // its token has ended, or was rotated
			w.renew()
		default:
			return p
		}
		if wallclock.Sleep(ctx, clock.RealClock{}, lookEvery) != nil {
			return nil
		}
	}
}

// once follows one stream.
func (w *watching) once(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if w.request.GetResumeToken() == "" {
		w.listener.begin()
	}
	stream, err := w.clients.sandboxes.WatchSandboxes(ctx, w.request)
	if err != nil {
		return err
	}
	for {
		event, err := stream.Recv()
		if err != nil {
			return err
		}
		w.troubled, w.taken = false, true
		w.request.ResumeToken = event.GetResumeToken()
		if event.GetType() == sandboxv1.SandboxEvent_BOOKMARK {
			w.bookmark(event)
		} else if w.unshown = w.listener.changed(event.GetSandbox(), event.GetType() == sandboxv1.SandboxEvent_DELETED); w.unshown != nil {
			return w.unshown
		}
	}
}

// bookmark prints which clusters are unreachable.
func (w *watching) bookmark(event *sandboxv1.SandboxEvent) {
	if away := event.GetUnreachableClusters(); !slices.Equal(away, w.away) {
		w.away = away
		if len(away) > 0 {
			fmt.Fprintf(w.errs, "shown as last known, unreachable: %s\n", strings.Join(away, ", "))
		} else {
			fmt.Fprintln(w.errs, "all clusters are reachable again")
		}
	}
	w.listener.complete()
}
