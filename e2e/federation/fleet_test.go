// SPDX-License-Identifier: Apache-2.0

//go:build !kind

package federation_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
)

// TestTheExampleOfAFleet: examples/fleet keeps its ConfigMap in every cluster that responds, and in none that is drained.
func TestTheExampleOfAFleet(t *testing.T) {
	ctx := testContext(t)
	log, end := startExample(ctx, t)
	must.Succeed(t, repairs(ctx, "east", "north", "west"))

	undrain := func(ctx context.Context) error {
		_, err := hub.UndrainCluster(ctx, &sandboxv1.UndrainClusterRequest{Id: "west"})
		return err
	}
	t.Cleanup(func() {
		if t.Failed() {
			_ = undrain(context.Background())
		}
	})
	_, err := hub.DrainCluster(ctx, &sandboxv1.DrainClusterRequest{Id: "west"})
	must.Succeed(t, err)
	must.Succeed(t, wait.Until(ctx, patience, "the example to leave west", func(context.Context) error {
		return log.tells("A cluster is disengaged", "west")
	}))
	must.Succeed(t, damage(ctx, "west"))
	must.Succeed(t, repairs(ctx, "east", "north"))
	if err := kept(ctx, "west"); !apierrors.IsNotFound(err) {
		t.Errorf("the ConfigMap of a drained cluster: %v, want it not found", err)
	}
	must.Succeed(t, undrain(ctx))
	must.Succeed(t, wait.Until(ctx, patience, "the example to be back in west", func(ctx context.Context) error { return kept(ctx, "west") }))

	north := atoll.Cluster("north")
	must.Succeed(t, north.Pause())
	err = repairs(ctx, "east", "west")
	must.Succeed(t, north.Resume())
	must.Succeed(t, err)
	must.Succeed(t, heal(ctx))
	must.Succeed(t, repairs(ctx, "east", "north", "west"))
	must.Succeed(t, end())
}

// fleetLog is the path of the example's log.
type fleetLog string

// tells fails unless a line of the log has both texts.
func (l fleetLog) tells(message, cluster string) error {
	text, err := os.ReadFile(string(l))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, message) && strings.Contains(line, cluster) {
			return nil
		}
	}
	return fmt.Errorf("the log tells nothing like %q of %s", message, cluster)
}

// startExample starts it with a kubeconfig that has a context for each cluster.
func startExample(ctx context.Context, t *testing.T) (log fleetLog, end func() error) {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "fleet")
	args := []string{"build", "-race", "-trimpath", "-buildvcs=false", "-o", program, "../../examples/fleet"}
	out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("building the example: %v: %s", err, out)
	}
	config := clientcmdapi.NewConfig()
	for _, cluster := range clusters {
		one, err := clientcmd.LoadFromFile(atoll.Cluster(cluster).Kubeconfig())
		must.Succeed(t, err)
		current := one.Contexts[one.CurrentContext]
		config.Clusters[cluster], config.AuthInfos[cluster] = one.Clusters[current.Cluster], one.AuthInfos[current.AuthInfo]
		config.Contexts[cluster] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: cluster}
	}
	config.CurrentContext = clusters[0]
	kubeconfig := filepath.Join(dir, "kubeconfig")
	must.Succeed(t, clientcmd.WriteToFile(*config, kubeconfig))
	file, err := os.Create(filepath.Join(dir, "log"))
	must.Succeed(t, err)
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "ATOLL_SERVER="+atoll.HubEndpoint().Address)
	cmd.Stdout, cmd.Stderr = file, file
	must.Succeed(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = file.Close()
		if t.Failed() {
			text, _ := os.ReadFile(file.Name())
			t.Logf("the example printed:\n%s", text)
		}
	})
	return fleetLog(file.Name()), func() error {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			return err
		}
		return <-ended
	}
}

// repairs damages what the example keeps, and waits until it is right again.
func repairs(ctx context.Context, in ...string) error {
	for _, cluster := range in {
		if err := damage(ctx, cluster); err != nil {
			return err
		}
	}
	for _, cluster := range in {
		if err := wait.Until(ctx, patience, "the example to repair its ConfigMap in "+cluster, func(ctx context.Context) error {
			return kept(ctx, cluster)
		}); err != nil {
			return err
		}
	}
	return nil
}

// damage deletes the ConfigMap.
func damage(ctx context.Context, cluster string) error {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "fleet"}}
	return client.IgnoreNotFound(kube[cluster].Delete(ctx, object))
}

// kept returns nil if the ConfigMap is there.
func kept(ctx context.Context, cluster string) error {
	return kube[cluster].Get(ctx, client.ObjectKey{Namespace: "default", Name: "fleet"}, &corev1.ConfigMap{})
}
