// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/worker/internal/sandbox"
)

// leastServing follows a namespace's Pods, in the API server's order, until enough is closed, and returns the lowest number that
// could be handed out at any time.
func (w *world) leastServing(pods watch.Interface, from map[types.UID]bool, enough <-chan struct{}) int {
	serving, least := from, len(from)
	for {
		select {
		case event, ok := <-pods.ResultChan():
			if !ok {
				return -1
			}
			pod, ok := event.Object.(*corev1.Pod)
			if !ok {
				return -1
			}
			delete(serving, pod.UID)
			if event.Type != watch.Deleted && pod.DeletionTimestamp == nil && sandbox.PhaseOf(pod) == sandbox.Idle && ready(pod) {
				serving[pod.UID] = true
			}
			least = min(least, len(serving))
		case <-enough:
			return least
		}
	}
}

// A rollout leaves sandboxes alone, and never takes more of the serving Pods than it may.
func TestRollout(t *testing.T) {
	for name, tc := range map[string]struct {
		annotation string
		least      int
	}{
		"a fifth unless told otherwise": {"", 7},
		"as it is told":                 {"1", 8},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.makePool("p", 10, func(p *v1alpha1.SandboxPool) {
				p.Annotations = map[string]string{}
				if tc.annotation != "" {
					p.Annotations[v1alpha1.RolloutAnnotationKey] = tc.annotation
				}
			})
			idle := w.awaitIdle("p", 10, 0)
			w.Must(w.claim(&idle[0], "01hzzzzzzzzzzzzzzzzzzzzzzz-east", "test.local/other:1", time.Minute))
			running := w.awaitPhase(idle[0].Name, sandbox.Running)
			from := map[types.UID]bool{}
			for _, pod := range w.awaitIdle("p", 9, 1) {
				from[pod.UID] = true
			}
			list := &corev1.PodList{}
			w.Must(w.Live.List(w.ctx, list, client.InNamespace(w.Namespace)))
			watcher, err := client.NewWithWatch(plain.Up(t).Config(), client.Options{Scheme: w.Live.Scheme()})
			w.Must(err)
			events, err := watcher.Watch(w.ctx, &corev1.PodList{}, client.InNamespace(w.Namespace), &client.ListOptions{
				Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion},
			})
			w.Must(err)
			defer events.Stop()
			enough, least := make(chan struct{}), make(chan int, 1)
			go func() { least <- w.leastServing(events, from, enough) }()

			pool := w.Pool("p")
			w.Must(w.Live.Patch(w.ctx, pool, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"idleImage":"test.local/idle:2"}}`))))
			w.Eventually("new Pods", func() error {
				old, current := 0, 0
				for _, pod := range w.pods("p", sandbox.Idle) {
					if pod.Spec.Containers[0].Image == "test.local/idle:2" && ready(&pod) {
						current++
					} else {
						old++
					}
				}
				return wait.If(old <= 0 && current == 9, fmt.Sprintf("%d are new, %d are not", current, old))
			})
			close(enough)
			if got := <-least; got < tc.least {
				t.Errorf("at one time %d Pods could serve, want %d", got, tc.least)
			}
			if now := w.pod(running.Name); now.UID != running.UID || sandbox.PhaseOf(now) != sandbox.Running {
				t.Errorf("the sandbox's Pod is now %s, %s", now.UID, sandbox.PhaseOf(now))
			}
			w.release("p", running.Name)
			w.awaitGone(running)
			w.awaitIdle("p", 10, 0)
		})
	}
}
