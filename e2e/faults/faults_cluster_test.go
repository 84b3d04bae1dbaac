// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/wait"
)

// etcdRestored restores a cluster's etcd from a backup, with running sandboxes that were claimed before and after it.
func etcdRestored(ctx context.Context, s *scenario) error {
	etcd := s.set.Plane(s.victim)
	backup := s.backupName("etcd")
	begun := time.Now()
	if err := etcd.Backup(backup); err != nil {
		return err
	}
	for i := range 2 {
		if _, err := s.claimKept(ctx, fmt.Sprintf("%s-forgotten-%d", s.load.name, i), s.victim); err != nil {
			return err
		}
	}
	s.between(ctx, 2*time.Second, 6*time.Second)
	err := etcd.Restore(ctx, backup)
	s.load.excuse("claimed after the backup", s.victim, begun)
	return errors.Join(err, s.heal())
}

// removedWhileAway removes an Env, and then the cluster, while the worker that would report it is away.
func removedWhileAway(ctx context.Context, s *scenario) error {
	const passing = "passing"
	for _, cluster := range clusters {
		if err := s.apply(ctx, cluster, passing, 1); err != nil {
			return err
		}
	}
	if err := wait.Until(ctx, patience, "the passing Env",
		func(ctx context.Context) error { return s.wantEnvIn(ctx, passing, s.victim, true) }); err != nil {
		return err
	}
	worker := s.programs[s.victim]
	if err := worker.kill(); err != nil {
		return err
	}
	if err := s.deleteEnv(ctx, s.victim, passing); err != nil {
		return err
	}
	if s.random.IntN(2) == 0 {
		s.details = " with a hub that starts anew"
		if err := s.hubProgram().crash(ctx); err != nil {
			return err
		}
	}
	if err := worker.start(ctx); err != nil {
		return err
	}
	if err := wait.Until(ctx, patience, "the passing Env to go",
		func(ctx context.Context) error { return s.wantEnvIn(ctx, passing, s.victim, false) }); err != nil {
		return err
	}
	if err := s.deleteEnv(ctx, s.other, passing); err != nil {
		return err
	}
	return s.forget(ctx)
}

// forget removes the victim while it is away, and admits it again.
func (s *scenario) forget(ctx context.Context) error {
	worker := s.programs[s.victim]
	if err := worker.kill(); err != nil {
		return err
	}
	err := wait.Until(ctx, patience, "the hub to forget the cluster", func(ctx context.Context) error {
		_, err := s.hub.ForgetCluster(ctx, &sandboxv1.ForgetClusterRequest{Id: s.victim})
		return err
	})
	s.load.excuse("its cluster was forgotten", s.victim, time.Time{})
	if err != nil {
		return err
	}
	if err := s.wantServed(ctx, s.other, s.victim+" is forgotten"); err != nil {
		return err
	}
	if err := worker.start(ctx); err != nil {
		return err
	}
	s.between(ctx, 2*time.Second, 4*time.Second)
	if _, err := s.hub.GetCluster(ctx, &sandboxv1.GetClusterRequest{Id: s.victim}); status.Code(err) != codes.NotFound {
		return fmt.Errorf("a forgotten cluster came back by itself: %w", err)
	}
	if _, err := s.hub.UndrainCluster(ctx, &sandboxv1.UndrainClusterRequest{Id: s.victim}); err != nil {
		return err
	}
	return s.heal()
}

func (s *scenario) deleteEnv(ctx context.Context, cluster, env string) error {
	e := &v1alpha1.SandboxEnv{}
	e.Namespace, e.Name = namespace, env
	if err := client.IgnoreNotFound(s.kube[cluster].Delete(ctx, e)); err != nil {
		return fmt.Errorf("deleting Env %s in %s: %w", env, cluster, err)
	}
	return wait.Until(ctx, patience, "the Env to be gone", func(ctx context.Context) error {
		err := s.kube[cluster].Get(ctx, client.ObjectKeyFromObject(e), e)
		return wait.If(apierrors.IsNotFound(err), err)
	})
}

// wantEnvIn waits until the hub shows an Env's part in a cluster, or does not.
func (s *scenario) wantEnvIn(ctx context.Context, env, cluster string, want bool) error {
	e, err := s.hub.GetEnv(ctx, &sandboxv1.GetEnvRequest{Namespace: namespace, Name: env})
	if err != nil && status.Code(err) != codes.NotFound {
		return err
	}
	has := slices.ContainsFunc(e.GetClusters(), func(c *sandboxv1.EnvCluster) bool { return c.GetClusterId() == cluster })
	return wait.If(has == want, e)
}
