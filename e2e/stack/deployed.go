// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/atoll/e2e/wait"
)

// actPatience bounds an operation on a program in a cluster, its end included.
const actPatience = time.Minute

// waitPatience bounds every wait for a program, whatever its caller's context.
const waitPatience = 10 * time.Minute

// deployed is a program that a chart installed, with one replica.
type deployed struct {
	name      string
	workload  string // kind/name
	container string
	selector  string
	member    *member
	logs      *follower
	// reachable waits, after the Pod is ready, until callers can reach it.
	reachable func(context.Context) error
	down      atomic.Bool
}

// deployed returns the program of a workload named after its release, and of a container. It starts to follow the logs.
func (m *member) deployed(name, workload, container, logDir string) *deployed {
	_, release, _ := strings.Cut(workload, "/")
	p := &deployed{
		name: name, workload: workload, container: container, member: m,
		selector: "app.kubernetes.io/instance=" + release,
	}
	p.logs = follow(m.core, p.selector, container, filepath.Join(logDir, strings.ReplaceAll(name, " ", "-")+".log"))
	m.programs = append(m.programs, p)
	return p
}

func (p *deployed) String() string { return p.name }

func (p *deployed) LogPath() string { return p.logs.path }

func (p *deployed) Start(ctx context.Context) error {
	if err := p.scale(ctx, 1); err != nil {
		return err
	}
	p.down.Store(false)
	return p.waitReady(ctx)
}

func (p *deployed) waitReady(ctx context.Context) error {
	err := wait.Until(ctx, waitPatience, p.name+" to be ready", func(ctx context.Context) error {
		pod, err := p.pod(ctx)
		if err != nil {
			return err
		}
		return unready(pod)
	})
	if err != nil {
		return fmt.Errorf("%w\n%s", err, p.member.troubles())
	}
	if p.reachable == nil {
		return nil
	}
	return p.reachable(ctx)
}

// Kill freezes the program, scales its workload to 0, and only then kills it, so that the program cannot react.
func (p *deployed) Kill() error {
	ctx, cancel := context.WithTimeout(context.Background(), actPatience)
	defer cancel()
	pod, id, err := p.running(ctx)
	if err != nil {
		return err
	}
	if err := p.member.Signal(ctx, id, "STOP"); err != nil {
		return err
	}
	if err := p.scale(ctx, 0); err != nil {
		return err
	}
	p.down.Store(true)
	err = wait.Until(ctx, waitPatience, p.name+" to be given up", func(ctx context.Context) error {
		if got, err := p.pod(ctx); err == nil && got.UID == pod.UID {
			return fmt.Errorf("pod %s is not being deleted", got.Name)
		}
		return nil
	})
	if err := errors.Join(err, p.member.Signal(ctx, id, "KILL")); err != nil {
		return err
	}
	return p.waitGone(ctx)
}

// Stop leaves the end to the kubelet.
func (p *deployed) Stop() error {
	if p.down.Load() {
		return fmt.Errorf("%s is not running", p.name)
	}
	ctx, cancel := context.WithTimeout(context.Background(), actPatience)
	defer cancel()
	if err := p.scale(ctx, 0); err != nil {
		return err
	}
	p.down.Store(true)
	return p.waitGone(ctx)
}

func (p *deployed) waitGone(ctx context.Context) error {
	return wait.Until(ctx, waitPatience, p.name+" to be gone", func(ctx context.Context) error {
		pods, err := p.pods(ctx)
		if err == nil && len(pods) > 0 {
			err = fmt.Errorf("pod %s is still there", pods[0].Name)
		}
		return err
	})
}

func (p *deployed) Pause() error { return p.signal("STOP") }

func (p *deployed) Resume() error { return p.signal("CONT") }

func (p *deployed) signal(signal string) error {
	ctx, cancel := context.WithTimeout(context.Background(), actPatience)
	defer cancel()
	_, id, err := p.running(ctx)
	if err != nil {
		return err
	}
	return p.member.Signal(ctx, id, signal)
}

// Ended reports only Kill and Stop; because the kubelet restarts a program that exits.
func (p *deployed) Ended() bool { return p.down.Load() }

func (p *deployed) scale(ctx context.Context, replicas int) error {
	if _, err := p.member.Kubectl(ctx, "--namespace", Namespace, "scale", p.workload, fmt.Sprintf("--replicas=%d", replicas)); err != nil {
		return fmt.Errorf("scaling %s to %d: %w", p.name, replicas, err)
	}
	return nil
}

func (p *deployed) pods(ctx context.Context) ([]corev1.Pod, error) {
	list, err := p.member.core.CoreV1().Pods(Namespace).List(ctx, metav1.ListOptions{LabelSelector: p.selector})
	if err != nil {
		return nil, fmt.Errorf("looking for the Pod of %s: %w", p.name, err)
	}
	return list.Items, nil
}

// pod returns the only Pod that is not being deleted.
func (p *deployed) pod(ctx context.Context) (*corev1.Pod, error) {
	pods, err := p.pods(ctx)
	if err != nil {
		return nil, err
	}
	for i := range pods {
		if pods[i].DeletionTimestamp == nil {
			return &pods[i], nil
		}
	}
	return nil, fmt.Errorf("%s has no Pod", p.name)
}

// unready returns nil for a ready Pod.
func unready(pod *corev1.Pod) error {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("pod %s is not ready", pod.Name)
}

// running waits until the program's container runs; because a kubelet may be about to restart it.
func (p *deployed) running(ctx context.Context) (pod *corev1.Pod, containerID string, err error) {
	if p.down.Load() {
		return nil, "", fmt.Errorf("%s is not running", p.name)
	}
	err = wait.Until(ctx, waitPatience, p.name+" to run", func(ctx context.Context) error {
		if pod, err = p.pod(ctx); err != nil {
			return err
		}
		for _, status := range pod.Status.ContainerStatuses {
			if status.Name == p.container && status.State.Running != nil {
				containerID = status.ContainerID
				return nil
			}
		}
		return fmt.Errorf("container %s of pod %s does not run", p.container, pod.Name)
	})
	return pod, containerID, err
}
