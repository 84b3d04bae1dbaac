// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kubelet_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
)

// secret is what a tenant leaves.
const secret = "left-by-a-tenant"

// residue is one way to leave data, and to look for it.
type residue struct {
	name  string
	leave func(context.Context, func(path string, query ...string) (string, error)) error
	find  func(context.Context, target) (bool, error)
}

// target is the tenant of a Pod.
type target struct{ cluster, pod string }

func (p target) ask(ctx context.Context, path string, query ...string) (string, error) {
	return ask(ctx, p.cluster, p.pod, path, query...)
}

// simple leaves by one request and finds by another.
func simple(name string, leave, find []string) residue {
	return residue{
		name: name,
		leave: func(_ context.Context, ask func(string, ...string) (string, error)) error {
			_, err := ask(leave[0], leave[1:]...)
			return err
		},
		find: func(ctx context.Context, p target) (bool, error) {
			got, err := p.ask(ctx, find[0], find[1:]...)
			// Half a secret is one as well: a semaphore holds no more than its first letter.
			return got != "" && strings.Contains(secret, got), err
		},
	}
}

func inFile(path string) residue {
	return simple("file "+path, []string{"/write", "path", path, "data", secret}, []string{"/read", "path", path})
}

func inAttribute(path string) residue {
	return simple("attribute of "+path, []string{"/xattr", "path", path, "data", secret}, []string{"/xattr", "path", path})
}

func inIPC(kind string) residue {
	return simple("ipc "+kind, []string{"/ipc", "kind", kind, "key", "77", "data", secret}, []string{"/ipc", "kind", kind, "key", "77"})
}

// leftPort is where a tenant leaves a listening socket.
const leftPort = 9000

// all are all known ways.
var all = []residue{
	inFile("/file"), inFile("/tmp/file"), inFile("/scratch/file"), inFile("/dev/shm/file"),
	inFile("/etc/hosts"), inFile("/etc/hostname"), inFile("/etc/resolv.conf"), inFile("/dev/termination-log"),
	inAttribute("/etc/hosts"), inAttribute("/etc/hostname"), inAttribute("/etc/resolv.conf"),
	inIPC("shm"), inIPC("sem"), inIPC("msg"), inIPC("mq"),
	{
		name: "process",
		leave: func(_ context.Context, ask func(string, ...string) (string, error)) error {
			_, err := ask("/spawn")
			return err
		},
		find: func(ctx context.Context, p target) (bool, error) {
			listed, err := p.ask(ctx, "/ps")
			var processes []struct{ Command string }
			if err == nil {
				err = json.Unmarshal([]byte(listed), &processes)
			}
			return len(processes) > 1, err
		},
	},
	{
		name: "socket",
		leave: func(_ context.Context, ask func(string, ...string) (string, error)) error {
			_, err := ask("/listen", "port", fmt.Sprint(leftPort))
			return err
		},
		find: func(ctx context.Context, p target) (bool, error) {
			_, err := askIn(ctx, p.cluster, namespace, p.pod, leftPort, "/whoami")
			return err == nil, nil
		},
	},
}

// leaveAll leaves all residue that the Pod permits, and returns its names.
func leaveAll(ctx context.Context, t *testing.T, p target) []string {
	t.Helper()
	mustAsk(ctx, t, p.cluster, p.pod, "/whoami")
	var left []string
	for _, r := range all {
		err := r.leave(ctx, func(path string, query ...string) (string, error) { return p.ask(ctx, path, query...) })
		if err == nil {
			left = append(left, r.name)
		}
	}
	return left
}

// findAll returns the residue of an earlier tenant that a tenant finds.
func findAll(ctx context.Context, t *testing.T, p target) []string {
	t.Helper()
	mustAsk(ctx, t, p.cluster, p.pod, "/whoami")
	var found []string
	for _, r := range all {
		got, err := r.find(ctx, p)
		if got {
			found = append(found, r.name)
		}
		if err != nil && !errors.Is(err, errNothing) {
			t.Logf("looking for %s: %v", r.name, err)
		}
	}
	return found
}

// Of all that a tenant leaves in a Pod, this survives a swap of the image. worker/internal/sandbox relies on it: more than this
// would be a hole in it, less would mean that it is too careful.
func TestWhatASwapKeeps(t *testing.T) {
	ctx := testContext(t)
	pod := barePod("bare")
	root(&pod.Spec)
	scratch("")(&pod.Spec)
	createByHand(ctx, t, resets, pod)
	p := target{resets, pod.Name}
	left := leaveAll(ctx, t, p)
	swapByHand(ctx, t, resets, pod, tenantImage)
	found := findAll(ctx, t, p)
	t.Logf("left: %s", strings.Join(left, ", "))
	want := []string{
		"file /scratch/file", "file /dev/shm/file", "file /etc/hostname", "file /etc/resolv.conf",
		"attribute of /etc/hosts", "attribute of /etc/hostname", "attribute of /etc/resolv.conf",
		"ipc shm", "ipc sem", "ipc msg", "ipc mq",
	}
	if len(left) != len(all) || !slices.Equal(found, want) {
		t.Errorf("of %d things %d were left; after the swap there are\n%s\nwant\n%s", len(all), len(left), strings.Join(found, ", "),
			strings.Join(want, ", "))
	}
}

