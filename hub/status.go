// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/utils/clock"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/hubstate"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/version"
)

// status implements api.Hub: the hub's own state, its backup and the end of a recovery.
type status struct {
	hub         *hub
	files       hubstate.Files
	clock       clock.PassiveClock
	credentials *link.Credentials // of the hub
	open        bool              // callers need no credentials
}

// Status returns the state of the hub, including whether all claim keys are known.
func (st *status) Status() *sandboxv1.HubStatus {
	s := st.hub.recovery.Status(st.hub.fleet.ClusterIDs())
	out := &sandboxv1.HubStatus{
		Version: version.String(), Recovering: s.Recovering, AwaitedClusters: s.Awaited, Epoch: s.Epoch,
		Time: timestamppb.New(st.clock.Now()), CertificateExpires: timestamppb.New(st.credentials.Expiry()),
		CertificateLifetime: durationpb.New(st.credentials.Lifetime()), Open: st.open,
	}
	if st.hub.rotation != nil {
		p := st.hub.rotation.Progress()
		out.Encryption = &sandboxv1.Encryption{Key: p.Key, Sealed: p.Sealed, Stale: p.Stale}
	}
	for _, file := range []hubstate.Store{st.hub.claimsStore, st.hub.registryStore} {
		if err := file.Failure(); err != nil {
			out.StoreFailure = err.Error()
		}
	}
	if s.Last != nil {
		out.Reason, out.Accepted, out.Since = string(s.Last.Cause), s.Last.Accepted, timestamppb.New(s.Last.Since)
	}
	return out
}

// Replicas lists the replicas of the hub.
func (st *status) Replicas() []*sandboxv1.Replica { return st.hub.replicas() }

// AcceptLoss ends a recovery early.
func (st *status) AcceptLoss(ctx context.Context) error {
	awaited := st.hub.recovery.Unheard(st.hub.fleet.ClusterIDs())
	if err := st.hub.recovery.Accept(ctx); err != nil {
		return err
	}
	st.hub.log.Info("An operator accepted the loss of claim keys", "clusters", awaited)
	return nil
}

// Backup archives both files.
func (st *status) Backup(ctx context.Context, w io.Writer) error {
	return st.files.Backup(ctx, st.clock.Now(), w)
}
