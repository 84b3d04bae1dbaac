// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// follower copies a container's logs, over all its Pods and restarts, into one file; because a kubelet removes a Pod's logs
// with the Pod.
type follower struct {
	path      string
	core      kubernetes.Interface
	selector  string
	container string
	cancel    context.CancelFunc
	done      chan struct{}

	mu   sync.Mutex // of the file
	runs map[string]bool
}

// followInterval is the time between checks for a new Pod or a restart. Its log is complete, however late it is found.
const followInterval = 500 * time.Millisecond

func follow(core kubernetes.Interface, selector, container, path string) *follower {
	ctx, cancel := context.WithCancel(context.Background())
	f := &follower{
		path: path, core: core, selector: selector, container: container, cancel: cancel,
		done: make(chan struct{}), runs: map[string]bool{},
	}
	go f.run(ctx)
	return f
}

// stop ends following. The last moment of the log may be missing.
func (f *follower) stop() {
	f.cancel()
	<-f.done
}

func (f *follower) run(ctx context.Context) {
	defer close(f.done)
	var copies sync.WaitGroup
	defer copies.Wait()
	ticker := time.NewTicker(followInterval)
	defer ticker.Stop()
	for {
		// A failed list is no news: API servers are frozen on purpose.
		pods, err := f.core.CoreV1().Pods(Namespace).List(ctx, metav1.ListOptions{LabelSelector: f.selector})
		if err == nil {
			for i := range pods.Items {
				f.followRuns(ctx, &copies, &pods.Items[i])
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// followRuns copies the logs of the container's new runs.
func (f *follower) followRuns(ctx context.Context, copies *sync.WaitGroup, pod *corev1.Pod) {
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name != f.container || status.ContainerID == "" {
			continue
		}
		previous := fmt.Sprintf("%s/%d", pod.UID, status.RestartCount-1)
		current := fmt.Sprintf("%s/%d", pod.UID, status.RestartCount)
		if status.RestartCount > 0 && !f.runs[previous] {
			f.runs[previous] = true
			copies.Go(func() { f.copy(ctx, pod.Name, true) })
		}
		if !f.runs[current] && (status.State.Running != nil || status.State.Terminated != nil) {
			f.runs[current] = true
			copies.Go(func() { f.copy(ctx, pod.Name, false) })
		}
	}
}

// copy copies the log of one run until that has ended.
func (f *follower) copy(ctx context.Context, pod string, previous bool) {
	since := time.Time{}
	for ctx.Err() == nil {
		options := &corev1.PodLogOptions{Container: f.container, Previous: previous, Follow: !previous}
		if !since.IsZero() {
			from := metav1.NewTime(since)
			options.SinceTime = &from
		}
		stream, err := f.core.CoreV1().Pods(Namespace).GetLogs(pod, options).Stream(ctx)
		if err == nil {
			_, err = io.Copy(writerFunc(f.write), stream)
			_ = stream.Close()
			if err == nil {
				return
			}
			// The connection was lost, not the container. Some lines may be repeated.
			since = time.Now().Add(-time.Second)
			continue
		}
		return
	}
}

func (f *follower) write(p []byte) (n int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	file, err := os.OpenFile(f.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, fmt.Errorf("opening a log: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return file.Write(p)
}

type writerFunc func([]byte) (int, error)

func (w writerFunc) Write(p []byte) (int, error) { return w(p) }
