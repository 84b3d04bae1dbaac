// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
)

// Backup copies etcd's data into dir, which must not exist yet. etcd is frozen meanwhile, so the copy equals the state after a
// crash: it has all acknowledged writes, and etcd repairs it at its next start.
func (p *Plane) Backup(dir string) error {
	if err := p.etcd().signal(syscall.SIGSTOP); err != nil {
		return err
	}
	err := os.CopyFS(dir, os.DirFS(p.file("etcd")))
	if err := errors.Join(err, p.etcd().signal(syscall.SIGCONT)); err != nil {
		return fmt.Errorf("backing up etcd: %w", err)
	}
	return nil
}

// Restore resets etcd to a Backup, of this plane or of another one, and returns when the API server is ready. Later writes are
// lost, and resourceVersions are assigned a second time.
func (p *Plane) Restore(ctx context.Context, dir string) error {
	// All of them: a component that has seen a later revision would wait for it.
	for i := len(p.procs) - 1; i >= 0; i-- {
		p.procs[i].stop()
	}
	if err := errors.Join(os.RemoveAll(p.file("etcd")), os.CopyFS(p.file("etcd"), os.DirFS(dir))); err != nil {
		return fmt.Errorf("restoring etcd: %w", err)
	}
	for _, proc := range p.procs[:2] {
		if err := proc.start(); err != nil {
			return err
		}
	}
	if err := p.waitReady(ctx); err != nil {
		return err
	}
	for _, proc := range slices.Concat(p.procs[2:4], p.procs[ownProcesses:]) {
		if err := proc.start(); err != nil {
			return err
		}
	}
	return p.restartKwok()
}

// ServingCertificate is the API server's, for proxies in front of it.
func (p *Plane) ServingCertificate() (tls.Certificate, error) {
	cert, err := tls.LoadX509KeyPair(p.file("apiserver.crt"), p.file("apiserver.key"))
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("reading the API server's certificate: %w", err)
	}
	return cert, nil
}
