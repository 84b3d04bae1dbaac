// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/stats"
	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
)

const (
	// MaxFrame is the size to which a sender fills a frame; larger content is split.
	MaxFrame = 1 << 20
	// maxMessage is the size that a receiver accepts. It leaves room for one oversized item of an older sender in an otherwise small frame.
	maxMessage = 4 << 20

	connectTimeout   = 10 * time.Second
	keepaliveTime    = 10 * time.Second // the shortest that gRPC allows a client
	keepaliveTimeout = 5 * time.Second
)

// Stream is one attached stream, on the worker's side.
type Stream = grpc.BidiStreamingClient[federationv1.WorkerFrame, federationv1.HubFrame]

// Serve uses one connection to a hub. It opens the stream, with its own context so that it can end it, and returns when the stream has
// ended.
type Serve func(ctx context.Context, hub federationv1.LinkClient) error

// Dial is the address of a hub.
type Dial struct {
	// Target is host:port, or several of them separated by commas, which are replicas of one hub. Each connection uses one of them. A name
	// with several addresses counts as that many replicas.
	Target string
	// ServerName is the name that the hub's certificate must have. Default: the target's host.
	ServerName  string
	Credentials *Credentials
	Clock       clock.Clock
	Metrics     *Metrics
	Log         logr.Logger

	// Resolve returns the addresses of a host. Default: DNS. If only Open is set, names are not resolved but passed to Open.
	Resolve func(ctx context.Context, host string) ([]string, error)
	// Open opens a connection to the target. Default: TCP.
	Open func(ctx context.Context, target string) (net.Conn, error)
	// Wake ends the pause before the next attempt, for example when the cause of the last failure was removed. May be nil.
	Wake <-chan struct{}
	// Random draws a jitter below n. Default: the process' source.
	Random func(n int64) int64
}

// Run keeps a connection to the hub until the context ends: it calls serve with a connection, and with a new one when serve returns. An
// error of serve is logged and does not end Run; RetryAfterError lengthens the pause. Run fails immediately if the target is invalid.
func Run(ctx context.Context, d Dial, serve Serve) error {
	list, err := SplitTargets(d.Target)
	if err != nil && d.ServerName == "" {
		return fmt.Errorf("reading the hub's address: %w", err)
	}
	if err != nil {
		list = []string{d.Target} // gRPC accepts more forms
	}
	if d.Random == nil {
		d.Random = rand.Int64N
	}
	if d.Resolve == nil && d.Open == nil {
		d.Resolve = net.DefaultResolver.LookupHost
	}
	t := &targets{list: list, resolve: d.Resolve, clock: d.Clock, random: d.Random}
	failures, lost := 0, d.Clock.Now()
	var again *address // after ErrRenewed
	for {
		start := d.Clock.Now()
		seen := &presence{clock: d.Clock}
		at := t.next(ctx)
		if again != nil {
			at, again = *again, nil
		}
		err := d.connect(ctx, at, seen, serve)
		if ctx.Err() != nil {
			return nil
		}
		renewed := errors.Is(err, ErrRenewed)
		redirected := renewed || errors.Is(err, ErrRedirected)
		if seen.lasted() >= present {
			lost = d.Clock.Now()
		}
		if d.Clock.Since(start) >= settled || redirected {
			failures, lost = 0, d.Clock.Now()
		}
		if renewed {
			again = &at
		} else {
			t.avoid(at)
		}
		failures++
		wait := delay(failures, d.Clock.Since(lost), err, d.Random)
		d.Metrics.disconnected(err)
		d.Log.Info("no link to the hub, trying again", "hub", at.dial, "in", wait, "reason", reason(err))
		timer := d.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-d.Wake:
			timer.Stop()
		case <-timer.C():
		}
	}
}

// presence records when a connection was made.
type presence struct {
	ignore
	clock clock.PassiveClock
	since atomic.Pointer[time.Time]
}

func (p *presence) HandleConn(_ context.Context, event stats.ConnStats) {
	if _, ok := event.(*stats.ConnBegin); ok {
		now := p.clock.Now()
		p.since.Store(&now)
	}
}

func (p *presence) lasted() time.Duration {
	if since := p.since.Load(); since != nil {
		return p.clock.Since(*since)
	}
	return 0
}

func (d Dial) connect(ctx context.Context, at address, seen *presence, serve Serve) (err error) {
	if d.Target = at.dial; d.ServerName == "" {
		d.ServerName = at.host
	}
	conn, err := d.client(seen)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	return serve(ctx, replica{federationv1.NewLinkClient(conn), d})
}

// replica is the client of one replica of the hub.
type replica struct {
	federationv1.LinkClient
	dial Dial // for this replica only
}

// client returns a connection that dials at its first use.
func (d Dial) client(seen stats.Handler, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	if d.ServerName == "" {
		host, _, err := net.SplitHostPort(d.Target)
		if err != nil {
			return nil, fmt.Errorf("reading the hub's address %q: %w", d.Target, err)
		}
		d.ServerName = host
	}
	options := append(calling(transport{Credentials: d.Credentials, serverName: d.ServerName}),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(newCodec(d.Metrics, d.Log))),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: connectTimeout}),
		grpc.WithStatsHandler(d.Metrics.handler()),
		grpc.WithStatsHandler(seen),
	)
	if d.Open != nil {
		options = append(options, grpc.WithContextDialer(d.Open))
	}
	options = append(append(options, clientFaults()...), more...)
	conn, err := grpc.NewClient(d.Target, options...)
	if err != nil {
		return nil, fmt.Errorf("preparing to dial: %w", err)
	}
	return conn, nil
}

// calling returns the dial options that workers use as clients, of the hub and of each other.
func calling(creds credentials.TransportCredentials) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
		grpc.WithDisableServiceConfig(),
	}
}

func reason(err error) string {
	if err == nil {
		return "the stream ended"
	}
	return err.Error()
}
