// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"navix.sh/atoll/e2e/ports"
)

// etcdMembers is how many members the etcd of several hub replicas has.
const etcdMembers = 3

// together are programs that are started and ended as one: all replicas of the hub.
type together []*process

func (t together) String() string { return fmt.Sprintf("%d replicas of the hub", len(t)) }

func (t together) each(do func(*process) error) error {
	var errs []error
	for _, p := range t {
		errs = append(errs, do(p))
	}
	return errors.Join(errs...)
}

func (t together) Start(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, p := range t {
		group.Go(func() error { return p.Start(ctx) })
	}
	return group.Wait()
}

func (t together) Kill() error   { return t.each((*process).Kill) }
func (t together) Stop() error   { return t.each((*process).Stop) }
func (t together) Pause() error  { return t.each((*process).Pause) }
func (t together) Resume() error { return t.each((*process).Resume) }

func (t together) Ended() bool {
	return !slices.ContainsFunc(t, func(p *process) bool { return !p.Ended() })
}

func (t together) LogPath() string { return t[0].LogPath() }

// prepareEtcd prepares an etcd with certificates, for hubs.
func (p *planes) prepareEtcd() (members together, endpoints []string, err error) {
	files := p.stack.certs[""]
	dir := filepath.Join(p.stack.dir, "etcd")
	addresses, err := ports.Free(3 * etcdMembers)
	if err != nil {
		return nil, nil, err
	}
	var initial []string
	for i := range etcdMembers {
		name := fmt.Sprintf("etcd-%d", i)
		client, peer, health := addresses[3*i], addresses[3*i+1], addresses[3*i+2]
		initial = append(initial, name+"=https://"+peer)
		endpoints = append(endpoints, "https://"+client)
		members = append(members, &process{
			name: name, log: filepath.Join(p.stack.opts.LogDir, name+".log"), set: p.set,
			path: filepath.Join(filepath.Dir(p.set.KubectlPath()), "etcd"), health: health,
			args: []string{
				"--name=" + name, "--data-dir=" + filepath.Join(dir, name), "--logger=zap", "--log-level=warn",
				"--listen-client-urls=https://" + client, "--advertise-client-urls=https://" + client,
				"--listen-peer-urls=https://" + peer, "--initial-advertise-peer-urls=https://" + peer,
				"--listen-metrics-urls=http://" + health,
				"--cert-file=" + files.Cert, "--key-file=" + files.Key, "--trusted-ca-file=" + files.CA, "--client-cert-auth",
				"--peer-cert-file=" + files.Cert, "--peer-key-file=" + files.Key, "--peer-trusted-ca-file=" + files.CA, "--peer-client-cert-auth",
			},
		})
	}
	for _, m := range members {
		m.args = append(m.args, "--initial-cluster="+strings.Join(initial, ","))
	}
	return members, endpoints, nil
}

