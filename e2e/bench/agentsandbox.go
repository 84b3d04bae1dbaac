// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/ports"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
)

const (
	// peerName is the program's, and peerNamespace that of its lease and Secret.
	peerName      = "agent-sandbox-controller"
	peerNamespace = "agent-sandbox-system"
	peerPool      = "bench"
)

// peerTuned are the flags that the peer's load test recommends.
var peerTuned = []string{
	"--kube-api-qps=-1",
	"--sandbox-concurrent-workers=1000", "--sandbox-claim-concurrent-workers=1000", "--sandbox-warm-pool-concurrent-workers=1000",
}

var (
	peerGroup  = schema.GroupVersion{Group: "extensions.agents.x-k8s.io", Version: "v1beta1"}
	peerClaims = peerGroup.WithResource("sandboxclaims")
	peerPools  = peerGroup.WithResource("sandboxwarmpools")
)

// controller is the peer's, running beside a plane.
type controller struct {
	cmd   *exec.Cmd
	log   string
	ended chan struct{}
}

// startPeer runs the controller with the arguments of its manifest, and more.
func (b *bench) startPeer(ctx context.Context, set *plane.Set, p *plane.Plane, program string, more []string) (*controller, error) {
	namespace := fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s}}", peerNamespace)
	if err := stack.Apply(ctx, p, namespace); err != nil {
		return nil, fmt.Errorf("creating the peer's namespace: %w", err)
	}
	free, err := ports.Free(2)
	if err != nil {
		return nil, err
	}
	c := &controller{log: filepath.Join(b.logDir(), peerName+".log"), ended: make(chan struct{})}
	log, err := os.Create(c.log)
	if err != nil {
		return nil, fmt.Errorf("creating the peer's log: %w", err)
	}
	defer log.Close()
	_, webhookPort, err := net.SplitHostPort(free[1])
	if err != nil {
		return nil, fmt.Errorf("reading a free address: %w", err)
	}
	c.cmd = exec.Command(program, append([]string{
		"--leader-elect=true", "--leader-election-namespace=" + peerNamespace, "--extensions",
		"--metrics-bind-address=0", "--health-probe-bind-address=" + free[0],
		"--webhook-port=" + webhookPort, "--webhook-cert-dir=" + filepath.Join(set.Dir(), "peer-webhook"),
	}, more...)...)
	c.cmd.Env = []string{"HOME=" + set.Dir(), "KUBECONFIG=" + p.Kubeconfig()}
	c.cmd.Stdout, c.cmd.Stderr = log, log
	set.Adopt(c.cmd)
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the peer: %w", err)
	}
	go func() {
		_ = c.cmd.Wait()
		close(c.ended)
	}()
	return c, nil
}

// alive returns an error with the end of the log if the controller has ended.
func (c *controller) alive() error {
	select {
	case <-c.ended:
		text, err := os.ReadFile(c.log)
		return errors.Join(err, fmt.Errorf("the peer ended: %s", text[max(0, len(text)-2048):]))
	default:
		return nil
	}
}

// buildPeer compiles the controller of the checkout at -peer.
func (b *bench) buildPeer(ctx context.Context) (string, error) {
	program := filepath.Join(b.outDir, peerName)
	b.logf("building %s of %s", peerName, b.peerDir)
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", program, "./cmd/"+peerName)
	build.Dir = b.peerDir
	build.Env = append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the peer at %s: %w\n%s", b.peerDir, err, out)
	}
	return program, nil
}

// claimPool is a pool of the peer, claimed as its users do: a claim is created, and ready once its status says so.
type claimPool struct {
	client     dynamic.Interface
	controller *controller

	mu      sync.Mutex
	waiting map[string]chan struct{} // by claim, closed when it is ready
	next    int
}

// newClaimPool brings up a plane with the peer's resources and controller, and a pool of the Pods that hubPool has.
func (b *bench) newClaimPool(ctx context.Context, program string, flags []string) (*plane.Plane, *claimPool, error) {
	set, err := b.newPlanes(ctx, plane.Options{CRDDir: filepath.Join(b.peerDir, "k8s", "crds")}, clusterID)
	if err != nil {
		return nil, nil, err
	}
	p := set.Plane(clusterID)
	c := &claimPool{waiting: map[string]chan struct{}{}}
	if c.controller, err = b.startPeer(ctx, set, p, program, flags); err != nil {
		return nil, nil, err
	}
	config := p.Config()
	config.QPS = -1
	if c.client, err = dynamic.NewForConfig(config); err != nil {
		return nil, nil, fmt.Errorf("building the peer's client: %w", err)
	}
	manifest, err := peerManifest()
	if err != nil {
		return nil, nil, err
	}
	if err := stack.Apply(ctx, p, manifest); err != nil {
		return nil, nil, fmt.Errorf("creating the peer's pool (this bench knows %s): %w", peerGroup, err)
	}
	return p, c, c.watch(ctx, b)
}

