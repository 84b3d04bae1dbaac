// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"navix.sh/atoll/pkg/serve"
	"navix.sh/atoll/pkg/wallclock"
)

const (
	shutdownTimeout = 2 * time.Second
	headerTimeout   = 10 * time.Second
	idleTimeout     = 2 * time.Minute
)

// Flags specify where a program serves E2B clients.
type Flags struct {
	Listen, KeyFile, Domain string
}

// Bind adds the flags.
func (f *Flags) Bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.Listen, "e2b-listen", "",
		"address for E2B clients, such as :8083: E2B_API_URL and E2B_SANDBOX_URL; plain text or TLS as --listen; default: none")
	flags.StringVar(&f.KeyFile, "e2b-key-file", "",
		"64 hex digits that seal the access tokens of E2B clients, and from which the tokens of sandboxes' daemons follow, the same at each "+
			"replica; default: made in the data directory")
	flags.StringVar(&f.Domain, "e2b-domain", "", "parent of the names PORT-ID.DOMAIN that lead to --e2b-listen; default: none")
}

// Validate returns an error if the flags are invalid. open means that the API requires no credentials; guard names the flags that change
// this. shared means that several replicas serve the same sandboxes.
func (f *Flags) Validate(open, shared bool, guard string) error {
	var errs []error
	if f.Listen == "" {
		if f.Domain != "" {
			errs = append(errs, errors.New("--e2b-domain: want --e2b-listen with it"))
		}
		return errors.Join(errs...)
	}
	if err := serve.CheckLoopback(f.Listen); err != nil && open {
		errs = append(errs, fmt.Errorf("--e2b-listen: %w (%s)", err, guard))
	}
	if shared && f.KeyFile == "" {
		errs = append(errs, errors.New("--e2b-listen: with several replicas it needs --e2b-key-file; because they read each other's tokens"))
	}
	return errors.Join(errs...)
}

// FrontOptions configure a Front.
type FrontOptions struct {
	DataDir        string
	Templates      Templates   // see Options
	BuildEnv       string      // see Options
	BuildSandboxes int         // see Options
	TLS            *tls.Config // nil: plain text
	Limits         serve.Limits
	Log            logr.Logger
}

// Front is a gateway that listens at an address.
type Front struct {
	gateway *Gateway
	inside  *Inside
	lis     net.Listener
}

// Open listens for E2B clients.
func (f *Flags) Open(ctx context.Context, o FrontOptions) (*Front, error) {
	key, err := f.Key(o.DataDir)
	if err != nil {
		return nil, err
	}
	real, err := wallclock.New()
	if err != nil {
		return nil, err
	}
	front := &Front{inside: NewInside()}
	if front.gateway, err = New(Options{
		Dial: front.inside.Dial, Key: key, Domain: f.Domain, Templates: o.Templates, BuildEnv: o.BuildEnv,
		BuildSandboxes: o.BuildSandboxes, Now: real.Now, Log: o.Log,
	}); err != nil {
		return nil, err
	}
	var config net.ListenConfig
	lis, err := config.Listen(ctx, "tcp", f.Listen)
	if err != nil {
		return nil, fmt.Errorf("listening on --e2b-listen: %w", err)
	}
	front.lis = serve.Limit(lis, o.Limits.Connections, o.Limits.PerAddress)
	if o.TLS != nil {
		secure := o.TLS.Clone()
		secure.NextProtos = []string{"h2", "http/1.1"}
		front.lis = tls.NewListener(front.lis, secure)
	}
	return front, nil
}

// Serve serves until ctx ends. serveInside serves the gateway's own calls with the public API.
func (f *Front) Serve(ctx context.Context, serveInside func(context.Context, net.Listener) error) error {
	server := &http.Server{
		Handler: f.gateway, MaxHeaderBytes: MaxHeaderBytes, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
		ConnContext: serve.WithMeter,
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return serveInside(ctx, f.inside) })
	group.Go(func() error {
		if err := server.Serve(f.lis); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serving E2B clients: %w", err)
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if server.Shutdown(late) != nil {
			_ = server.Close()
		}
		f.gateway.Close()
		return nil
	})
	return group.Wait()
}