// e2bKey makes the key with which hub and workers seal the tokens of E2B clients, and returns its flag.
func (p *planes) e2bKey() (string, error) {
	path := filepath.Join(p.stack.dir, "e2b-key")
	if _, err := os.Stat(path); err == nil {
		return "--e2b-key-file=" + path, nil
	}
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	if err := os.WriteFile(path, []byte(hex.EncodeToString(key)+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("writing the key for E2B clients: %w", err)
	}
	return "--e2b-key-file=" + path, nil
}

// balance opens one address of several replicas, until the stack is closed.
func (s *Stack) balance(to []string) (*balancer, error) {
	balanced, err := newBalancer(to)
	if err != nil {
		return nil, fmt.Errorf("opening one address for %d replicas: %w", len(to), err)
	}
	s.clients = append(s.clients, balanced)
	return balanced, nil
}

// prepareHubs prepares several replicas on an etcd, and one address for callers.
func (p *planes) prepareHubs(n int) error {
	s := p.stack
	members, endpoints, err := p.prepareEtcd()
	if err != nil {
		return err
	}
	keyring := filepath.Join(s.dir, "gossip-keys")
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	if err := os.WriteFile(keyring, []byte(base64.StdEncoding.EncodeToString(key)+"\n"), 0o600); err != nil {
		return fmt.Errorf("writing the keys of gossip: %w", err)
	}
	const each = 7
	addresses, err := ports.Free(each * n)
	if err != nil {
		return err
	}
	var hubs together
	s.replicas = map[string]Endpoint{}
	var public, links, gossip, clients []string
	forE2B, err := p.e2bKey()
	if err != nil {
		return err
	}
	for i := range n {
		a := addresses[each*i : each*(i+1)]
		public, links, gossip = append(public, a[0]), append(links, a[1]), append(gossip, a[5])
		name := fmt.Sprintf("hub-%d", i)
		data := filepath.Join(s.dir, name)
		if err := os.MkdirAll(data, 0o700); err != nil {
			return fmt.Errorf("creating a hub's folder: %w", err)
		}
		hubs = append(hubs, &process{
			env: p.env(Hub), name: name, log: filepath.Join(s.opts.LogDir, name+".log"), set: p.set,
			path: filepath.Join(s.opts.BinDir, "atoll-hub"), health: a[3],
			args: slices.Concat([]string{
				"--replica-name=" + name, "--data-dir=" + data,
				"--listen=" + a[0], "--link-listen=" + a[1], "--metrics-listen=" + a[2], "--health-listen=" + a[3],
				"--peer-listen=" + a[4], "--gossip-listen=" + a[5], "--gossip-keyring-file=" + keyring,
				"--store=etcd:" + strings.Join(endpoints, ","),
				"--etcd-cert-file=" + s.certs[""].Cert, "--etcd-key-file=" + s.certs[""].Key, "--etcd-ca-file=" + s.certs[""].CA,
			}, tlsFlags(s.certs[""]), s.opts.HubArgs),
		})
		if s.opts.E2B {
			hubs[i].args = slices.Insert(hubs[i].args, 0, forE2B, "--e2b-listen="+a[6])
			clients = append(clients, a[6])
		}
		s.metrics[MetricsName(i)], s.replicas[name] = metricsURL(a[2]), Endpoint{Address: a[0], TokenFile: s.opts.TokenFile}
	}
	s.gossip = gossip
	for i, hub := range hubs {
		hub.args = append(hub.args, "--join="+strings.Join(slices.Delete(slices.Clone(gossip), i, i+1), ","))
		p.hubs, s.hubs = append(p.hubs, hub), append(s.hubs, hub)
	}
	balanced, err := s.balance(public)
	if err != nil {
		return err
	}
	if s.opts.E2B {
		front, err := s.balance(clients)
		if err != nil {
			return err
		}
		s.e2b[""] = front.address()
	}
	p.etcd, s.etcdEndpoints = members, endpoints
	for _, m := range members {
		s.etcd = append(s.etcd, m)
	}
	address, err := p.via(Connection{From: Caller, To: API, Address: balanced.address()})
	if err != nil {
		return err
	}
	s.linkAddresses = strings.Join(links, ",")
	p.link, s.Hub, s.endpoints[""] = s.linkAddresses, hubs, Endpoint{Address: address, TokenFile: s.opts.TokenFile}
	return nil
}

// upgradeHubs replaces one replica after the other.
func (p *planes) upgradeHubs(ctx context.Context, to Version) error {
	for _, hub := range p.hubs {
		if err := p.stack.UpgradeReplica(ctx, hub, to); err != nil {
			return err
		}
	}
	return nil
}

// UpgradeReplica replaces one replica of the hub on planes with another version, and returns when that is ready. It may be the only one.
func (s *Stack) UpgradeReplica(ctx context.Context, replica Program, to Version) error {
	hub, ok := replica.(*process)
	if !ok {
		return fmt.Errorf("%s is no process of this machine", replica)
	}
	if err := hub.Stop(); err != nil {
		return err
	}
	hub.path = filepath.Join(to.BinDir, "atoll-hub")
	return hub.Start(ctx)
}

// MetricsName is the name of a replica in Stack.Metrics: the first is "hub".
func MetricsName(i int) string {
	if i == 0 {
		return Hub
	}
	return fmt.Sprintf("hub-%d", i)
}
