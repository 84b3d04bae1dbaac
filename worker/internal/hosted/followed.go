// SPDX-License-Identifier: Apache-2.0

package hosted

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"navix.sh/atoll/worker/internal/runner"
)

// followed holds the clusters that one of our providers has engaged.
type followed struct {
	mu       sync.Mutex
	clusters map[multicluster.ClusterName]followedCluster
}

type followedCluster struct {
	cluster cluster.Cluster
	sum     [sha256.Size]byte // of the kubeconfig
	cancel  context.CancelFunc
}

// take engages a cluster if it is new or its kubeconfig has changed. An invalid kubeconfig leaves the cluster as it was (I5).
func (f *followed) take(ctx context.Context, host multicluster.Aware, name multicluster.ClusterName, kubeconfig []byte) error {
	sum := sha256.Sum256(kubeconfig)
	f.mu.Lock()
	before, known := f.clusters[name]
	full := len(f.clusters) >= MaxClusters
	f.mu.Unlock()
	if known && before.sum == sum {
		return nil
	}
	if !known && full {
		return fmt.Errorf("%w: %d are engaged, want no more", errMany, MaxClusters)
	}
	if err := runner.CheckKubeconfig(kubeconfig); err != nil {
		return err
	}
	cfg, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	cl, err := cluster.New(cfg)
	if err != nil {
		return fmt.Errorf("using the kubeconfig: %w", err)
	}
	own, cancel := context.WithCancel(ctx)
	f.mu.Lock()
	if f.clusters == nil {
		f.clusters = map[multicluster.ClusterName]followedCluster{}
	}
	f.clusters[name] = followedCluster{cl, sum, cancel}
	f.mu.Unlock()
	if known {
		before.cancel()
	}
	return host.Engage(own, name, cl)
}

// end disengages a cluster.
func (f *followed) end(name multicluster.ClusterName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c, ok := f.clusters[name]; ok {
		c.cancel()
		delete(f.clusters, name)
	}
}

func (f *followed) names() []multicluster.ClusterName {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Keys(f.clusters))
}

// Get implements multicluster.Provider.
func (f *followed) Get(_ context.Context, name multicluster.ClusterName) (cluster.Cluster, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c, ok := f.clusters[name]; ok {
		return c.cluster, nil
	}
	return nil, multicluster.ErrClusterNotFound
}

// IndexField implements multicluster.Provider. Workers have caches of their own.
func (f *followed) IndexField(context.Context, client.Object, string, client.IndexerFunc) error {
	return errors.New("the clusters of hosted workers have no caches to index")
}
