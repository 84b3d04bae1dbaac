// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"

	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/pkg/e2b"
	"navix.sh/atoll/pkg/mcpserver"
	"navix.sh/atoll/pkg/version"
)

// mcpOptions configure sessions of agents at /mcp.
type mcpOptions struct {
	sessions, perCaller, sandboxes int
	patience, idle                 time.Duration
}

func (o *mcpOptions) bind(flags *pflag.FlagSet) {
	flags.IntVar(&o.sessions, "mcp-max-sessions", 256,
		"how many sessions agents may have at /mcp, by the Model Context Protocol; 0: none is served")
	flags.IntVar(&o.perCaller, "mcp-max-sessions-per-caller", 32, "how many of them one caller may have")
	flags.IntVar(&o.sandboxes, "mcp-max-sandboxes", 8, "how many sandboxes a session may have at a time")
	flags.DurationVar(&o.patience, "mcp-session-timeout", 5*time.Minute,
		"a session ends, and its sandboxes are released, when its agent has had no request under way for so long")
	flags.DurationVar(&o.idle, "mcp-idle-timeout", 30*time.Minute, "idle timeout of the sandboxes of sessions; 0: the pool's")
}

func (o *mcpOptions) validate() error {
	var errs []error
	for _, n := range []struct {
		flag            string
		value, min, max int
	}{
		{"sessions", o.sessions, 0, 4096}, {"sessions-per-caller", o.perCaller, 1, 4096}, {"sandboxes", o.sandboxes, 1, 1000},
	} {
		if n.value < n.min || n.value > n.max {
			errs = append(errs, fmt.Errorf("--mcp-max-%s: %d is not valid, want %d to %d", n.flag, n.value, n.min, n.max))
		}
	}
	if o.patience < time.Second || o.patience > 24*time.Hour {
		errs = append(errs, fmt.Errorf("--mcp-session-timeout: %s is not valid, want 1s to 24h", o.patience))
	}
	if o.idle < 0 {
		errs = append(errs, fmt.Errorf("--mcp-idle-timeout: %s is not valid, want 0 or more", o.idle))
	}
	return errors.Join(errs...)
}

// handler returns the handler of sessions, and the listener through which they call the API. Both are nil if no sessions are served.
func (o *mcpOptions) handler(log logr.Logger) (*e2b.Inside, *mcpserver.Handler) {
	if o.sessions == 0 {
		return nil, nil
	}
	inside := e2b.NewInside()
	return inside, mcpserver.NewHandler(mcpserver.HandlerOptions{
		Dial: inside.Dial, Caller: sessionCaller, MaxSessions: o.sessions, MaxPerCaller: o.perCaller, Patience: o.patience, Log: log,
		Session: mcpserver.Options{IdleTimeout: o.idle, MaxSandboxes: o.sandboxes, Version: version.String()},
	})
}

// sessionCaller returns a name for the caller of a request, with its kind and issuer. Without credentials all callers are one.
func sessionCaller(ctx context.Context) string {
	who := principal.From(ctx).Identity
	if who == nil {
		return ""
	}
	return fmt.Sprintf("%s of %q", who.Caller(), who.Issuer)
}
