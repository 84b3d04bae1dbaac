// SPDX-License-Identifier: Apache-2.0

// Package inventorytest provides an inventory for tests, which send its events.
package inventorytest

import (
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/worker/internal/apitime"
	"navix.sh/atoll/worker/internal/inventory"
	"navix.sh/atoll/worker/internal/sandbox"
)

// Pool is the one pool.
var Pool = types.NamespacedName{Namespace: "default", Name: "p"}

// Station is an inventory with one pool and one node. Its tests run in a bubble of package synctest.
type Station struct {
	*inventory.Inventory
	API   *API
	Lease *Lease

	t       *testing.T
	version int
}

// Lease is held unless the test sets Lapsed.
type Lease struct{ Lapsed atomic.Bool }

// Held implements inventory.Lease.
func (l *Lease) Held() bool { return !l.Lapsed.Load() }

// New returns a station that does not lead yet, so that observers can be added.
func New(t *testing.T) *Station {
	t.Helper()
	s := &Station{API: newAPI(t), Lease: &Lease{}, t: t}
	client, err := inventory.NewClient(&rest.Config{Host: "http://api", Transport: s.API})
	if err != nil {
		t.Fatal(err)
	}
	s.Inventory, err = inventory.New(inventory.Options{
		ClusterID: "east", Client: client, Lease: s.Lease, Time: apitime.New(clock.RealClock{}),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Lead makes the station lead until the test ends.
func (s *Station) Lead() {
	s.t.Helper()
	s.Update(func(st *inventory.State) {
		st.SetNode(&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n"},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		})
		st.SetPool(&v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{
			Namespace: Pool.Namespace, Name: Pool.Name, Annotations: map[string]string{v1alpha1.AllowedImagesAnnotationKey: "i"},
		}})
	})
	s.SetIncarnation(1)
	go func() {
		if err := s.Start(s.t.Context()); err != nil && !errors.Is(err, inventory.ErrSetBack) {
			s.t.Error(err)
		}
	}()
	synctest.Wait()
}

// IdlePod returns a claimable Pod, newer than all earlier ones.
func (s *Station) IdlePod(name string) *corev1.Pod {
	s.version++
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: Pool.Namespace, Name: name, UID: types.UID(name), Generation: 1, ResourceVersion: strconv.Itoa(s.version),
			Labels: map[string]string{v1alpha1.SandboxPoolLabelKey: Pool.Name, v1alpha1.SandboxPhaseLabelKey: string(sandbox.Idle)},
		},
		Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "main", Image: "i:1"}}},
		Status: corev1.PodStatus{
			Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "main", Image: "i:1", ContainerID: "c", Ready: true, State: running}},
		},
	}
}

// ClaimedPod returns a Pod whose sandbox runs, newer than all earlier ones.
func (s *Station) ClaimedPod(name, id string) *corev1.Pod {
	pod := s.IdlePod(name)
	pod.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: v1alpha1.GroupVersion.String(), Kind: "SandboxPool", Name: Pool.Name, Controller: new(true)},
	}
	pod.Labels[v1alpha1.SandboxPhaseLabelKey] = string(sandbox.Running)
	pod.Labels[v1alpha1.SandboxIDLabelKey] = id
	now := time.Now().UTC().Format(time.RFC3339)
	pod.Annotations = map[string]string{
		v1alpha1.SandboxIDAnnotationKey: id, v1alpha1.SandboxClaimedAtAnnotationKey: now, v1alpha1.SandboxStartedAtAnnotationKey: now,
		v1alpha1.SandboxIdleTimeoutAnnotationKey: "3600",
	}
	return pod
}

// Edited returns a manually edited Pod, newer than all earlier ones.
func (s *Station) Edited(pod *corev1.Pod, edit func(*corev1.Pod)) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.ResourceVersion = s.IdlePod("").ResourceVersion
	edit(pod)
	return pod
}

// See passes a Pod to the inventory as an event, and waits for the effects.
func (s *Station) See(pod *corev1.Pod) {
	s.Update(func(st *inventory.State) { st.SeeEvent(pod) })
	synctest.Wait()
}

// Appear puts Pods on the API server, and passes their events to the inventory.
func (s *Station) Appear(pods ...*corev1.Pod) {
	s.API.Put(pods...)
	for _, pod := range pods {
		s.See(pod)
	}
}

// Gone passes the deletion of a Pod to the inventory.
func (s *Station) Gone(pod *corev1.Pod) { s.Update(func(st *inventory.State) { st.Forget(pod) }) }
