// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/utils/clock"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/api"
	"navix.sh/atoll/hub/internal/grants"
)

// bootstrapFile is the file in the data directory with the token of the first API key.
const bootstrapFile = "bootstrap-token"

// authenticate sets up the authentication and authorization of callers.
func (h *hub) authenticate(ctx context.Context, o *options, real clock.WithTicker) (err error) {
	to := api.AuthOptions{Clock: real, Log: h.log.WithName("auth")}
	if o.apiKeysFile != "" {
		if to.Keys, err = api.NewKeyFile(o.apiKeysFile, real, to.Log); err != nil {
			return err
		}
	}
	if h.grants, err = h.openGrants(ctx, to.Keys, real); err != nil || o.open() {
		return err
	}
	to.Authorizer, to.Changed, to.Converse = h.grants, h.grants.Changed(), h.grants.Converse
	if o.uses(authKeys) {
		to.Others = append(to.Others, h.grants)
	}
	if err := h.addAuth(&o.authOptions, real, &to); err != nil {
		return err
	}
	h.grants.AskAlso(to.Authorizer)
	h.auth = api.NewAuth(to)
	if !o.uses(authKeys) {
		return nil
	}
	return h.bootstrap(ctx, o.dataDir)
}

// openGrants opens the keys and the access policy in the registry. file may be nil.
func (h *hub) openGrants(ctx context.Context, file *api.KeyFile, real clock.WithTicker) (*grants.Service, error) {
	o := grants.Options{
		Store: h.registryStore, Live: h.liveReplicas, Clock: real, Log: h.log.WithName("access"),
		Usage: grants.Usage{Each: h.eachSandbox, ClaimKeys: h.claims.KeysOf, Held: h.claims.Holds},
	}
	if file != nil {
		o.File = file
	}
	return grants.New(ctx, o)
}

// liveReplicas counts the replicas that serve, this one included.
func (h *hub) liveReplicas() int {
	if h.members == nil {
		return 1
	}
	return 1 + len(h.members.Peers())
}

// eachSandbox calls f with the last known state of each live sandbox.
func (h *hub) eachSandbox(f func(*sandboxv1.Sandbox)) {
	for _, cluster := range h.fleet.ClusterIDs() {
		h.lastKnown.Of(cluster, func(one *sandboxv1.Sandbox) bool {
			f(one)
			return false
		})
	}
}

// bootstrap creates the first API key, if callers authenticate with keys and the hub has none, and writes its token to the data directory.
func (h *hub) bootstrap(ctx context.Context, dir string) error {
	token, err := h.grants.Bootstrap(ctx)
	if err != nil || token == "" {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("writing the first API key: %w", err)
	}
	path := filepath.Join(dir, bootstrapFile)
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) { // the token of an expired key
		return fmt.Errorf("writing the first API key: %w", err)
	}
	if err := writeNew(path, token+"\n"); err != nil {
		return err
	}
	h.log.Info("Made the first API key, for everything: make others with it, and revoke it", "key", grants.BootstrapName, "tokenFile", path)
	return nil
}