// barePod is a Pod that is none of Atoll's.
func barePod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.PodSpec{
		TerminationGracePeriodSeconds: new(int64(1)), AutomountServiceAccountToken: new(false),
		Containers: []corev1.Container{{Name: "main", Image: idleImage}},
	}}
}

// createByHand creates a Pod that the end of the test deletes.
func createByHand(ctx context.Context, t *testing.T, cluster string, pod *corev1.Pod) {
	t.Helper()
	must.Succeed(t, kube[cluster].Create(ctx, pod))
	t.Cleanup(func() { must.Succeed(t, kube[cluster].Delete(context.Background(), pod)) })
}

// swapByHand changes the image of a Pod and waits until its process has changed.
func swapByHand(ctx context.Context, t *testing.T, cluster string, pod *corev1.Pod, image string) {
	t.Helper()
	before := pod.DeepCopy()
	wait.For(t, patience, "the image of "+pod.Name+" to be changed", func(ctx context.Context) error {
		if err := kube[cluster].Get(ctx, client.ObjectKeyFromObject(pod), before); err != nil {
			return err
		}
		changed := before.DeepCopy()
		changed.Spec.Containers[0].Image = image
		return kube[cluster].Patch(ctx, changed, client.MergeFrom(before))
	})
	runsByHand(ctx, t, cluster, pod, image)
}

func runsByHand(ctx context.Context, t *testing.T, cluster string, pod *corev1.Pod, image string) {
	t.Helper()
	wait.For(t, patience, pod.Name+" to run "+image, func(ctx context.Context) error {
		var now corev1.Pod
		if err := kube[cluster].Get(ctx, client.ObjectKeyFromObject(pod), &now); err != nil {
			return err
		}
		statuses := now.Status.ContainerStatuses
		return wait.If(len(statuses) == 1 && statuses[0].Image == image && statuses[0].Ready, show([]corev1.Pod{now}))
	})
}

// I13: whatever a tenant leaves, the next finds nothing of it: because the Pod kept nothing, or because it is another.
func TestI13_NothingReachesTheNextTenant(t *testing.T) {
	ctx := testContext(t)
	for name, tc := range map[string]struct {
		change []func(*corev1.PodSpec)
		reset  bool
	}{
		"closed":   {[]func(*corev1.PodSpec){closed}, true},
		"plain":    {nil, false},
		"root":     {[]func(*corev1.PodSpec){closed, root}, false},
		"volume":   {[]func(*corev1.PodSpec){closed, scratch("")}, false},
		"shm":      {[]func(*corev1.PodSpec){closed, withSharedMemory}, false},
		"ipc":      {[]func(*corev1.PodSpec){closed, withIPC}, false},
		"open-all": {[]func(*corev1.PodSpec){root, scratch("")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(ctx, t, resets, "residue-"+name, 1, tc.change...)
			first := e.mustClaim(ctx, t, tenantImage)
			left := leaveAll(ctx, t, target{resets, first.GetPod()})
			t.Logf("left: %s", strings.Join(left, ", "))
			if !slices.Contains(left, "process") || !slices.Contains(left, "socket") || !slices.Contains(left, "file /tmp/file") {
				t.Errorf("a tenant could leave no more than %s", strings.Join(left, ", "))
			}
			release(ctx, t, first)
			idle := e.waitWarm(ctx, t)[0]
			if reset := string(idle.UID) == first.GetPodUid(); reset != tc.reset {
				t.Errorf("the Pod was reset: %t, want %t", reset, tc.reset)
			}
			second := e.mustClaim(ctx, t, tenantImage)
			if found := findAll(ctx, t, target{resets, second.GetPod()}); len(found) > 0 {
				t.Errorf("the next tenant finds %s", strings.Join(found, ", "))
			}
			labels := maps.Clone(idle.Labels)
			maps.Copy(labels, idle.Annotations)
			for key, value := range labels {
				if strings.Contains(value, first.GetId()) {
					t.Errorf("the idle Pod carries %s=%s", key, value)
				}
			}
			release(ctx, t, second)
		})
	}
}

func withSharedMemory(spec *corev1.PodSpec) { spec.Containers[0].VolumeMounts = nil }

func withIPC(spec *corev1.PodSpec) { spec.SecurityContext.Sysctls = nil }
