// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"navix.sh/atoll/e2e/charts/harness"
	"navix.sh/atoll/e2e/kind"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/link"
)

// Ports of the hub's node. kind-configs/hub.yaml maps the first to this machine's loopback.
const (
	apiNodePort  = 30080
	linkNodePort = 30443
	localAPIPort = 8082
)

// charts runs programs as installed by the charts.
type charts struct {
	stack   *Stack
	helm    *harness.Helm
	members map[string]*member
	hub     *deployed
	hubAt   string // host and port of the hub's link, for workers
	keys    []byte // the hub's API keys file
}

// member is a cluster and its installed releases.
type member struct {
	*kind.Cluster
	core     kubernetes.Interface
	programs []*deployed
}

// Install installs the hub in the first cluster and a worker in each, by their charts, and returns when all are ready. Images
// from BuildImages must have been loaded. ids are the clusters' ids in the federation. If it fails, the caller still takes down
// the set.
func Install(ctx context.Context, set *kind.Set, ids []string, opts Options) (*Stack, error) {
	dir, err := os.MkdirTemp("", "atoll-stack-")
	if err != nil {
		return nil, fmt.Errorf("creating a folder for the stack: %w", err)
	}
	s, err := newStack(dir, opts)
	if err != nil {
		return nil, err
	}
	c := &charts{stack: s, members: map[string]*member{}}
	s.platform, s.ids = c, ids
	if err := c.install(ctx, set); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (c *charts) install(ctx context.Context, set *kind.Set) (err error) {
	s := c.stack
	if c.helm, err = harness.New(ctx, filepath.Join(s.dir, "helm")); err != nil {
		return err
	}
	for i, cluster := range set.Clusters() {
		core, err := kubernetes.NewForConfig(cluster.Config())
		if err != nil {
			return fmt.Errorf("building a client of %s: %w", cluster.Name, err)
		}
		m := &member{Cluster: cluster, core: core}
		c.members[s.ids[i]], s.clusters[s.ids[i]] = m, m
	}
	hub := c.members[s.ids[0]]
	c.hubAt = net.JoinHostPort(hub.Node(), fmt.Sprint(linkNodePort))
	if err := s.writeCertificates("127.0.0.1", "localhost", hub.Node()); err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	for _, m := range c.members {
		group.Go(func() error { return m.empty(groupCtx) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if err := c.installHub(ctx, hub); err != nil {
		return fmt.Errorf("installing the hub in %s: %w", hub.Name, err)
	}
	group, groupCtx = errgroup.WithContext(ctx)
	for id, m := range c.members {
		s.endpoints[id] = c.localEndpoint(id, m)
		worker := m.deployed("worker "+id, "deployment/atoll-worker", "worker", s.opts.LogDir)
		s.workers[id] = worker
		group.Go(func() error {
			if err := c.installWorker(groupCtx, id, m, worker); err != nil {
				return fmt.Errorf("installing the worker in %s: %w", m.Name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// empty creates the namespace. In a reused cluster it first removes an earlier run's objects.
func (m *member) empty(ctx context.Context) error {
	if _, err := m.Kubectl(ctx, "delete", "namespace", Namespace, "--ignore-not-found", "--wait"); err != nil {
		return fmt.Errorf("removing what an earlier run left in %s: %w", m.Name, err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace}}
	if _, err := m.core.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating namespace %s in %s: %w", Namespace, m.Name, err)
	}
	return nil
}

func (c *charts) installHub(ctx context.Context, m *member) error {
	keys, err := c.apiKey(ctx)
	if err != nil {
		return err
	}
	if err := m.tlsSecret(ctx, "atoll-hub-tls", c.stack.certs[""]); err != nil {
		return err
	}
	if c.stack.opts.Version.Name != "" {
		if keys, err = withoutAll(keys); err != nil {
			return err
		}
	}
	if err := m.secret(ctx, "atoll-hub-api-keys", map[string][]byte{"keys.yaml": keys}); err != nil {
		return err
	}
	if err := c.helmRun(ctx, m, c.helm.In(m.Kubeconfig()).Install, c.hubRelease(c.stack.opts.Version)); err != nil {
		return err
	}
	endpoint := Endpoint{
		Address: cmp.Or(c.stack.opts.HubAddress, net.JoinHostPort("127.0.0.1", fmt.Sprint(apiNodePort))), CAFile: c.stack.certs[""].CA,
		TokenFile: c.tokenFile(),
	}
	hub := m.deployed("hub", "statefulset/atoll-hub", "hub", c.stack.opts.LogDir)
	hub.reachable = endpoint.answers
	c.hub, c.stack.Hub, c.stack.endpoints[""] = hub, hub, endpoint
	return hub.waitReady(ctx)
}

// release is a helm release, before its values are encoded.
type release struct {
	name, chart string
	values      map[string]any
}

func (c *charts) hubRelease(v Version) release {
	return release{"atoll-hub", c.chart("hub", v), map[string]any{
		"image":     map[string]any{"tag": cmp.Or(v.Name, ImageTag)},
		"extraArgs": c.stack.opts.HubArgs,
		"service": map[string]any{
			"api":  map[string]any{"type": "NodePort", "nodePort": apiNodePort},
			"link": map[string]any{"type": "NodePort", "nodePort": linkNodePort},
		},
		// Provisioners of host paths differ in the owner of a volume.
		"persistence": map[string]any{"takeOwnership": true},
	}}
}

func (c *charts) workerRelease(cluster string, v Version) release {
	return release{"atoll-worker", c.chart("worker", v), map[string]any{
		"clusterID": cluster,
		"image":     map[string]any{"tag": cmp.Or(v.Name, ImageTag)},
		"hub":       map[string]any{"address": c.hubAt},
		"replicas":  cmp.Or(c.stack.opts.Replicas, 1),
		"extraArgs": c.stack.opts.WorkerArgs,
	}}
}

// chart returns the folder of a version's chart.
func (c *charts) chart(name string, v Version) string {
	if v.Source == "" {
		return c.helm.Chart(name)
	}
	return filepath.Join(v.Source, "charts", name)
}

// answers polls until the endpoint responds: a Service follows its Pods with a delay.
func (e Endpoint) answers(ctx context.Context) error {
	client, err := e.HTTPClient()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	client.Timeout = 2 * time.Second
	return wait.Until(ctx, waitPatience, e.URL()+" to respond", func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, e.URL()+"/v1/clusters", nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return errors.New(response.Status)
		}
		return nil
	})
}

func (c *charts) tokenFile() string { return filepath.Join(c.stack.dir, "token") }

// withoutAll converts a keys file to that of an earlier version, in which an empty team or list meant all.
func withoutAll(keys []byte) ([]byte, error) {
	var file map[string][]map[string]any
	if err := yaml.Unmarshal(keys, &file); err != nil {
		return nil, fmt.Errorf("reading the API keys: %w", err)
	}
	for _, key := range file["keys"] {
		delete(key, "allTeams")
		delete(key, "allNamespaces")
	}
	return yaml.Marshal(file)
}

// apiKey creates a key with all permissions, keeps the token, and returns the hub's keys file for it.
func (c *charts) apiKey(ctx context.Context) ([]byte, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(c.stack.opts.BinDir, "atoll-hub"),
		"api-key", "new", "--name", "e2e", "--all", "--scopes", "admin", "--token-file", c.tokenFile())
	keys, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("making an API key: %w", err)
	}
	c.keys = keys
	return keys, nil
}

func (c *charts) installWorker(ctx context.Context, id string, m *member, worker *deployed) error {
	if err := m.tlsSecret(ctx, "atoll-worker-tls", c.stack.certs[id]); err != nil {
		return err
	}
	if err := c.helmRun(ctx, m, c.helm.In(m.Kubeconfig()).Install, c.workerRelease(id, c.stack.opts.Version)); err != nil {
		return err
	}
	return worker.waitReady(ctx)
}

// renewKeys replaces the keys file with one of this version. A running hub of an earlier version keeps the keys it has read.
func (c *charts) renewKeys(ctx context.Context, m *member) error {
	secrets := m.core.CoreV1().Secrets(Namespace)
	secret, err := secrets.Get(ctx, "atoll-hub-api-keys", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading the API keys: %w", err)
	}
	secret.Data["keys.yaml"] = c.keys
	if _, err := secrets.Update(ctx, secret, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("writing the API keys: %w", err)
	}
	return nil
}

func (c *charts) upgradeHub(ctx context.Context, to Version) error {
	m := c.hub.member
	if err := c.renewKeys(ctx, m); err != nil {
		return err
	}
	if err := c.helmRun(ctx, m, c.helm.In(m.Kubeconfig()).Upgrade, c.hubRelease(to)); err != nil {
		return err
	}
	return c.hub.waitReady(ctx)
}

func (c *charts) upgradeWorker(ctx context.Context, cluster string, to Version) error {
	m := c.members[cluster]
	return c.helmRun(ctx, m, c.helm.In(m.Kubeconfig()).Upgrade, c.workerRelease(cluster, to))
}

// helmRun installs or upgrades a release.
func (c *charts) helmRun(
	ctx context.Context, m *member, run func(context.Context, harness.Release, ...string) (string, error), r release,
) error {
	content, err := yaml.Marshal(r.values)
	if err != nil {
		return fmt.Errorf("encoding values: %w", err)
	}
	if _, err := run(ctx, harness.Release{Name: r.name, Namespace: Namespace, Chart: r.chart, Values: string(content)}); err != nil {
		return fmt.Errorf("%w\n%s", err, m.troubles())
	}
	return nil
}

// troubles returns the cluster's reports of Pods that do not start, for errors.
func (m *member) troubles() string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := m.Kubectl(ctx, "--namespace", Namespace, "get", "pods,events", "-o", "wide")
	return out + errorText(err)
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func (m *member) tlsSecret(ctx context.Context, name string, files link.Files) error {
	data := map[string][]byte{}
	for key, path := range map[string]string{"tls.crt": files.Cert, "tls.key": files.Key, "ca.crt": files.CA} {
		content, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("reading a certificate: %w", err)
		}
		data[key] = content
	}
	return m.secret(ctx, name, data)
}

func (m *member) secret(ctx context.Context, name string, data map[string][]byte) error {
	object := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace}, Data: data}
	if _, err := m.core.CoreV1().Secrets(Namespace).Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating Secret %s: %w", name, err)
	}
	return nil
}

// localEndpoint is a worker's local API: on the loopback of any ready Pod.
func (c *charts) localEndpoint(id string, m *member) Endpoint {
	return Endpoint{
		Address: "worker-" + id,
		dial: func(ctx context.Context, _ string) (net.Conn, error) {
			worker, ok := c.stack.workers[id].(*deployed)
			if !ok {
				return nil, fmt.Errorf("no worker in %s", id)
			}
			pod, err := worker.pod(ctx)
			if err != nil {
				return nil, err
			}
			return m.Dial(ctx, Namespace, pod.Name, localAPIPort)
		},
	}
}

func (c *charts) close() error {
	for _, m := range c.members {
		for _, program := range m.programs {
			program.logs.stop()
		}
	}
	return os.RemoveAll(c.stack.dir)
}
