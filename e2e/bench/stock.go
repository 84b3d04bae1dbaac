// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
)

const (
	resetters    = 16
	clusterID    = "bench"
	namespace    = "default"
	rawNamespace = "raw"
	envName      = "bench"
	// fieldManager is the worker's, for both arms' Pods; because each additional manager of an object adds cost in the API
	// server, and a pool's Pods have only this one in real use.
	fieldManager = "atoll-worker"
	// rest lets every watcher process a reset, of either arm, before a measurement.
	rest = 500 * time.Millisecond
)

// stockEnv is the Env of a stock in one cluster.
func stockEnv(pods int) stack.Env { return envOf(&shelf{cluster: clusterID, size: pods}) }

// envOf is the Env whose pools are the shelves.
func envOf(shelves ...*shelf) stack.Env {
	env := stack.Env{Name: envName, Namespace: namespace, Image: "registry.example/bench:1", AllowedImages: "registry.example/bench"}
	for _, s := range shelves {
		env.Members = append(env.Members, stack.Member{Cluster: s.cluster, Name: s.cluster, Replicas: s.size})
	}
	return env
}

// shelf is the Pods of both arms in one cluster: those of the Env's pool, which the hub hands out, and as many unmanaged ones of the same
// kind, for raw patches.
type shelf struct {
	cluster string
	size    int
	plane   *plane.Plane
	worker  *kubernetes.Clientset // with the worker's credentials and encoding
	admin   *kubernetes.Clientset
	pool    []corev1.Pod // as they were when idle
	raw     []corev1.Pod
	bodies  [][]byte // patches of the raw Pods
	ended   int      // Pods of the pool that were replaced, because their claims left
}

// stock is shelves of one Env.
type stock struct {
	*shelf  // the first
	shelves []*shelf
	pods    int    // of each arm
	space   string // of its Env
	hub     *stack.Client
	given   given
	peak    float64 // of raw patches, a second; 0: not measured yet
}

// atStock returns the stock, which exists until the group ends.
func (b *bench) atStock(ctx context.Context) (*stock, error) {
	if b.stock != nil {
		return b.stock, nil
	}
	p, atoll, err := b.newStack(ctx, plane.Options{})
	if err != nil {
		return nil, err
	}
	b.stock, err = b.newStock(ctx, atoll, b.size.stock, p)
	return b.stock, err
}

// newStock fills clusters, with so many Pods for each arm in all of them together.
func (b *bench) newStock(ctx context.Context, atoll *stack.Stack, pods int, in ...*plane.Plane) (s *stock, err error) {
	s = &stock{pods: pods, space: namespace}
	if s.hub, err = atoll.HubClient(); err != nil {
		return nil, err
	}
	b.logf("stocking %d Pods for each arm", pods)
	for i, p := range in {
		at := &shelf{cluster: p.Name, size: (pods + len(in) - 1 - i) / len(in), plane: p}
		if at.worker, at.admin, err = kubeClients(p, atoll); err != nil {
			return nil, err
		}
		s.shelves = append(s.shelves, at)
	}
	s.shelf = s.shelves[0]
	if err := s.fill(ctx); err != nil {
		return nil, err
	}
	if err := s.learn(ctx); err != nil {
		return nil, err
	}
	b.logf("a claim's patch, and so a raw one, is %d B", len(s.bodies[0]))
	return s, nil
}

// fill creates both arms' Pods.
func (s *stock) fill(ctx context.Context) error {
	env := envOf(s.shelves...)
	for _, at := range s.shelves {
		if err := env.Apply(ctx, at.plane); err != nil {
			return err
		}
	}
	if err := s.waitReady(ctx); err != nil {
		return err
	}
	return s.each(func(at *shelf) (err error) {
		if at.pool, err = at.list(ctx, namespace); err != nil {
			return err
		}
		return at.createRaw(ctx)
	})
}

// each calls f for all shelves at once.
func (s *stock) each(f func(*shelf) error) error {
	var group errgroup.Group
	for _, at := range s.shelves {
		group.Go(func() error { return f(at) })
	}
	return group.Wait()
}

// replaced is how many Pods of the pools were.
func (s *stock) replaced() (pods int) {
	for _, at := range s.shelves {
		pods += at.ended
	}
	return pods
}

// kubeClients returns one client like the worker's own, which alone may write its keys on Pods, and one that may read metrics.
func kubeClients(p *plane.Plane, atoll *stack.Stack) (worker, admin *kubernetes.Clientset, err error) {
	config, err := clientcmd.BuildConfigFromFlags("", atoll.WorkerKubeconfig(p.Name))
	if err != nil {
		return nil, nil, fmt.Errorf("reading the worker's kubeconfig: %w", err)
	}
	config.QPS, config.ContentType = -1, runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	if worker, err = kubernetes.NewForConfig(config); err != nil {
		return nil, nil, fmt.Errorf("building the worker's client: %w", err)
	}
	admin, err = adminClient(p)
	return worker, admin, err
}

