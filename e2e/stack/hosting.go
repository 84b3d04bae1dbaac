// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"navix.sh/atoll/e2e/charts/harness"
	"navix.sh/atoll/e2e/ports"
)

// hostingAccount is the ServiceAccount of the chart's release for hosted workers.
const hostingAccount = "hosting"

// hostedLabel marks the Secrets with kubeconfigs, and idLabel names their clusters.
const (
	hostedLabel = "sigs.k8s.io/multicluster-runtime-kubeconfig"
	idLabel     = "agentbox.navix.sh/cluster-id"
)

// Hosting prepares replicas, without starting them, of a process that hosts workers. Their kubeconfigs are Secrets of a cluster, which
// the worker's chart gives its rights for that. Options.Invited must be set.
func (s *Stack) Hosting(ctx context.Context, cluster string, replicas int) ([]Program, error) {
	return s.hosting(ctx, cluster, hostingAccount, "provider: kubeconfig", []string{"--provider=kubeconfig"}, replicas)
}

// HostingClusterAPI prepares one, for the Clusters of Cluster API in a namespace of the cluster.
func (s *Stack) HostingClusterAPI(ctx context.Context, cluster, namespace string) (Program, error) {
	replicas, err := s.hosting(ctx, cluster, hostingAccount+"-capi", "provider: cluster-api, namespace: "+namespace,
		[]string{"--provider=cluster-api", "--provider-namespace=" + namespace}, 1)
	if err != nil {
		return nil, err
	}
	return replicas[0], nil
}

// hosting prepares replicas of a release of the worker's chart, whose values of hosted are given, and the flags that these become.
func (s *Stack) hosting(ctx context.Context, cluster, release, hosted string, flags []string, replicas int) ([]Program, error) {
	p := s.platform.(*planes)
	helm, err := harness.New(ctx, filepath.Join(s.dir, "helm"))
	if err != nil {
		return nil, err
	}
	objects, err := helm.Template(ctx, harness.Release{
		Name: release, Namespace: Namespace, Chart: helm.Chart("worker"),
		Values: "{fullnameOverride: " + release + ", hosted: {enabled: true, " + hosted + "}, hub: {address: " + p.link + "}}",
	})
	if err != nil {
		return nil, err
	}
	var rights harness.Objects
	for _, o := range objects {
		switch o.GetKind() {
		case "ServiceAccount", "Role", "RoleBinding":
			rights = append(rights, o)
		}
	}
	manifest, err := rights.Manifest()
	if err != nil {
		return nil, err
	}
	member := p.set.Plane(cluster)
	if err := Apply(ctx, member, manifest, "--server-side"); err != nil {
		return nil, fmt.Errorf("giving hosting workers their rights in %s: %w", cluster, err)
	}
	kubeconfig, err := member.ServiceAccountKubeconfig(ctx, Namespace, release)
	if err != nil {
		return nil, err
	}
	var out []Program
	for i := range replicas {
		addresses, err := ports.Free(2)
		if err != nil {
			return nil, err
		}
		name := fmt.Sprintf("%s-%d", release, i+1)
		s.passing[name] = metricsURL(addresses[0])
		out = append(out, &process{
			name: name, log: filepath.Join(s.opts.LogDir, name+".log"), set: p.set, env: p.env(name),
			path: filepath.Join(s.opts.BinDir, "atoll-worker"), health: addresses[1],
			args: slices.Concat(flags, []string{
				"--kubeconfig=" + kubeconfig, "--hub=" + p.link, "--token-file=" + s.TokenFile("{cluster}"),
				"--pull-secrets=false", // as the chart has it, and the rights of `cluster rbac`
				"--data-dir=" + filepath.Join(s.dir, name), "--metrics-listen=" + addresses[0], "--health-listen=" + addresses[1],
			}, s.opts.WorkerArgs),
		})
	}
	return out, nil
}

// Host has a cluster of Options.Later served by the workers that another one hosts, as docs/fleets.md says: with its rights, an
// invitation and a Secret of this name.
func (s *Stack) Host(ctx context.Context, hosting, cluster, secret string) error {
	rbac := exec.CommandContext(ctx, filepath.Join(s.opts.BinDir, "atollctl"), "cluster", "rbac", cluster, "--crds", "--policies")
	rights, err := rbac.Output()
	if err != nil {
		return fmt.Errorf("writing the rights of %s: %w", cluster, err)
	}
	if err := Apply(ctx, s.Cluster(cluster), string(rights), "--server-side", "--force-conflicts"); err != nil {
		return fmt.Errorf("giving the hosted worker its rights in %s: %w", cluster, err)
	}
	if err := s.Invite(ctx, cluster); err != nil {
		return err
	}
	return s.HostAs(ctx, hosting, cluster, secret)
}

// HostAs writes the Secret with a cluster's kubeconfig, with new credentials.
func (s *Stack) HostAs(ctx context.Context, hosting, cluster, secret string) error {
	p := s.platform.(*planes)
	path, err := p.set.Plane(cluster).ServiceAccountKubeconfig(ctx, Namespace, "atoll-worker")
	if err != nil {
		return fmt.Errorf("making credentials for %s: %w", cluster, err)
	}
	kubeconfig, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading back a kubeconfig: %w", err)
	}
	manifest, err := yaml.Marshal(&corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: secret, Labels: map[string]string{hostedLabel: "true", idLabel: cluster}},
		Data:       map[string][]byte{"kubeconfig": kubeconfig},
	})
	if err != nil {
		return fmt.Errorf("writing the Secret of %s: %w", cluster, err)
	}
	if err := Apply(ctx, s.Cluster(hosting), string(manifest)); err != nil {
		return fmt.Errorf("placing the kubeconfig of %s: %w", cluster, err)
	}
	return nil
}

// Hosts reports whether a replica of Hosting runs the worker of a cluster.
func (s *Stack) Hosts(ctx context.Context, replica Program, cluster string) (bool, error) {
	text, err := s.Metrics(ctx, replica.String())
	return strings.Contains(text, `cluster="`+cluster+`"`), err
}

// StartOwn starts a worker inside a cluster that is hosted, which has its certificate already.
func (s *Stack) StartOwn(ctx context.Context, cluster string) error {
	return s.platform.join(ctx, cluster)
}

// StopOwn stops it.
func (s *Stack) StopOwn(cluster string) error {
	delete(s.metrics, cluster)
	return s.workers[cluster].Stop()
}
