// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/ports"
)

// startHubs starts a hub: one replica with a store of its own, or several on an etcd of one member, which fsyncs as bbolt does. Calls go to
// each replica in turn. adjust may change how each is started.
func (b *bench) startHubs(ctx context.Context, name string, n int, adjust func(*program)) (*federation, error) {
	s, err := b.atSite()
	if err != nil {
		return nil, err
	}
	f := &federation{site: s, data: filepath.Join(s.dir, name)}
	if n == 1 {
		err = b.addReplica(f, name, []string{"--data-dir", f.data}, adjust)
	} else {
		err = b.addReplicas(ctx, f, name, n, adjust)
	}
	if err != nil {
		return nil, err
	}
	if err := f.call(); err != nil {
		return nil, err
	}
	if f.etcd != nil {
		err = f.etcd.start(ctx)
	}
	for _, one := range f.replicas {
		if err == nil {
			err = one.start(ctx)
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

// addReplicas prepares n processes of the hub and their etcd.
func (b *bench) addReplicas(ctx context.Context, f *federation, name string, n int, adjust func(*program)) error {
	bin, err := plane.Binaries(ctx, plane.Options{Log: b.out})
	if err != nil {
		return fmt.Errorf("finding etcd: %w", err)
	}
	addresses, err := ports.Free(2 + 2*n)
	if err != nil {
		return err
	}
	client, member, rest := addresses[0], addresses[1], addresses[2:]
	f.etcd = &program{path: filepath.Join(bin, "etcd"), link: client, log: filepath.Join(b.logDir(), name+"-etcd.log"), args: []string{
		"--name=etcd", "--data-dir=" + f.data, "--log-level=warn", "--listen-client-urls=http://" + client,
		"--advertise-client-urls=http://" + client, "--listen-peer-urls=http://" + member, "--initial-advertise-peer-urls=http://" + member,
		"--initial-cluster=etcd=http://" + member,
	}}
	peers, gossip := rest[:n], rest[n:]
	for i := range n {
		replica := replicaName(i)
		if err := b.addReplica(f, name+"-"+replica, []string{
			"--replica-name", replica, "--peer-listen", peers[i], "--gossip-listen", gossip[i],
			"--join", strings.Join(slices.Concat(gossip[:i], gossip[i+1:]), ","), "--store", "etcd:http://" + client,
		}, adjust); err != nil {
			return err
		}
	}
	return nil
}

// removeLogs removes those of an earlier run of these hubs; because a program that is started again adds to its log.
func (b *bench) removeLogs(name string) error {
	for _, pattern := range []string{".log", "-etcd.log", "-hub-*.log"} {
		old, err := filepath.Glob(filepath.Join(b.logDir(), name+pattern))
		if err != nil {
			return fmt.Errorf("looking for old logs: %w", err)
		}
		for _, one := range old {
			if err := os.Remove(one); err != nil {
				return fmt.Errorf("removing an old log: %w", err)
			}
		}
	}
	return nil
}

func replicaName(i int) string { return fmt.Sprintf("hub-%d", i) }
