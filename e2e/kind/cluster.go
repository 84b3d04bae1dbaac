// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Cluster is one kind cluster. Its methods may be called concurrently, except that faults are injected one at a time.
type Cluster struct {
	// Name as kind knows it.
	Name string

	dir    string
	engine string
	admin  *rest.Config
}

// connect prepares the clients of an existing cluster, and waits until DNS works in its Pods.
func (c *Cluster) connect(ctx context.Context) error {
	admin, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	// The default client limit is 5 requests a second; tests should wait only for the server.
	admin.QPS, admin.Burst = 1000, 2000
	c.admin = admin
	_, err = c.Kubectl(ctx, "--namespace", "kube-system", "rollout", "status", "deployment/coredns", "--timeout", createPatience.String())
	return err
}

// Kubeconfig is the path of the cluster administrator's kubeconfig.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.dir, c.Name+".kubeconfig") }

// Config returns a new client configuration for the cluster administrator.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.admin) }

// Kubectl runs kubectl as cluster administrator and returns what it printed to standard output.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return c.KubectlInput(ctx, nil, args...)
}

// KubectlInput is Kubectl with standard input, for "apply -f -".
func (c *Cluster) KubectlInput(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	cache := filepath.Join(c.dir, c.Name+"-kubectl-cache")
	return run(ctx, stdin, "kubectl", append([]string{"--kubeconfig", c.Kubeconfig(), "--cache-dir", cache}, args...)...)
}

// Load makes images available in the cluster, from archives as `docker save` writes them.
func (c *Cluster) Load(ctx context.Context, archives ...string) error {
	for _, archive := range archives {
		if _, err := run(ctx, nil, "kind", "load", "image-archive", archive, "--name", c.Name); err != nil {
			return fmt.Errorf("loading images into %s: %w", c.Name, err)
		}
	}
	return nil
}

// Node is the name of the cluster's only node: a container of the engine, a Node in Kubernetes, and a host name for the Pods of
// all clusters.
func (c *Cluster) Node() string { return c.Name + "-control-plane" }

// faultPatience bounds an operation on a node.
const faultPatience = time.Minute

// Pause freezes the API server: connections are accepted and kept, and get no response.
func (c *Cluster) Pause() error { return c.signalAPIServer("STOP") }

// Resume ends Pause.
func (c *Cluster) Resume() error { return c.signalAPIServer("CONT") }

func (c *Cluster) signalAPIServer(signal string) error {
	ctx, cancel := context.WithTimeout(context.Background(), faultPatience)
	defer cancel()
	_, err := c.Exec(ctx, "pkill", "--signal", signal, "--exact", "kube-apiserver")
	return err
}
