// SPDX-License-Identifier: Apache-2.0

// Package etcdtest runs an etcd of one or several members for one test, of the binary that planes use.
package etcdtest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/ports"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/link/pki"
)

// Options are what a test wants of its etcd.
type Options struct {
	Members int  // default 1
	TLS     bool // clients need a certificate of Etcd.Files
	Args    []string
}

// Etcd is a running etcd.
type Etcd struct {
	Files   link.Files // with TLS: a client's certificate, its key, and the CA
	members []*member
	t       testing.TB
}

type member struct {
	client, peer string
	path         string
	args         []string
	dir          string
	cmd          *exec.Cmd
	done         chan struct{}
}

// Start returns an etcd that serves. It ends with the test.
func Start(t testing.TB, o Options) *Etcd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	bin, err := plane.Binaries(ctx, plane.Options{})
	must.Succeed(t, err)
	e := &Etcd{t: t}
	scheme := "http"
	var server link.Files
	if o.TLS {
		scheme = "https"
		ca, err := pki.New(t.TempDir())
		must.Succeed(t, err)
		server, err = ca.Hub("127.0.0.1")
		must.Succeed(t, err)
		e.Files = server
	}
	var initial []string
	for i := range max(1, o.Members) {
		at, err := ports.Free(2)
		must.Succeed(t, err)
		m := &member{
			client: scheme + "://" + at[0], peer: "http://" + at[1],
			path: filepath.Join(bin, "etcd"), dir: t.TempDir(),
		}
		name := fmt.Sprintf("m%d", i)
		m.args = []string{
			"--name=" + name, "--data-dir=" + filepath.Join(m.dir, "data"), "--listen-client-urls=" + m.client,
			"--advertise-client-urls=" + m.client, "--listen-peer-urls=" + m.peer, "--initial-advertise-peer-urls=" + m.peer,
			"--logger=zap", "--log-level=warn",
		}
		if o.TLS {
			m.args = append(m.args, "--cert-file="+server.Cert, "--key-file="+server.Key, "--client-cert-auth", "--trusted-ca-file="+server.CA)
		}
		m.args = append(m.args, o.Args...)
		initial = append(initial, name+"="+m.peer)
		e.members = append(e.members, m)
	}
	for i, m := range e.members {
		m.args = append(m.args, "--initial-cluster="+strings.Join(initial, ","))
		e.Start(i)
	}
	t.Cleanup(func() {
		for i := range e.members {
			e.Stop(i)
		}
	})
	for _, m := range e.members {
		wait.For(t, time.Minute, "etcd to listen at "+m.client, func(context.Context) error {
			if e.ended(m) {
				log, _ := os.ReadFile(filepath.Join(m.dir, "log"))
				t.Fatalf("etcd ended: %s", bytes.TrimSpace(log))
			}
			conn, err := net.DialTimeout("tcp", strings.TrimPrefix(m.client, scheme+"://"), time.Second)
			if err == nil {
				_ = conn.Close()
			}
			return err
		})
	}
	return e
}

// Endpoints are the URLs for clients.
func (e *Etcd) Endpoints() (urls []string) {
	for _, m := range e.members {
		urls = append(urls, m.client)
	}
	return urls
}

// Start starts a member that was stopped, on its data.
func (e *Etcd) Start(i int) {
	e.t.Helper()
	m := e.members[i]
	log, err := os.OpenFile(filepath.Join(m.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must.Succeed(e.t, err)
	defer log.Close()
	m.cmd = exec.Command(m.path, m.args...)
	m.cmd.Dir, m.cmd.Stdout, m.cmd.Stderr = m.dir, log, log
	m.cmd.Env = []string{"HOME=" + m.dir, "PATH=" + os.Getenv("PATH")}
	m.cmd.SysProcAttr = attributes()
	must.Succeed(e.t, m.cmd.Start())
	done := make(chan struct{})
	m.done = done
	go func(cmd *exec.Cmd) {
		_ = cmd.Wait()
		close(done)
	}(m.cmd)
}

func (e *Etcd) ended(m *member) bool {
	select {
	case <-m.done:
		return true
	default:
		return false
	}
}

// Stop kills a member.
func (e *Etcd) Stop(i int) {
	m := e.members[i]
	if m.cmd == nil {
		return
	}
	_ = m.cmd.Process.Kill()
	<-m.done
	m.cmd = nil
}

// Freeze stops a member's process without its end; its connections stay.
func (e *Etcd) Freeze(i int) {
	e.t.Helper()
	must.Succeed(e.t, e.members[i].cmd.Process.Signal(syscall.SIGSTOP))
}

// Thaw continues a frozen member.
func (e *Etcd) Thaw(i int) {
	e.t.Helper()
	must.Succeed(e.t, e.members[i].cmd.Process.Signal(syscall.SIGCONT))
}

// Backup copies the data of a single member, frozen meanwhile, into a new directory.
func (e *Etcd) Backup(dir string) {
	e.t.Helper()
	e.Freeze(0)
	err := os.CopyFS(dir, os.DirFS(filepath.Join(e.members[0].dir, "data")))
	e.Thaw(0)
	must.Succeed(e.t, err)
}

// Restore sets a single member back to a backup.
func (e *Etcd) Restore(dir string) {
	e.t.Helper()
	e.Stop(0)
	data := filepath.Join(e.members[0].dir, "data")
	must.Succeed(e.t, os.RemoveAll(data))
	must.Succeed(e.t, os.CopyFS(data, os.DirFS(dir)))
	e.Start(0)
}
