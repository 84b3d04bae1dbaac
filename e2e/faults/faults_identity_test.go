// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
)

// takenName lets another cluster use a cluster's name: a stranger with a stolen certificate or, under every third seed, its clone.
func takenName(ctx context.Context, s *scenario) error {
	if s.seed%3 != 0 {
		s.details = " by a stranger"
		return stranger(ctx, s)
	}
	s.details = " by a clone"
	return clone(ctx, s)
}

// stranger starts a worker of one cluster under the other's name and certificate. The hub knows clusters by their uid, too.
func stranger(ctx context.Context, s *scenario) error {
	// It takes the rightful pool of its own cluster for a leftover, and a pool with sandboxes stays until they have ended.
	if err := s.giveUpIn(ctx, s.other); err != nil {
		return err
	}
	// It also keeps the records of sandboxes that end there meanwhile, and takes them along.
	defer s.load.excuse("a stranger kept its record", s.other, time.Now().Add(-10*holdAtMost))
	own := s.programs[s.other]
	if err := own.stop(); err != nil {
		return err
	}
	impostor, err := s.impostor(ctx)
	if err != nil {
		return err
	}
	err = wait.Until(ctx, patience, "the impostor to be refused", func(context.Context) error {
		log, err := os.ReadFile(impostor.LogPath())
		return errors.Join(err, wait.If(strings.Contains(string(log), "IdentityMismatch"), "its log says nothing of it"))
	})
	if err == nil {
		s.between(ctx, 2*time.Second, 5*time.Second)
		err = errors.Join(s.wantState(ctx, s.victim, sandboxv1.ClusterState_FRESH), s.wantServed(ctx, s.victim, "another process uses its name"))
	}
	return errors.Join(err, impostor.Stop(), s.heal(), own.start(ctx))
}

// giveUpIn releases the kept sandboxes of a cluster.
func (s *scenario) giveUpIn(ctx context.Context, cluster string) error {
	var kept []*sandboxv1.Sandbox
	for _, sandbox := range s.kept {
		if sandbox.GetClusterId() != cluster {
			kept = append(kept, sandbox)
			continue
		}
		s.load.holdings.Releasing(sandbox)
		if err := s.load.releaseUntilDone(ctx, sandbox.GetClaimKey(), sandbox); err != nil {
			return err
		}
	}
	s.kept = kept
	return nil
}

// impostor starts a worker of the other cluster under the victim's name.
func (s *scenario) impostor(ctx context.Context) (stack.Program, error) {
	impostor, err := s.WorkerAs(s.other, s.victim, s.victim)
	if err != nil {
		return nil, err
	}
	return impostor, impostor.Start(ctx)
}

// quarantine is the time from the last sharing of a name to the end of the clusters' quarantine.
const quarantine = 5 * time.Minute

// clone gives the other cluster the victim's etcd: with one uid and certificate neither is served until one has gone.
func clone(ctx context.Context, s *scenario) (err error) {
	s.patience = 2 * quarantine
	s.load.patience.Store(int64(s.patience))
	own := s.programs[s.other]
	if err := own.stop(); err != nil {
		return err
	}
	before, of := s.backupName("own"), s.backupName("original")
	if err := errors.Join(s.set.Plane(s.other).Backup(before), s.set.Plane(s.victim).Backup(of)); err != nil {
		return err
	}
	putBack, err := s.become(ctx, of)
	if err == nil {
		err = s.quarantined(ctx)
	}
	// The clone's claims are gone with it.
	defer func() { s.load.excuse("its cluster had a clone", s.victim, time.Time{}) }()
	if err := errors.Join(err, s.set.Plane(s.other).Restore(ctx, before), putBack(), s.heal()); err != nil {
		return err
	}
	return own.start(ctx)
}

func (s *scenario) backupName(what string) string {
	return filepath.Join(s.dir, fmt.Sprintf("%s-%d-%d", what, s.seed, time.Now().UnixNano()))
}

// become restores the victim's etcd in the other cluster, with credentials for a worker there.
func (s *scenario) become(ctx context.Context, of string) (putBack func() error, err error) {
	kubeconfig := s.WorkerKubeconfig(s.other)
	kept, err := os.ReadFile(kubeconfig)
	putBack = func() error { return os.WriteFile(kubeconfig, kept, 0o600) }
	if err != nil {
		return putBack, err
	}
	other := s.set.Plane(s.other)
	if err := other.Restore(ctx, of); err != nil {
		return putBack, err
	}
	// The worker's token was for a ServiceAccount that no longer exists.
	token, err := other.ServiceAccountKubeconfig(ctx, stack.Namespace, "atoll-worker")
	if err != nil {
		return putBack, err
	}
	content, err := os.ReadFile(token)
	if err != nil {
		return putBack, err
	}
	return putBack, os.WriteFile(kubeconfig, content, 0o600)
}

// quarantined runs the clone's worker until the hub serves neither.
func (s *scenario) quarantined(ctx context.Context) error {
	impostor, err := s.impostor(ctx)
	if err != nil {
		return err
	}
	return errors.Join(s.waitState(ctx, s.victim, sandboxv1.ClusterState_QUARANTINED), impostor.Stop())
}
