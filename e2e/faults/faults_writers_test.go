// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/stack"
)

var envKind = schema.GroupVersionKind{Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version, Kind: "SandboxEnv"}

// twoWriters writes both writers' parts of an Env's status, with their identities, as fast as the API server takes it, while
// its user applies the manifest over and over (I3). The worker, whose part is played, is away meanwhile.
func twoWriters(ctx context.Context, s *scenario) error {
	// On a slow machine the writes take minutes, during which nobody gives back what is held there.
	s.load.patience.Store(int64(runLimit))
	patches := *patchesFlag
	worker := s.programs[s.victim]
	if err := worker.kill(); err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	users, stopUsers := context.WithCancel(groupCtx)
	var writers errgroup.Group
	for account, segment := range map[string]string{"atoll-worker": s.victim, "atoll-sync": s.other} {
		writers.Go(func() error { return s.write(groupCtx, account, segment, patches/2) })
	}
	applied := 0
	group.Go(func() error {
		for ; users.Err() == nil; applied++ {
			// Cut off in the middle by the end of the writers, a last one proves nothing.
			if err := s.apply(users, s.victim, envName, *podsFlag, applying[applied%len(applying)]...); err != nil && users.Err() == nil {
				return err
			}
		}
		return nil
	})
	err := writers.Wait()
	stopUsers()
	if err := errors.Join(err, group.Wait()); err != nil {
		return err
	}
	s.details = fmt.Sprintf(" %d writes, %d applied", patches, applied)
	if err := s.wantWritten(ctx, int32(patches/2)); err != nil {
		return err
	}
	if err := s.heal(); err != nil {
		return err
	}
	return worker.start(ctx)
}

// as is a client with the identity of one of the worker's ServiceAccounts.
func (s *scenario) as(account string) (client.Client, error) {
	config := s.Cluster(s.victim).Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + stack.Namespace + ":" + account}
	return client.New(config, client.Options{})
}

// write applies a segment of the status, with another count each time.
func (s *scenario) write(ctx context.Context, account, segment string, times int) error {
	writer, err := s.as(account)
	if err != nil {
		return err
	}
	env := &v1alpha1.SandboxEnv{}
	if err := s.kube[s.victim].Get(ctx, client.ObjectKey{Namespace: namespace, Name: envName}, env); err != nil {
		return err
	}
	for i := 1; i <= times; i++ {
		body := &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": envName, "namespace": namespace, "uid": string(env.UID)},
			"status": map[string]any{"clusters": []any{map[string]any{
				"clusterID": segment, "isLocal": segment == s.victim,
				"observedMembers": []any{map[string]any{
					"name": envName + "-" + segment, "state": string(v1alpha1.ObservedMemberStateActive), "idleCount": int64(i),
				}},
			}}},
		}}
		body.SetGroupVersionKind(envKind)
		err := writer.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(body), client.FieldOwner(account), client.ForceOwnership)
		if err != nil {
			return fmt.Errorf("write %d of segment %s as %s: %w", i, segment, account, err)
		}
	}
	return nil
}

// wantWritten is that both writers' last words stand.
func (s *scenario) wantWritten(ctx context.Context, last int32) error {
	env := &v1alpha1.SandboxEnv{}
	if err := s.kube[s.victim].Get(ctx, client.ObjectKey{Namespace: namespace, Name: envName}, env); err != nil {
		return err
	}
	found := 0
	for _, segment := range env.Status.Clusters {
		for _, m := range segment.ObservedMembers {
			if m.IdleCount != last {
				return fmt.Errorf("I3: the segment of %s shows %d where %d was written last", segment.ClusterID, m.IdleCount, last)
			}
			found++
		}
	}
	if found != len(clusters) {
		return fmt.Errorf("I3: %d of %d segments are left: %v", found, len(clusters), env.Status.Clusters)
	}
	return nil
}
