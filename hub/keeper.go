// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/utils/clock"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/hubstate"
	"navix.sh/atoll/pkg/store"
	"navix.sh/atoll/pkg/version"
)

// keeper answers for what the hub keeps.
type keeper struct {
	hub   *hub
	files hubstate.Files
	clock clock.PassiveClock
	// expiry is when the hub's certificate ends.
	expiry func() time.Time
}

// Status tells whether all claim keys are known.
func (k *keeper) Status() *sandboxv1.HubStatus {
	s := k.hub.recovery.Status(k.hub.fleet.ClusterIDs())
	out := &sandboxv1.HubStatus{
		Version: version.String(), Recovering: s.Recovering, AwaitedClusters: s.Awaited, Epoch: s.Epoch,
		Time: timestamppb.New(k.clock.Now()), CertificateExpires: timestamppb.New(k.expiry()),
	}
	for _, file := range []*store.Bolt{k.hub.claimsFile, k.hub.registryFile} {
		if err := file.Failure(); err != nil {
			out.StoreFailure = err.Error()
		}
	}
	if s.Last != nil {
		out.Reason, out.Accepted, out.Since = string(s.Last.Cause), s.Last.Accepted, timestamppb.New(s.Last.Since)
	}
	return out
}

// AcceptLoss ends a recovery early.
func (k *keeper) AcceptLoss(ctx context.Context) error {
	awaited := k.hub.recovery.Unheard(k.hub.fleet.ClusterIDs())
	if err := k.hub.recovery.Accept(ctx); err != nil {
		return err
	}
	k.hub.log.Info("An operator accepted the loss of claim keys", "clusters", awaited)
	return nil
}

// Backup archives both files.
func (k *keeper) Backup(ctx context.Context, w io.Writer) error {
	return k.files.Backup(ctx, k.clock.Now(), w)
}
