// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/tools/clientcmd"

	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/ports"
	"navix.sh/atoll/pkg/link"
)

// planes runs programs as processes of this machine.
type planes struct {
	stack *Stack
	set   *plane.Set
	link  string // address of the hub's link; of several replicas a list

	processes map[string]*process // workers by cluster; "" is the hub, if it is one
	hubs      together            // the hub, if it is several replicas
	etcd      together            // of them
	further   int                 // workers made by workerAs
	disks     int                 // of workers
}

// Start runs hub and workers on planes and returns when all are ready. A cluster has the id of its plane. If it fails, the
// caller still takes down the set.
func Start(ctx context.Context, set *plane.Set, opts Options) (*Stack, error) {
	s, err := newStack(filepath.Join(set.Dir(), "atoll"), opts)
	if err != nil {
		return nil, err
	}
	p := &planes{stack: s, set: set, processes: map[string]*process{}}
	s.platform = p
	for _, member := range set.Planes() {
		s.ids = append(s.ids, member.Name)
		s.clusters[member.Name] = member
	}
	if err := s.writeCertificates("127.0.0.1", "localhost"); err != nil {
		return nil, err
	}
	if opts.Hubs > 1 {
		err = p.prepareHubs(opts.Hubs)
	} else {
		err = p.prepareHub()
	}
	if err != nil {
		return nil, err
	}
	if err := p.etcd.Start(ctx); err != nil {
		return nil, err
	}
	if err := s.Hub.Start(ctx); err != nil {
		return nil, err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	for _, member := range set.Planes() {
		if slices.Contains(opts.Later, member.Name) {
			continue
		}
		if err := s.Invite(ctx, member.Name); err != nil {
			return nil, errors.Join(err, group.Wait())
		}
		worker, err := p.prepareWorker(member.Name, opts.BinDir)
		if err != nil {
			return nil, errors.Join(err, group.Wait())
		}
		group.Go(func() error { return p.startWorker(groupCtx, member, worker) })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return s, nil
}

func (p *planes) prepareHub() error {
	addresses, err := ports.Free(5)
	if err != nil {
		return err
	}
	data := filepath.Join(p.stack.dir, "hub")
	if err := os.MkdirAll(data, 0o700); err != nil {
		return fmt.Errorf("creating the hub's folder: %w", err)
	}
	p.link, p.stack.linkAddresses, p.stack.hubData = addresses[1], addresses[1], data
	public, err := p.via(Connection{From: Caller, To: API, Address: addresses[0]})
	if err != nil {
		return err
	}
	hub := &process{
		env:  p.env(Hub),
		name: "hub", log: filepath.Join(p.stack.opts.LogDir, "hub.log"), set: p.set,
		path: filepath.Join(p.stack.opts.BinDir, "atoll-hub"), health: addresses[3],
		args: append([]string{
			"--listen=" + addresses[0], "--link-listen=" + p.link,
			"--metrics-listen=" + addresses[2], "--health-listen=" + addresses[3], "--data-dir=" + data,
		}, append(p.certificateFlags(""), p.stack.opts.HubArgs...)...),
	}
	if p.stack.opts.E2B {
		key, err := p.e2bKey()
		if err != nil {
			return err
		}
		hub.args, p.stack.e2b[""] = slices.Insert(hub.args, 0, key, "--e2b-listen="+addresses[4]), addresses[4]
	}
	p.processes[""], p.stack.Hub, p.stack.endpoints[""] = hub, hub, Endpoint{Address: public, TokenFile: p.stack.opts.TokenFile}
	p.stack.metrics["hub"] = metricsURL(addresses[2])
	return nil
}

func (p *planes) prepareWorker(cluster, binDir string) (*process, error) {
	addresses, err := ports.Free(4)
	if err != nil {
		return nil, err
	}
	s := p.stack
	history, err := p.historyFlags(cluster, filepath.Join(binDir, "atoll-worker"))
	if err != nil {
		return nil, err
	}
	hub, err := p.viaEach(Connection{From: cluster, To: Link, Address: p.link})
	if err != nil {
		return nil, err
	}
	worker := &process{
		env:  p.env(cluster),
		name: "worker " + cluster, log: filepath.Join(s.opts.LogDir, "worker-"+cluster+".log"), set: p.set,
		path: filepath.Join(binDir, "atoll-worker"), health: addresses[2],
		args: append([]string{
			"--cluster-id=" + cluster, "--hub=" + hub, "--kubeconfig=" + p.stack.WorkerKubeconfig(cluster),
			"--listen=" + addresses[0], "--metrics-listen=" + addresses[1], "--health-listen=" + addresses[2],
		}, slices.Concat(p.certificateFlags(cluster), history, s.opts.WorkerArgs)...),
	}
	if s.opts.E2B {
		key, err := p.e2bKey()
		if err != nil {
			return nil, err
		}
		worker.args, s.e2b[cluster] = slices.Insert(worker.args, 0, key, "--e2b-listen="+addresses[3]), addresses[3]
	}
	p.processes[cluster], s.workers[cluster], s.endpoints[cluster] = worker, worker, Endpoint{Address: addresses[0]}
	s.metrics[cluster] = metricsURL(addresses[1])
	return worker, nil
}

// historyFlags give a worker its own disk, and replicas access to it. A program from before the history lacks these flags.
func (p *planes) historyFlags(cluster, program string) ([]string, error) {
	help, err := exec.Command(program, "--help").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("asking %s for its flags: %w\n%s", program, err, help)
	}
	if !strings.Contains(string(help), "--peer-listen") {
		return nil, nil
	}
	addresses, err := ports.Free(1)
	if err != nil {
		return nil, err
	}
	p.disks++
	return []string{
		"--data-dir=" + filepath.Join(p.stack.dir, fmt.Sprintf("worker-%s-%d", cluster, p.disks)),
		"--peer-listen=" + addresses[0], "--peer-address=" + addresses[0],
	}, nil
}

func metricsURL(address string) string { return "http://" + address + "/metrics" }

// startWorker applies the chart's RBAC and admission policies and runs the worker under its ServiceAccount.
func (p *planes) startWorker(ctx context.Context, member *plane.Plane, worker *process) error {
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	if out, err := member.Kubectl(ctx, "apply", "--server-side", "-f", filepath.Join(root, "charts", "worker", "files", "rbac")); err != nil {
		return fmt.Errorf("applying the worker's RBAC in %s: %w\n%s", member.Name, err, out)
	}
	if p.stack.opts.Invited {
		if err := Apply(ctx, member, emptyIdentity, "--server-side"); err != nil {
			return fmt.Errorf("making the Secret of the identity in %s: %w", member.Name, err)
		}
	}
	policies, err := admissionPolicies(root, member.Name)
	if err != nil {
		return err
	}
	if err := Apply(ctx, member, policies, "--server-side"); err != nil {
		return fmt.Errorf("applying the admission policies in %s: %w", member.Name, err)
	}
	kubeconfig, err := member.ServiceAccountKubeconfig(ctx, Namespace, "atoll-worker")
	if err != nil {
		return fmt.Errorf("making the worker's kubeconfig in %s: %w", member.Name, err)
	}
	if err := errors.Join(p.placeKubeconfig(kubeconfig, member, member.Name), os.Remove(kubeconfig)); err != nil {
		return err
	}
	return worker.Start(ctx)
}

// placeKubeconfig gives a worker a kubeconfig with another one's credentials.
func (p *planes) placeKubeconfig(from string, member *plane.Plane, worker string) error {
	config, err := clientcmd.LoadFromFile(from)
	if err != nil {
		return fmt.Errorf("reading back a kubeconfig: %w", err)
	}
	server, err := url.Parse(member.Config().Host)
	if err != nil {
		return fmt.Errorf("reading the address of %s: %w", member.Name, err)
	}
	if server.Host, err = p.via(Connection{From: worker, To: member.Name, Address: server.Host}); err != nil {
		return err
	}
	for _, cluster := range config.Clusters {
		cluster.Server = server.String()
	}
	if err := clientcmd.WriteToFile(*config, p.stack.WorkerKubeconfig(worker)); err != nil {
		return fmt.Errorf("placing the kubeconfig of worker %s: %w", worker, err)
	}
	return nil
}

// via returns the address to dial for a connection.
func (p *planes) via(c Connection) (string, error) {
	if p.stack.opts.Via == nil {
		return c.Address, nil
	}
	address, err := p.stack.opts.Via(c)
	if err != nil {
		return "", fmt.Errorf("coming between %s and %s: %w", c.From, c.To, err)
	}
	return address, nil
}

// viaEach is via for a list of addresses.
func (p *planes) viaEach(c Connection) (string, error) {
	var out []string
	for address := range strings.SplitSeq(c.Address, ",") {
		through, err := p.via(Connection{From: c.From, To: c.To, Address: address})
		if err != nil {
			return "", err
		}
		out = append(out, through)
	}
	return strings.Join(out, ","), nil
}

func (p *planes) env(program string) []string {
	if p.stack.opts.Env == nil {
		return nil
	}
	return p.stack.opts.Env(program)
}

// admissionPolicies returns the files of a cluster's admission policies, rendered from the worker's chart.
func admissionPolicies(root, clusterID string) (string, error) {
	paths, err := filepath.Glob(filepath.Join(root, "charts", "worker", "files", "policies", "*.yaml"))
	if err != nil || len(paths) == 0 {
		return "", errors.Join(err, fmt.Errorf("found %d admission policies", len(paths)))
	}
	var documents []string
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			return "", fmt.Errorf("reading an admission policy: %w", err)
		}
		documents = append(documents, strings.ReplaceAll(string(content), "CLUSTER_ID", clusterID))
	}
	return strings.Join(documents, "\n---\n"), nil
}

