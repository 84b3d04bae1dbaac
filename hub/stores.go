// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/utils/clock"

	"navix.sh/atoll/hub/internal/fleet"
	"navix.sh/atoll/hub/internal/registrycopy"
	"navix.sh/atoll/pkg/envelope"
	"navix.sh/atoll/pkg/hubstate"
	"navix.sh/atoll/pkg/store"
)

// openStore opens both stores. It waits for a lock; because a Pod that was deleted by force may still be terminating when its replacement
// starts. If both hubs keep running, the second one exits. It waits just as long for etcd.
func (h *hub) openStore(ctx context.Context, clk clock.PassiveClock, o *options) error {
	place, err := o.place()
	if err != nil {
		return err
	}
	var sealer *envelope.Sealer
	if o.encryptionKeys != "" {
		keys, err := envelope.OpenKeyFile(o.encryptionKeys)
		if err != nil {
			return err
		}
		h.rotation = &store.Rotation{Keys: keys, Clock: clock.RealClock{}, Log: h.log.WithName("encryption")}
		sealer = envelope.New(keys)
	}
	until := clk.Now().Add(o.lockWait)
	open := func(kind hubstate.Kind) (hubstate.Store, error) {
		for {
			opened, err := place.Open(ctx, kind, sealer)
			locked := errors.Is(err, store.ErrLocked)
			switch {
			case !locked && !errors.Is(err, store.ErrUnavailable) || ctx.Err() != nil || clk.Now().After(until):
				return opened, err
			case locked:
				h.log.Info("Waiting for another hub to release the store", "error", err.Error())
			default:
				h.log.Info("Waiting for the store", "error", err.Error())
			}
		}
	}
	if h.claimsStore, err = open(hubstate.Claims); err != nil {
		return err
	}
	if h.registryStore, err = open(hubstate.Registry); err != nil {
		return err
	}
	if h.rotation != nil {
		h.rotation.Files = []store.Sealed{h.claimsStore, h.registryStore}
	}
	if place.Etcd != nil {
		err = hubstate.TidyBackups(o.dataDir, clk.Now()) // another process may use the directory as well
	} else {
		err = hubstate.Tidy(place.Dir) // this process has locked the files, so no other one uses them
	}
	if err != nil {
		h.log.Error(err, "Could not remove what an interrupted backup has left")
	}
	return nil
}

// openRegistry returns the registry, restored from its copy if it was lost.
func (h *hub) openRegistry(ctx context.Context, o *options) (fleet.Registry, error) {
	registry := fleet.NewRegistry(h.registryStore)
	place, err := o.copyPlace(h.log)
	if err != nil {
		return nil, fmt.Errorf("--registry-copy: %w", err)
	}
	if place == nil {
		return registry, nil
	}
	if h.registryCopy, err = registrycopy.Open(ctx, place, h.claimsStore, h.registryStore, h.log.WithName("registry-copy")); err != nil {
		return nil, fmt.Errorf("--registry-copy: %w", err)
	}
	return h.registryCopy.Guard(registry), nil
}
