// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"navix.sh/atoll/worker/internal/claim"
	"navix.sh/atoll/worker/internal/inventory"
	"navix.sh/atoll/worker/internal/sandboxes"
)

// claimPath serves claims and manages sandboxes.
type claimPath struct {
	inventory *inventory.Inventory
	sandboxes *sandboxes.Service
	claims    *claim.Service
}

// claimPathOptions are the options of its parts, except for those that newClaimPath sets.
type claimPathOptions struct {
	inventory inventory.Options
	sandboxes sandboxes.Options
	claims    claim.Options
}

func newClaimPath(mgr ctrl.Manager, o claimPathOptions, log logr.Logger) (path claimPath, err error) {
	o.inventory.Log, o.sandboxes.Log, o.claims.Log = log.WithName("inventory"), log.WithName("sandboxes"), log.WithName("claim")
	if o.inventory.Client, err = inventory.NewClient(mgr.GetConfig()); err != nil {
		return path, fmt.Errorf("building the claim path's client: %w", err)
	}
	if path.inventory, err = inventory.New(o.inventory); err != nil {
		return path, fmt.Errorf("building the inventory: %w", err)
	}
	if path.sandboxes, err = sandboxes.New(path.inventory, o.sandboxes); err != nil {
		return path, fmt.Errorf("building the sandbox service: %w", err)
	}
	if path.claims, err = claim.New(path.inventory, path.sandboxes, o.claims); err != nil {
		return path, fmt.Errorf("building the claim service: %w", err)
	}
	if err := mgr.Add(path.inventory); err != nil {
		return path, fmt.Errorf("adding the claim path: %w", err)
	}
	err = mgr.AddReadyzCheck("claims", func(*http.Request) error {
		select {
		case <-mgr.Elected():
		default:
			return nil
		}
		if !path.inventory.Serving() {
			return errors.New("leading, and not serving claims yet")
		}
		return nil
	})
	if err != nil {
		return path, fmt.Errorf("adding the readiness check of claims: %w", err)
	}
	return path, nil
}
