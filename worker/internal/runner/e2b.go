// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"

	"navix.sh/atoll/pkg/e2b"
	"navix.sh/atoll/worker/internal/localapi"
)

// validateE2B checks the flags for E2B clients.
func (o *Options) validateE2B() error {
	f := &o.listen.e2b
	open := o.listen.access.auth == "" || o.listen.access.cert == ""
	err := f.Validate(open, o.history.peerListen != "", "--auth "+authKubernetes+" with --local-tls-cert-file")
	if f.Listen != "" && f.KeyFile == "" && o.history.dir == "" {
		err = errors.Join(err, errors.New("--e2b-listen: want --e2b-key-file, or --data-dir for a generated key"))
	}
	return err
}

// addE2B serves E2B clients through the local API. Followers serve them as well, and forward calls to the leader.
func (w *assembly) addE2B(api *localapi.API, secure *tls.Config) error {
	if w.listen.e2b.Listen == "" {
		return nil
	}
	err := w.mgr.Add(&e2bClients{flags: w.listen.e2b, api: api, options: e2b.FrontOptions{
		DataDir: w.history.dir, TLS: secure, Limits: w.limits, Log: w.log.WithName("e2b"),
	}})
	if err != nil {
		return fmt.Errorf("adding the gateway for E2B clients: %w", err)
	}
	return nil
}

// e2bClients is the runnable that serves E2B clients.
type e2bClients struct {
	flags   e2b.Flags
	options e2b.FrontOptions
	api     *localapi.API
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*e2bClients) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (c *e2bClients) Start(ctx context.Context) error {
	front, err := c.flags.Open(ctx, c.options)
	if err != nil {
		return err
	}
	return front.Serve(ctx, c.api.ServeInside)
}