func (p *planes) workerAs(cluster, clusterID, certificateOf string) (Program, error) {
	addresses, err := ports.Free(3)
	if err != nil {
		return nil, err
	}
	own := p.processes[cluster]
	p.further++
	worker := fmt.Sprintf("%s+%d", cluster, p.further+1)
	if err := p.placeKubeconfig(p.stack.WorkerKubeconfig(cluster), p.set.Plane(cluster), worker); err != nil {
		return nil, err
	}
	hub, err := p.viaEach(Connection{From: worker, To: Link, Address: p.link})
	if err != nil {
		return nil, err
	}
	history, err := p.historyFlags(cluster, own.path)
	if err != nil {
		return nil, err
	}
	p.stack.endpoints[worker] = Endpoint{Address: addresses[0]}
	name := "worker of " + cluster + " as " + clusterID + " with certificate of " + certificateOf
	p.stack.passing[name] = metricsURL(addresses[1])
	return &process{
		env:  p.env(worker),
		name: name,
		log:  filepath.Join(p.stack.opts.LogDir, "worker-"+cluster+"-as-"+clusterID+"-cert-"+certificateOf+".log"),
		set:  p.set, path: own.path, health: addresses[2],
		// The last of repeated flags counts.
		args: slices.Concat(own.args, tlsFlags(p.stack.certs[certificateOf]), history, []string{
			"--cluster-id=" + clusterID, "--hub=" + hub, "--kubeconfig=" + p.stack.WorkerKubeconfig(worker),
			"--listen=" + addresses[0], "--metrics-listen=" + addresses[1], "--health-listen=" + addresses[2],
		}),
	}, nil
}

