// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

const daemonTimeout = 10 * time.Second

// daemons are processes of atoll-sandboxd, one a Pod. Each starts with the first forward to it, has a folder of its own as its home, and
// runs while the plane does.
type daemons struct {
	kubelet *kubelet
	path    string

	mu    sync.Mutex
	byPod map[string]*daemon
	count int
}

type daemon struct {
	socket string
	err    error
	ready  chan struct{}
}

// socket returns where the daemon of a Pod listens.
func (d *daemons) socket(pod string) (string, error) {
	d.mu.Lock()
	started := d.byPod[pod]
	if started == nil {
		d.count++
		// Paths of sockets are short.
		started = &daemon{ready: make(chan struct{}), socket: filepath.Join(d.kubelet.dir, "d"+strconv.Itoa(d.count))}
		d.byPod[pod] = started
		d.kubelet.work.Go(func() { d.run(pod, started) })
	}
	d.mu.Unlock()
	select {
	case <-started.ready:
		return started.socket, started.err
	case <-d.kubelet.ctx.Done():
		return "", d.kubelet.ctx.Err()
	}
}

func (d *daemons) run(pod string, started *daemon) {
	home := started.socket + ".home"
	cmd := exec.CommandContext(d.kubelet.ctx, d.path, "--listen=unix:"+started.socket)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Second
	cmd.Dir, cmd.Env = home, append(os.Environ(), "HOME="+home)
	d.kubelet.adopt(cmd)
	err := os.Mkdir(home, 0o700)
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		started.err = fmt.Errorf("starting the daemon of Pod %s: %w", pod, err)
		close(started.ready)
		return
	}
	started.err = d.await(started.socket)
	close(started.ready)
	_ = cmd.Wait()
}

func (d *daemons) await(socket string) error {
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
		case <-d.kubelet.ctx.Done():
			return errors.Join(d.kubelet.ctx.Err(), err)
		}
	}
}
