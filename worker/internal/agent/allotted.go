// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"strconv"
)

// allottedKey of stateConfigMap stores whether the hub divides maxReplicas over clusters. A leader that starts while such a hub is away
// then lets no group grow.
const allottedKey = "allotments"

// allot applies the allotments flag of a Welcome. It stores the flag before the stream begins.
func (a *Agent) allot(ctx context.Context, on bool) error {
	if a.allotted != on {
		if err := a.store.keepAllotted(ctx, on); err != nil {
			return err
		}
		a.allotted = on
		a.opts.Log.Info("The hub says whether it divides maxReplicas of scaling groups over clusters", "divides", on)
	}
	a.opts.Rooms.Switch(on)
	return nil
}

// loadAllotted applies the flag that the last leader stored. A worker without a hub has no limits.
func (a *Agent) loadAllotted(ctx context.Context) (err error) {
	if a.allotted, err = a.store.loadAllotted(ctx); err == nil {
		a.opts.Rooms.Switch(a.allotted && a.opts.Hub.Target != "")
	}
	return err
}

func (s incarnations) keepAllotted(ctx context.Context, on bool) error {
	err := s.change(ctx, func(data map[string]string) {
		if data[allottedKey] = strconv.FormatBool(on); !on {
			delete(data, allottedKey)
		}
	})
	if err != nil {
		return fmt.Errorf("storing whether the hub divides maxReplicas: %w", err)
	}
	return nil
}

func (s incarnations) loadAllotted(ctx context.Context) (bool, error) {
	state, err := s.get(ctx)
	if err != nil {
		return false, fmt.Errorf("reading whether the hub divides maxReplicas: %w", err)
	}
	return state.Data[allottedKey] == strconv.FormatBool(true), nil
}
