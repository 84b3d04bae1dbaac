// SPDX-License-Identifier: Apache-2.0

// Command dex is the OpenID Connect server dex, as tests need it: its own packages, users with passwords, and everything in memory. A
// process that is started anew on the same address has other signing keys.
//
// The module of dex has a second one for its gRPC API, whose version that fits cannot be had by itself; because of that this is a main
// package of our own and not dex's.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	gosundheit "github.com/AppsFlyer/go-sundheit"
	"github.com/dexidp/dex/server"
	"github.com/dexidp/dex/server/connectors"
	"github.com/dexidp/dex/server/signer"
	"github.com/dexidp/dex/server/tokens"
	"github.com/dexidp/dex/storage"
	"github.com/dexidp/dex/storage/memory"
	"github.com/prometheus/client_golang/prometheus"
)

// unlocked renews refresh tokens without the lock of the storage in memory, which the server asks for something else meanwhile: it would
// wait for itself.
type unlocked struct {
	storage.Storage
	mu *sync.Mutex
}

func (u unlocked) UpdateRefreshToken(
	ctx context.Context, id string, update func(storage.RefreshToken) (storage.RefreshToken, error),
) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	old, err := u.GetRefresh(ctx, id)
	if err != nil {
		return err
	}
	next, err := update(old)
	if err != nil {
		return err
	}
	return u.Storage.UpdateRefreshToken(ctx, id, func(storage.RefreshToken) (storage.RefreshToken, error) { return next, nil })
}

// hash is bcrypt of "password".
const hash = "$2a$10$2b2cU8CPhOTaGrs1HRQuAueS7JTT5ZHsHSzYiFPm1leZck7Mc8T4W"

func main() {
	listen := flag.String("listen", "127.0.0.1:5556", "address")
	issuer := flag.String("issuer", "", "URL of the issuer")
	cert, key := flag.String("cert", "", "certificate file; empty: plain text"), flag.String("key", "", "key file")
	valid := flag.Duration("valid-for", time.Hour, "how long an ID token is valid")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, *listen, *issuer, *cert, *key, *valid); err != nil {
		fmt.Fprintln(os.Stderr, "dex:", err)
		os.Exit(1)
	}
}

func serve(ctx context.Context, listen, issuer, cert, key string, valid time.Duration) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	store := storage.WithStaticClients(unlocked{memory.New(log), &sync.Mutex{}}, []storage.Client{
		{ID: "atollctl", Name: "atollctl", Public: true}, // without redirect URIs, so that any port of loopback is one
		{ID: "other", Name: "other", Public: true},
	})
	store = storage.WithStaticPasswords(store, []storage.Password{
		user("alice", "team-red", "atoll-admins"), user("bob", "team-blue"), user("carol"),
	}, log)
	store = storage.WithStaticConnectors(store, []storage.Connector{{
		ID: connectors.LocalConnector, Name: "Email", Type: connectors.LocalConnector,
	}})
	now := func() time.Time { return time.Now().UTC() }
	local := signer.LocalConfig{KeysRotationPeriod: "6h"}
	sign, err := local.Open(ctx, store, valid, now, log)
	if err != nil {
		return fmt.Errorf("opening the signer: %w", err)
	}
	refresh, err := tokens.NewRefreshTokenPolicy(log, false, "", "", "0s")
	if err != nil {
		return fmt.Errorf("refresh tokens: %w", err)
	}
	handler, err := server.NewServer(ctx, server.Config{
		Issuer: issuer, Storage: store, SkipApprovalScreen: true, PasswordConnector: connectors.LocalConnector, Signer: sign,
		IDTokensValidFor: valid, RefreshTokenPolicy: refresh, Logger: log, Now: now, PrometheusRegistry: prometheus.NewRegistry(),
		HealthChecker: gosundheit.New(),
	})
	if err != nil {
		return err
	}
	web := &http.Server{Addr: listen, Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = web.Close() })
	if cert != "" {
		err = web.ListenAndServeTLS(cert, key)
	} else {
		err = web.ListenAndServe()
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

func user(name string, groups ...string) storage.Password {
	verified := true
	return storage.Password{
		Email: name + "@example.com", Hash: []byte(hash), Username: name, Name: name, EmailVerified: &verified, PreferredUsername: name,
		UserID: "id-of-" + name, Groups: groups,
	}
}