// adminClient is a client with all rights and no limit of its own.
func adminClient(p *plane.Plane) (*kubernetes.Clientset, error) {
	config := p.Config()
	config.QPS = -1
	admin, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("building the administrator's client: %w", err)
	}
	return admin, nil
}

// createRaw copies the pool's Pods, without the fields by which the worker would adopt them.
func (s *shelf) createRaw(ctx context.Context) error {
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: rawNamespace}}
	if _, err := s.admin.CoreV1().Namespaces().Create(ctx, space, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating namespace %s: %w", rawNamespace, err)
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(resetters)
	for i, from := range s.pool {
		group.Go(func() error {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("raw-%d", i), Labels: map[string]string{}, Annotations: from.Annotations},
				Spec:       from.Spec,
			}
			for key, value := range from.Labels {
				if key != v1alpha1.ManagedByLabelKey {
					pod.Labels[key] = value
				}
			}
			pod.Spec.NodeName = ""
			_, err := s.worker.CoreV1().Pods(rawNamespace).Create(groupCtx, pod, metav1.CreateOptions{FieldManager: fieldManager})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("creating Pods for raw patches: %w", err)
	}
	return wait.Until(ctx, patience, "raw Pods to be ready", func(ctx context.Context) error {
		var err error
		s.raw, err = s.list(ctx, rawNamespace)
		count := 0
		for _, pod := range s.raw {
			if ready(&pod) {
				count++
			}
		}
		return wait.If(count == s.size, fmt.Sprintf("%d of %d, %v", count, s.size, err))
	})
}

func ready(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// watchPods returns when done returns true for a Pod. A watch costs less than lists.
func watchPods(ctx context.Context, pods typedv1.PodInterface, options metav1.ListOptions, done func(*corev1.Pod) bool) error {
	watcher, err := pods.Watch(ctx, options)
	if err != nil {
		return fmt.Errorf("watching Pods: %w", err)
	}
	_, err = watch.UntilWithoutRetry(ctx, watcher, func(event apiwatch.Event) (bool, error) {
		pod, ok := event.Object.(*corev1.Pod)
		return ok && event.Type != apiwatch.Deleted && done(pod), nil
	})
	if err != nil {
		return fmt.Errorf("watching Pods: %w", err)
	}
	return nil
}

func (s *shelf) list(ctx context.Context, namespace string) ([]corev1.Pod, error) {
	pods, err := s.worker.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.SandboxPoolLabelKey})
	if err != nil {
		return nil, fmt.Errorf("listing the stock: %w", err)
	}
	return pods.Items, nil
}

// waitReady waits until the hub can hand out the whole stock.
func (s *stock) waitReady(ctx context.Context) error {
	return wait.Until(ctx, patience, "the stock to be ready", func(ctx context.Context) error {
		ready, err := s.hub.ReadyIdle(ctx, s.space, envName)
		complete := err == nil
		for _, at := range s.shelves {
			complete = complete && ready[at.cluster] == at.size
		}
		return wait.If(complete, fmt.Sprintf("%v of %d in all, %v", ready, s.pods, err))
	})
}

// reset makes an arm's Pods idle again, with their managed fields, which a claim ends. This is the bench's own shortcut: a
// release would replace the Pods. What has replaced a Pod, and was claimed as well, is deleted, and so replaced.
func (s *shelf) reset(ctx context.Context, pods []corev1.Pod) error {
	now, err := s.list(ctx, pods[0].Namespace)
	if err != nil {
		return err
	}
	idle := map[types.UID]corev1.Pod{}
	for _, pod := range pods {
		idle[pod.UID] = pod
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(resetters)
	for _, pod := range now {
		was, ours := idle[pod.UID]
		if !ours {
			s.ended++
		}
		if pod.Labels[v1alpha1.SandboxPhaseLabelKey] == v1alpha1.SandboxPhaseIdle {
			continue
		}
		group.Go(func() error {
			if !ours {
				return client.IgnoreNotFound(s.admin.CoreV1().Pods(pod.Namespace).Delete(groupCtx, pod.Name, metav1.DeleteOptions{}))
			}
			patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
				"labels": back(pod.Labels, was.Labels), "annotations": back(pod.Annotations, was.Annotations), "managedFields": was.ManagedFields,
			}})
			if err != nil {
				return err
			}
			_, err = s.worker.CoreV1().Pods(pod.Namespace).Patch(groupCtx, pod.Name, types.MergePatchType, patch, asWorker())
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("resetting the stock: %w", err)
	}
	return nil
}

func asWorker() metav1.PatchOptions { return metav1.PatchOptions{FieldManager: fieldManager} }

// back is the merge patch that restores a map.
func back(is, was map[string]string) map[string]any {
	patch := map[string]any{}
	for key := range is {
		patch[key] = nil
	}
	for key, value := range was {
		patch[key] = value
	}
	return patch
}
