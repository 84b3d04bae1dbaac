// SPDX-License-Identifier: Apache-2.0

package hosted

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	"sigs.k8s.io/multicluster-runtime/providers/kubeconfig"

	"navix.sh/atoll/worker/internal/runner"
)

// ClusterIDLabel on a kubeconfig Secret is the id of its cluster; without it the Secret's name is.
const ClusterIDLabel = "agentbox.navix.sh/cluster-id"

// onHost is as much of a multicluster manager as a provider uses. The module's own passes each cluster to its components one after the
// other, and ends when one of them fails.
type onHost struct {
	mcmanager.Manager
	local manager.Manager
	host  multicluster.Aware
}

func (o onHost) GetLocalManager() manager.Manager { return o.local }

func (o onHost) Engage(ctx context.Context, name multicluster.ClusterName, cl cluster.Cluster) error {
	return o.host.Engage(ctx, name, cl)
}

// Kubeconfigs runs the module's provider of kubeconfig Secrets of a namespace, until ctx ends.
func Kubeconfigs(ctx context.Context, cfg *rest.Config, namespace string, host multicluster.Aware, log logr.Logger) error {
	labelled := labels.SelectorFromSet(labels.Set{kubeconfig.DefaultKubeconfigSecretLabel: "true"})
	local, err := ctrl.NewManager(cfg, ctrl.Options{
		Logger: log, Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Cache: cache.Options{
			DefaultNamespaces: map[string]cache.Config{namespace: {}},
			ByObject:          map[client.Object]cache.ByObject{&corev1.Secret{}: {Label: labelled}},
		},
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		return fmt.Errorf("building the manager of kubeconfig Secrets: %w", err)
	}
	provider := kubeconfig.New(kubeconfig.Options{
		Namespace:   namespace,
		RESTOptions: []func(*rest.Config) error{checkConfig},
	})
	if err := provider.SetupWithManager(ctx, onHost{local: local, host: host}); err != nil {
		return fmt.Errorf("adding the provider of kubeconfig Secrets: %w", err)
	}
	return local.Start(ctx)
}

// checkConfig refuses what runs a program, or reads a file, of this process.
func checkConfig(cfg *rest.Config) error {
	switch {
	case cfg.ExecProvider != nil || cfg.AuthProvider != nil:
		return errors.New("the kubeconfig has exec or auth-provider, which run programs here; want a token or a certificate")
	case cfg.BearerTokenFile != "" || cfg.CertFile != "" || cfg.KeyFile != "" || cfg.CAFile != "":
		return errors.New("the kubeconfig names files, which would be read here; want the data themselves")
	}
	return nil
}

// LabelledID returns the cluster id of a kubeconfig Secret.
func LabelledID(c client.Reader, namespace string) func(context.Context, string) (string, error) {
	return func(ctx context.Context, name string) (string, error) {
		secret := &corev1.Secret{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret); err != nil {
			return "", fmt.Errorf("reading the Secret: %w", err)
		}
		if id := secret.Labels[ClusterIDLabel]; id != "" {
			return id, nil
		}
		return name, nil
	}
}

const (
	scanInterval = 2 * time.Second
	// maxKubeconfig bounds a file.
	maxKubeconfig = 1 << 20
	fileSuffix    = ".kubeconfig"
)

// Files is a Provider of the kubeconfigs NAME.kubeconfig of a directory.
type Files struct {
	Dir   string
	Clock clock.WithTicker
	Log   logr.Logger

	mu       sync.Mutex
	clusters map[multicluster.ClusterName]fileCluster
}

type fileCluster struct {
	cluster cluster.Cluster
	sum     [sha256.Size]byte
	cancel  context.CancelFunc
}

var (
	_ multicluster.Provider         = &Files{}
	_ multicluster.ProviderRunnable = &Files{}
)

// Start implements multicluster.ProviderRunnable.
func (f *Files) Start(ctx context.Context, host multicluster.Aware) error {
	f.mu.Lock()
	f.clusters = map[multicluster.ClusterName]fileCluster{}
	f.mu.Unlock()
	ticker := f.Clock.NewTicker(scanInterval)
	defer ticker.Stop()
	var last string
	for {
		// What is wrong is said once, not every two seconds.
		if err := f.scan(ctx, host); err == nil {
			last = ""
		} else if err.Error() != last {
			last = err.Error()
			f.Log.Error(err, "Some kubeconfigs cannot be used")
		}
		select {
		case <-ticker.C():
		case <-ctx.Done():
			return nil
		}
	}
}

// scan engages what is new or changed, and ends what is gone. A directory that cannot be read ends nothing (I5).
func (f *Files) scan(ctx context.Context, host multicluster.Aware) error {
	entries, err := os.ReadDir(f.Dir)
	if err != nil {
		return fmt.Errorf("reading --provider-dir: %w", err)
	}
	var errs []error
	there := map[multicluster.ClusterName]bool{}
	for _, entry := range entries {
		name, ok := strings.CutSuffix(entry.Name(), fileSuffix)
		if !ok || name == "" {
			continue
		}
		there[multicluster.ClusterName(name)] = true
		if err := f.take(ctx, host, multicluster.ClusterName(name), filepath.Join(f.Dir, entry.Name())); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", entry.Name(), err))
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, c := range f.clusters {
		if !there[name] {
			c.cancel()
			delete(f.clusters, name)
		}
	}
	return errors.Join(errs...)
}

// take engages a file's cluster if the file is new or has changed. One that is damaged leaves the cluster as it was.
func (f *Files) take(ctx context.Context, host multicluster.Aware, name multicluster.ClusterName, path string) error {
	data, err := readBounded(path)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(data)
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
	if err := runner.CheckKubeconfig(data); err != nil {
		return err
	}
	cfg, err := clientcmd.RESTConfigFromKubeConfig(data)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	cl, err := cluster.New(cfg)
	if err != nil {
		return fmt.Errorf("using the kubeconfig: %w", err)
	}
	own, cancel := context.WithCancel(ctx)
	f.mu.Lock()
	f.clusters[name] = fileCluster{cl, sum, cancel}
	f.mu.Unlock()
	if known {
		before.cancel()
	}
	return host.Engage(own, name, cl)
}

func readBounded(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxKubeconfig+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxKubeconfig {
		return nil, fmt.Errorf("has more than %d bytes", maxKubeconfig)
	}
	return data, nil
}

// Get implements multicluster.Provider.
func (f *Files) Get(_ context.Context, name multicluster.ClusterName) (cluster.Cluster, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c, ok := f.clusters[name]; ok {
		return c.cluster, nil
	}
	return nil, multicluster.ErrClusterNotFound
}

// IndexField implements multicluster.Provider. Workers have caches of their own.
func (f *Files) IndexField(context.Context, client.Object, string, client.IndexerFunc) error {
	return errors.New("the clusters of hosted workers have no caches to index")
}
