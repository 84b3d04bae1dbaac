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

// Backup copies etcd's data into dir, which must not be there yet. etcd is frozen meanwhile, so the copy is what a crash at
// this moment would have left: all that it has acknowledged, of which it makes a whole at its next start.
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

// Restore sets etcd back to a Backup, of this plane or of another one, and returns when the API server is ready again.
// What was written since is gone, and resourceVersions are given out a second time.
func (p *Plane) Restore(ctx context.Context, dir string) error {
	// All of them: whoever has seen what is gone now would wait for it.
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

// ServingCertificate is the API server's, for what stands in front of it.
func (p *Plane) ServingCertificate() (tls.Certificate, error) {
	cert, err := tls.LoadX509KeyPair(p.file("apiserver.crt"), p.file("apiserver.key"))
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("reading the API server's certificate: %w", err)
	}
	return cert, nil
}