// peerManifest is a pool of the Pods that stockEnv has.
func peerManifest() (string, error) {
	var ours v1alpha1.SandboxTemplate
	text, err := stockEnv(cycledPods).TemplateManifest()
	if err == nil {
		err = yaml.Unmarshal([]byte(text), &ours)
	}
	if err != nil {
		return "", fmt.Errorf("reading the template: %w", err)
	}
	pod, err := yaml.Marshal(map[string]any{
		"apiVersion": peerGroup.String(), "kind": "SandboxTemplate", "metadata": map[string]any{"name": peerPool, "namespace": namespace},
		"spec": map[string]any{"podTemplate": map[string]any{"spec": ours.Spec.Template.Spec}},
	})
	if err != nil {
		return "", fmt.Errorf("writing the peer's template: %w", err)
	}
	return string(pod) + fmt.Sprintf(`---
apiVersion: %s
kind: SandboxWarmPool
metadata: {name: %s, namespace: %s}
spec: {replicas: %d, sandboxTemplateRef: {name: %s}}
`, peerGroup, peerPool, namespace, cycledPods, peerPool), nil
}

// watch starts the one watch by which all claims learn that they are ready.
func (c *claimPool) watch(ctx context.Context, b *bench) error {
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(c.client, 0, namespace, nil)
	seen := func(v any) {
		claim, ok := v.(*unstructured.Unstructured)
		if !ok || !claimReady(claim) {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if ready, ok := c.waiting[claim.GetName()]; ok {
			close(ready)
			delete(c.waiting, claim.GetName())
		}
	}
	_, err := factory.ForResource(peerClaims).Informer().AddEventHandler(
		cache.ResourceEventHandlerFuncs{AddFunc: seen, UpdateFunc: func(_, v any) { seen(v) }})
	if err != nil {
		return fmt.Errorf("watching the peer's claims: %w", err)
	}
	stop := make(chan struct{})
	factory.Start(stop)
	b.closers = append(b.closers, func() error {
		close(stop)
		factory.Shutdown()
		return nil
	})
	factory.WaitForCacheSync(ctx.Done())
	return context.Cause(ctx)
}

func claimReady(claim *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(claim.Object, "status", "conditions")
	for _, v := range conditions {
		if c, ok := v.(map[string]any); ok && c["type"] == "Ready" {
			return c["status"] == string(metav1.ConditionTrue)
		}
	}
	return false
}

func (c *claimPool) claim(ctx context.Context) (release, error) {
	c.mu.Lock()
	c.next++
	name, ready := fmt.Sprintf("claim-%d", c.next), make(chan struct{})
	c.waiting[name] = ready
	c.mu.Unlock()
	claims := c.client.Resource(peerClaims).Namespace(namespace)
	claim := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": peerGroup.String(), "kind": "SandboxClaim", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"warmPoolRef": map[string]any{"name": peerPool}},
	}}
	if _, err := claims.Create(ctx, claim, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("creating a claim: %w", err)
	}
	end := func(ctx context.Context) error { return claims.Delete(ctx, name, metav1.DeleteOptions{}) }
	select {
	case <-ready:
		return end, nil
	case <-c.controller.ended:
		return nil, c.controller.alive()
	case <-ctx.Done():
		err := fmt.Errorf("waiting for claim %s: %w", name, context.Cause(ctx))
		c.mu.Lock()
		delete(c.waiting, name)
		c.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		return nil, errors.Join(err, end(ctx))
	}
}

func (c *claimPool) full(ctx context.Context) error {
	if err := c.controller.alive(); err != nil {
		return err
	}
	pool, err := c.client.Resource(peerPools).Namespace(namespace).Get(ctx, peerPool, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading the peer's pool: %w", err)
	}
	claims, err := c.client.Resource(peerClaims).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing the peer's claims: %w", err)
	}
	ready, _, err := unstructured.NestedInt64(pool.Object, "status", "readyReplicas")
	return wait.If(ready == cycledPods && meta.LenList(claims) == 0,
		fmt.Sprintf("%d of %d are ready, %d claims, %v", ready, cycledPods, meta.LenList(claims), err))
}
