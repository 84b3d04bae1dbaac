// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	daemonTimeout = 10 * time.Second
	daemonName    = "atoll-sandboxd" // of the program, and of the init container that installs it
)

// daemons are processes of atoll-sandboxd, one for each Pod's first container. One starts with the first forward to it, has a folder of its
// own as its home, and runs until another container has taken that one's place, or the plane ends. Where the Pod gets the daemon from an
// init container, its installation and the container's command run as the Pod says.
type daemons struct {
	kubelet *kubelet
	path    string

	mu    sync.Mutex
	byPod map[types.NamespacedName]*daemon
	count int
}

type daemon struct {
	container string // its id
	socket    string
	stop      context.CancelFunc
	err       error
	ready     chan struct{}
}

// socket returns where the daemon of a Pod listens.
func (d *daemons) socket(ctx context.Context, key types.NamespacedName) (string, error) {
	pod, err := d.kubelet.pod(ctx, key)
	if err != nil {
		return "", err
	}
	id := ""
	if len(pod.Status.ContainerStatuses) > 0 {
		id = pod.Status.ContainerStatuses[0].ContainerID
	}
	d.mu.Lock()
	started := d.byPod[key]
	if started == nil || started.container != id {
		if started != nil {
			started.stop()
		}
		d.count++
		// Paths of sockets are short.
		started = &daemon{container: id, ready: make(chan struct{}), socket: filepath.Join(d.kubelet.dir, "d"+strconv.Itoa(d.count))}
		var running context.Context
		running, started.stop = context.WithCancel(d.kubelet.ctx)
		d.byPod[key] = started
		d.kubelet.work.Go(func() { d.run(running, pod, started) })
	}
	d.mu.Unlock()
	select {
	case <-started.ready:
		return started.socket, started.err
	case <-d.kubelet.ctx.Done():
		return "", d.kubelet.ctx.Err()
	}
}

func (d *daemons) run(ctx context.Context, pod *corev1.Pod, started *daemon) {
	defer started.stop()
	home := started.socket + ".home"
	cmd, err := d.command(ctx, pod, home, "--listen=unix:"+started.socket)
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		started.err = fmt.Errorf("starting the daemon of Pod %s: %w", pod.Name, err)
		close(started.ready)
		return
	}
	started.err = d.await(ctx, started.socket)
	close(started.ready)
	_ = cmd.Wait()
}

// command is the daemon as the Pod has it.
func (d *daemons) command(ctx context.Context, pod *corev1.Pod, home, listen string) (*exec.Cmd, error) {
	if err := os.Mkdir(home, 0o700); err != nil {
		return nil, err
	}
	argv, err := d.delivered(ctx, pod, home+".volume", listen)
	if err != nil {
		return nil, err
	}
	if argv == nil {
		argv = []string{d.path, listen}
	}
	return d.process(ctx, home, argv), nil
}

func (d *daemons) process(ctx context.Context, dir string, argv []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Second
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "HOME="+dir)
	d.kubelet.adopt(cmd)
	return cmd
}

// delivered runs the init container that installs the daemon into a volume, and returns the first container's command; nil if there is no
// such init container.
func (d *daemons) delivered(ctx context.Context, pod *corev1.Pod, volume, listen string) ([]string, error) {
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if c.Name != daemonName {
			continue
		}
		main := &pod.Spec.Containers[0]
		at, err := mountOf(main, daemonName)
		if err != nil {
			return nil, err
		}
		from, err := mountOf(c, daemonName)
		switch {
		case err != nil:
			return nil, err
		case len(c.Command) == 0 || len(main.Command) == 0:
			return nil, errors.New("the daemon's containers have no command")
		case !at.ReadOnly:
			return nil, errors.New("the daemon's volume is not read-only")
		}
		if err := os.Mkdir(volume, 0o700); err != nil {
			return nil, err
		}
		install := []string{d.path}
		for _, word := range c.Command[1:] {
			install = append(install, strings.Replace(word, from.MountPath, volume, 1))
		}
		if out, err := d.process(ctx, volume, install).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("installing the daemon: %w: %s", err, out)
		}
		argv := []string{strings.Replace(main.Command[0], at.MountPath, volume, 1), listen}
		return append(append(argv, main.Command[1:]...), main.Args...), nil
	}
	return nil, nil
}

func mountOf(c *corev1.Container, volume string) (*corev1.VolumeMount, error) {
	for i := range c.VolumeMounts {
		if c.VolumeMounts[i].Name == volume {
			return &c.VolumeMounts[i], nil
		}
	}
	return nil, fmt.Errorf("container %s does not mount volume %s", c.Name, volume)
}

func (d *daemons) await(ctx context.Context, socket string) error {
	late := time.NewTimer(daemonTimeout)
	defer late.Stop()
	ticker := time.NewTicker(logPoll)
	defer ticker.Stop()
	for {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ticker.C:
		case <-late.C:
			return fmt.Errorf("waiting for a daemon: %w", err)
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}