func (p *planes) upgradeHub(ctx context.Context, to Version) error {
	if len(p.hubs) > 0 {
		return p.upgradeHubs(ctx, to)
	}
	return p.stack.UpgradeReplica(ctx, p.processes[""], to)
}

// upgradeWorker starts the new worker, which waits for the lease, before it stops the old one. Both write the same log.
func (p *planes) upgradeWorker(ctx context.Context, cluster string, to Version) error {
	old := p.processes[cluster]
	worker, err := p.prepareWorker(cluster, to.BinDir)
	if err != nil {
		return err
	}
	if err := worker.Start(ctx); err != nil {
		return err
	}
	return old.Stop()
}

// close stops the programs in order. It returns an error for a program that had ended before.
func (p *planes) close() error {
	var errs []error
	for _, proc := range slices.Concat(slices.Collect(maps.Values(p.processes)), p.hubs, p.etcd) {
		switch {
		case !proc.Ended():
			errs = append(errs, proc.Resume(), proc.Stop())
		case proc.Kill() == nil: // nothing else had ended it
			errs = append(errs, fmt.Errorf("%s has ended by itself\n%s", proc.name, proc.lastWords()))
		}
	}
	return errors.Join(errs...)
}

func tlsFlags(files link.Files) []string {
	return []string{"--tls-cert-file=" + files.Cert, "--tls-key-file=" + files.Key, "--tls-ca-file=" + files.CA}
}

var errNotPlanes = errors.New("only a hub on planes takes other arguments")

// SetHubArgs replaces Options.HubArgs for the next start of the hub, which is stopped.
func (s *Stack) SetHubArgs(args ...string) error {
	p, ok := s.platform.(*planes)
	if !ok {
		return errNotPlanes
	}
	hub := p.processes[""]
	hub.args = append(slices.Clone(hub.args[:len(hub.args)-len(s.opts.HubArgs)]), args...)
	s.opts.HubArgs = args
	return nil
}
