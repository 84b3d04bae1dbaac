// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

// emptyIdentity is what the worker's chart makes for the worker to write to.
const emptyIdentity = "{apiVersion: v1, kind: Secret, metadata: {namespace: " + Namespace + ", name: atoll-worker-identity}}"

// TokenFile is the file with a cluster's invitation.
func (s *Stack) TokenFile(cluster string) string { return filepath.Join(s.dir, cluster+".invitation") }

// Invite gives a cluster a new invitation, which a running worker takes up. Without Options.Invited it does nothing.
func (s *Stack) Invite(ctx context.Context, cluster string) error {
	if !s.opts.Invited {
		return nil
	}
	hub, err := s.HubClient()
	if err != nil {
		return err
	}
	invitation, err := hub.InviteCluster(ctx, &sandboxv1.InviteClusterRequest{Id: cluster})
	if err != nil {
		return fmt.Errorf("inviting %s: %w", cluster, err)
	}
	// The file changes at once, as a mounted Secret does.
	next := s.TokenFile(cluster) + ".new"
	err = os.WriteFile(next, []byte(invitation.GetToken()+"\n"), 0o600)
	if err == nil {
		err = os.Rename(next, s.TokenFile(cluster))
	}
	if err != nil {
		return fmt.Errorf("placing the invitation of %s: %w", cluster, err)
	}
	return nil
}

// Join invites a cluster of Options.Later and starts its worker. It returns when that is ready.
func (s *Stack) Join(ctx context.Context, cluster string) error {
	if err := s.Invite(ctx, cluster); err != nil {
		return err
	}
	return s.platform.join(ctx, cluster)
}

func (p *planes) join(ctx context.Context, cluster string) error {
	worker, err := p.prepareWorker(cluster, p.stack.opts.BinDir)
	if err != nil {
		return err
	}
	return p.startWorker(ctx, p.set.Plane(cluster), worker)
}

var errNoJoin = errors.New("on kind, all clusters are installed at the start")

func (*charts) join(context.Context, string) error { return errNoJoin }

// certificateFlags are a program's certificate: files, or with Options.Invited the hub's own CA and a cluster's invitation.
func (p *planes) certificateFlags(program string) []string {
	switch {
	case !p.stack.opts.Invited:
		return tlsFlags(p.stack.certs[program])
	case program == "":
		return nil
	default:
		return []string{"--token-file=" + p.stack.TokenFile(program)}
	}
}
