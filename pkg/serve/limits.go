// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
)

// Limits bound what callers can make a server hold (I14). A zero field has its default.
type Limits struct {
	// Connections is the number of connections, and PerAddress the number from one address: an IPv4 address or an IPv6 network of
	// 64 bits.
	Connections, PerAddress int
	// Streams is the number of calls in flight on one gRPC connection, and Calls the number of one caller over gRPC, identified
	// by key or else by address. A claim that waits for a Pod is a call in flight.
	Streams, Calls int
	// CallRate is the number of calls per second of one caller. An HTTP/2 frame that is neither a call nor data counts as a sixteenth of a
	// call. StrangerRate is the number of calls per second without valid credentials from one address, and StrangersRate the number from all
	// addresses. Until its caller is authenticated, a connection counts as one call, and so do each 4 KiB and each 32 frames that arrive on
	// it.
	CallRate, StrangerRate, StrangersRate int
	// HeaderBytes and BodyBytes bound a request. Data for a sandbox's port is unbounded.
	HeaderBytes, BodyBytes int
	// HeaderTimeout bounds the first bytes of a connection, TLS included, and each header. BodyTimeout bounds the arrival of a body and the
	// delivery of a response. IdleTimeout bounds the time between requests. Requests to sandboxes have only the header timeout.
	HeaderTimeout, BodyTimeout, IdleTimeout time.Duration
}

// DefaultLimits are the limits of a server without other settings.
func DefaultLimits() Limits {
	return Limits{
		Connections: 4096, PerAddress: 512, Streams: 1000, Calls: 10_000, CallRate: 500, StrangerRate: 100, StrangersRate: 500,
		HeaderBytes: 32 << 10, BodyBytes: 256 << 10,
		HeaderTimeout: 10 * time.Second, BodyTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute,
	}
}

// Bind adds the bounds as flags.
func (l *Limits) Bind(flags *pflag.FlagSet) {
	d := DefaultLimits()
	flags.IntVar(&l.Connections, "max-connections", d.Connections, "how many connections to the API there may be at one time")
	flags.IntVar(&l.PerAddress, "max-connections-per-address", d.PerAddress,
		"how many of them may come from one IPv4 address or IPv6 /64; raise it where callers share a proxy")
	flags.IntVar(&l.Streams, "max-streams-per-connection", d.Streams, "how many calls one gRPC connection may have under way")
	flags.IntVar(&l.Calls, "max-calls-per-caller", d.Calls, "how many gRPC calls one API key, or without keys one address, may have under way")
	flags.IntVar(&l.CallRate, "max-call-rate-per-caller", d.CallRate,
		"how many calls a second one API key may make, for longer than a moment; HTTP/2 frames without a call or data count a sixteenth")
	flags.IntVar(&l.StrangerRate, "max-unauthenticated-rate-per-address", d.StrangerRate,
		"how many calls or new connections a second without valid credentials one IPv4 address or IPv6 /64 may make, for longer than a "+
			"moment; connections stop counting once a caller is authenticated")
	flags.IntVar(&l.StrangersRate, "max-unauthenticated-rate", d.StrangersRate,
		"how many of them all addresses may make together, in equal shares")
	flags.IntVar(&l.HeaderBytes, "max-header-bytes", d.HeaderBytes, "size of a request's header, path and query included")
	flags.IntVar(&l.BodyBytes, "max-body-bytes", d.BodyBytes, "size of a request's body; what goes to a sandbox's port has no bound")
	flags.DurationVar(&l.HeaderTimeout, "header-timeout", d.HeaderTimeout,
		"how long a TLS handshake, and a request's header, may take to arrive")
	flags.DurationVar(&l.BodyTimeout, "body-timeout", d.BodyTimeout,
		"how long a request's body may take to arrive, and a response to be taken")
	flags.DurationVar(&l.IdleTimeout, "idle-timeout", d.IdleTimeout, "how long a connection without a call is kept")
}

// Validate names every bound that is out of range.
func (l Limits) Validate() error {
	l = l.filled()
	var errs []error
	for _, n := range []struct {
		flag            string
		value, min, max int
	}{
		{"max-connections", l.Connections, 1, 1 << 20}, {"max-connections-per-address", l.PerAddress, 1, 1 << 20},
		{"max-streams-per-connection", l.Streams, 1, 1 << 16}, {"max-calls-per-caller", l.Calls, 1, 1 << 20},
		{"max-call-rate-per-caller", l.CallRate, 1, 1 << 20}, {"max-unauthenticated-rate-per-address", l.StrangerRate, 4, 1 << 20},
		{"max-unauthenticated-rate", l.StrangersRate, 4, 1 << 20},
		{"max-header-bytes", l.HeaderBytes, 4 << 10, 1 << 20}, {"max-body-bytes", l.BodyBytes, 4 << 10, 16 << 20},
	} {
		if n.value < n.min || n.value > n.max {
			errs = append(errs, fmt.Errorf("--%s: %d is not valid, want %d to %d", n.flag, n.value, n.min, n.max))
		}
	}
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{{"header-timeout", l.HeaderTimeout}, {"body-timeout", l.BodyTimeout}, {"idle-timeout", l.IdleTimeout}} {
		if d.value < time.Second || d.value > time.Hour {
			errs = append(errs, fmt.Errorf("--%s: %s is not valid, want 1s to 1h", d.flag, d.value))
		}
	}
	return errors.Join(errs...)
}

func (l Limits) filled() Limits {
	d := DefaultLimits()
	return Limits{
		Connections: cmp.Or(l.Connections, d.Connections), PerAddress: cmp.Or(l.PerAddress, d.PerAddress),
		Streams: cmp.Or(l.Streams, d.Streams), Calls: cmp.Or(l.Calls, d.Calls), CallRate: cmp.Or(l.CallRate, d.CallRate),
		StrangerRate: cmp.Or(l.StrangerRate, d.StrangerRate), StrangersRate: cmp.Or(l.StrangersRate, d.StrangersRate),
		HeaderBytes: cmp.Or(l.HeaderBytes, d.HeaderBytes), BodyBytes: cmp.Or(l.BodyBytes, d.BodyBytes),
		HeaderTimeout: cmp.Or(l.HeaderTimeout, d.HeaderTimeout), BodyTimeout: cmp.Or(l.BodyTimeout, d.BodyTimeout),
		IdleTimeout: cmp.Or(l.IdleTimeout, d.IdleTimeout),
	}
}
