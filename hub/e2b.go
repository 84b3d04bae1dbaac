// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"navix.sh/atoll/hub/internal/api"
	"navix.sh/atoll/pkg/durable"
	"navix.sh/atoll/pkg/e2b"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/reach"
	"navix.sh/atoll/pkg/sandboxd"
	"navix.sh/atoll/pkg/serve"
	"navix.sh/atoll/pkg/wallclock"
)

const e2bShutdown = 2 * time.Second

// e2bOptions configure the gateway for E2B clients.
type e2bOptions struct {
	listen, keyFile, domain string
}

func (o *e2bOptions) bind(flags *pflag.FlagSet) {
	flags.StringVar(&o.listen, "e2b-listen", "",
		"address for E2B clients, such as :8083: E2B_API_URL and E2B_SANDBOX_URL; plain text or TLS as --listen; default: none")
	flags.StringVar(&o.keyFile, "e2b-key-file", "",
		"64 hex digits that seal the access tokens of E2B clients, and from which the tokens of sandboxes' daemons follow, the same at each "+
			"replica; default: made in the data directory")
	flags.StringVar(&o.domain, "e2b-domain", "", "parent of the names PORT-ID.DOMAIN that lead to --e2b-listen; default: none")
}

func (o *e2bOptions) validate(open, shared bool) error {
	var errs []error
	if o.listen == "" {
		if o.domain != "" {
			errs = append(errs, errors.New("--e2b-domain: want --e2b-listen with it"))
		}
		return errors.Join(errs...)
	}
	if err := serve.CheckLoopback(o.listen); err != nil && open {
		errs = append(errs, fmt.Errorf("--e2b-listen: %w (--auth, --api-keys-file)", err))
	}
	if shared && o.keyFile == "" {
		errs = append(errs, errors.New("--e2b-listen: with etcd it needs --e2b-key-file; because replicas read each other's tokens"))
	}
	return errors.Join(errs...)
}

// key reads the key of the gateway, or makes it.
func (o *e2bOptions) key(dataDir string) ([]byte, error) {
	path := o.keyFile
	if path == "" {
		path = filepath.Join(dataDir, "e2b-key")
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) && o.keyFile == "" {
		key := make([]byte, e2b.KeySize)
		if _, err := rand.Read(key); err != nil {
			return nil, fmt.Errorf("making the key for E2B clients: %w", err)
		}
		return key, durable.WriteFile(path, 0o600, func(f *os.File) error {
			_, err := f.WriteString(hex.EncodeToString(key) + "\n")
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("--e2b-key-file: %w", err)
	}
	key, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(key) != e2b.KeySize {
		return nil, fmt.Errorf("--e2b-key-file: %s does not have %d hex digits", path, 2*e2b.KeySize)
	}
	return key, nil
}

// daemonKey returns the key from which the tokens of sandboxes' daemons follow. It is read, or made, when it is needed first.
func (o *e2bOptions) daemonKey(dataDir string, shared bool) func() ([]byte, error) {
	var mu sync.Mutex
	var known []byte
	return func() ([]byte, error) {
		if shared && o.keyFile == "" {
			return nil, errNoSharedKey
		}
		mu.Lock()
		defer mu.Unlock()
		if known != nil {
			return known, nil
		}
		key, err := o.key(dataDir)
		if err != nil {
			return nil, fmt.Errorf("reading the key for sandboxes' daemons: %w", err)
		}
		known = key
		return known, nil
	}
}

var errNoSharedKey = errors.New("with etcd the hub needs --e2b-key-file, the same at each replica")

// tokens are those of sandboxes' daemons.
func tokens(key func() ([]byte, error)) reach.Tokens {
	return func(sandbox string) (string, error) {
		k, err := key()
		if errors.Is(err, errNoSharedKey) {
			return "", problem.New(problem.Unimplemented, "files and processes: %w", err)
		}
		if err != nil {
			return "", err
		}
		return sandboxd.Token(k, sandbox), nil
	}
}

// gateway serves E2B clients.
type gateway struct {
	lis    net.Listener
	inside *e2b.Inside
	*e2b.Gateway
}

func (h *hub) listenE2B(o *options) error {
	if o.e2b.listen == "" {
		return nil
	}
	key, err := o.e2b.key(o.dataDir)
	if err != nil {
		return err
	}
	real, err := wallclock.New()
	if err != nil {
		return err
	}
	g := &gateway{inside: e2b.NewInside()}
	if g.Gateway, err = e2b.New(e2b.Options{
		Dial: g.inside.Dial, Key: key, Domain: o.e2b.domain, Now: real.Now, Log: h.log.WithName("e2b"),
	}); err != nil {
		return err
	}
	lis, err := net.Listen("tcp", o.e2b.listen)
	if err != nil {
		return fmt.Errorf("listening on --e2b-listen: %w", err)
	}
	g.lis = serve.Limit(lis, o.limits.Connections, o.limits.PerAddress)
	if config := h.publicTLS; config != nil {
		config = config.Clone()
		config.NextProtos = []string{"h2", "http/1.1"}
		g.lis = tls.NewListener(g.lis, config)
	}
	h.e2b = g
	return nil
}

// serve serves until ctx ends.
func (g *gateway) serve(ctx context.Context, public *api.Server, group *errgroup.Group) {
	if g == nil {
		return
	}
	server := &http.Server{
		Handler: g, MaxHeaderBytes: e2b.MaxHeaderBytes, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		ConnContext: serve.WithMeter,
	}
	group.Go(func() error { return public.ServeInside(ctx, g.inside) })
	group.Go(func() error {
		if err := server.Serve(g.lis); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serving E2B clients: %w", err)
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), e2bShutdown)
		defer cancel()
		if server.Shutdown(late) != nil {
			_ = server.Close()
		}
		g.Close()
		return nil
	})
}
