// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"k8s.io/client-go/rest"

	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/link/pki"
	"navix.sh/atoll/pkg/verify"
)

// Namespace is the workers' namespace in their clusters, and the hub's in its own.
const Namespace = "atoll-system"

// Cluster is a Kubernetes cluster with a worker.
type Cluster interface {
	// Kubeconfig is the path of the cluster administrator's kubeconfig.
	Kubeconfig() string
	// Config is a client configuration for the cluster administrator.
	Config() *rest.Config
	// Kubectl runs kubectl as cluster administrator and returns what it printed to standard output.
	Kubectl(ctx context.Context, args ...string) (string, error)
	// KubectlInput is Kubectl with standard input, for "apply -f -".
	KubectlInput(ctx context.Context, stdin io.Reader, args ...string) (string, error)
	// Pause freezes the API server: connections are accepted and kept, and get no response.
	Pause() error
	// Resume ends Pause.
	Resume() error
}

// Program is a hub or a worker. It can be started again after its end, with the same settings and addresses. Methods must not
// be called concurrently.
type Program interface {
	fmt.Stringer
	// Start runs the program and returns when it is ready, or fails when it has ended.
	Start(ctx context.Context) error
	// Kill ends the program like a crash. It stays down.
	Kill() error
	// Stop asks the program to end and waits for it. It stays down.
	Stop() error
	// Pause freezes the program: its connections stay open and get no response.
	Pause() error
	// Resume ends Pause.
	Resume() error
	// Ended reports whether the program is down.
	Ended() bool
	// LogPath is the file with the program's log, over all its starts.
	LogPath() string
}

// Options configure a Stack. BinDir is required.
type Options struct {
	// BinDir holds atoll-hub, atoll-worker and atollctl for this machine.
	BinDir string
	// LogDir receives the programs' logs. Default: a folder that is removed with the stack.
	LogDir string
	// Log receives progress, a line at a time.
	Log io.Writer
	// HubAddress is where this machine reaches the NodePort of the hub's public API on kind, as the cluster's configuration
	// maps it. Default: the one in kind-configs/hub.yaml.
	HubAddress string
	// Version is the version that Install installs. Default: the charts of this checkout, with images tagged ImageTag.
	Version Version
	// Replicas is the number of each worker's replicas for Install. Default 1: a frozen or dead worker must leave its cluster
	// without one, or faults would have no effect.
	Replicas int
	// Hubs is the number of the hub's replicas on planes, which share an etcd; default 1, without one.
	Hubs int
	// Invited makes the hub on planes a CA of its own, which each cluster joins by an invitation; without it all certificates come from files.
	Invited bool
	// Later are clusters on planes whose worker Join starts, instead of Start.
	Later []string
	// HubArgs and WorkerArgs are added to the command lines.
	HubArgs, WorkerArgs []string
	// E2B has hub and workers on planes serve E2B clients, with one key, see Stack.E2BURL.
	E2B bool
	// TokenFile holds the API key by which HubClient calls the hub on planes, where HubArgs make that ask for one.
	TokenFile string
	// Via, if set, returns on planes the address to dial for a connection, so that a proxy can be put in it.
	Via func(Connection) (address string, err error)
	// Env, if set, adds to the environment of a program on planes: the hub or a worker, by its name in a Connection.
	Env func(program string) []string
}

// Connection is one that a part of the stack opens repeatedly.
type Connection struct {
	// From is Hub, Caller or a cluster for its worker. A further worker of a cluster is named by the cluster, "+" and the
	// number of such a worker, from 2.
	From string
	// To is Hub, API or Link of the hub, or a cluster for its API server.
	To string
	// Address that would be dialled.
	Address string
}

// Ends of connections other than clusters.
const (
	Hub    = "hub"
	Caller = "caller"
	API    = "hub's api"
	Link   = "hub's link"
)

// Stack is a hub and one worker for every cluster.
type Stack struct {
	// Hub of the federation; of several replicas all, started and ended as one.
	Hub Program

	hubs, etcd    []Program // of several replicas
	etcdEndpoints []string
	linkAddresses string
	replicas      map[string]Endpoint // of the public API of each
	gossip        []string            // address of each
	ids           []string
	clusters      map[string]Cluster
	workers       map[string]Program
	endpoints     map[string]Endpoint // "" is the hub's
	certs         map[string]link.Files
	opts          Options
	dir           string
	hubData       string
	e2b           map[string]string // addresses for E2B clients; "" is the hub's
	metrics       map[string]string // URLs, by program, where this machine reaches them
	passing       map[string]string // the same of programs created by WorkerAs, which may end
	clients       []io.Closer
	platform      platform

	mu     sync.Mutex
	looked *verify.Federation // for Verify; nil before its first call
}

// platform runs programs.
type platform interface {
	// workerAs creates another worker, see Stack.WorkerAs.
	workerAs(cluster, clusterID, certificateOf string) (Program, error)
	// upgradeHub and upgradeWorker change to another version, see Stack.UpgradeHub.
	upgradeHub(ctx context.Context, to Version) error
	upgradeWorker(ctx context.Context, cluster string, to Version) error
	// join starts a worker, see Stack.Join.
	join(ctx context.Context, cluster string) error
	// close ends what must not outlive the Stack.
	close() error
}

// newStack prepares the folders of a Stack.
func newStack(dir string, opts Options) (*Stack, error) {
	s := &Stack{
		opts: opts, dir: dir, clusters: map[string]Cluster{}, workers: map[string]Program{},
		endpoints: map[string]Endpoint{}, certs: map[string]link.Files{}, e2b: map[string]string{},
		metrics: map[string]string{}, passing: map[string]string{},
	}
	if s.opts.LogDir == "" {
		s.opts.LogDir = filepath.Join(dir, "logs")
	}
	for _, dir := range []string{s.dir, s.opts.LogDir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("creating a folder of the stack: %w", err)
		}
	}
	return s, nil
}

// writeCertificates creates a CA, a certificate for the hub under these names, and one for every cluster.
func (s *Stack) writeCertificates(hubHosts ...string) error {
	authority, err := pki.New(s.PKI())
	if err != nil {
		return fmt.Errorf("making the federation's CA: %w", err)
	}
	if s.certs[""], err = authority.Hub(hubHosts...); err != nil {
		return fmt.Errorf("making the hub's certificate: %w", err)
	}
	for _, id := range s.ids {
		if s.certs[id], err = authority.Cluster(id); err != nil {
			return fmt.Errorf("making the certificate of %s: %w", id, err)
		}
	}
	return nil
}

// HubCA is the file of the CA of the hub's certificate.
func (s *Stack) HubCA() string { return s.certs[""].CA }

// HubData is the hub's data folder, empty where this machine cannot see it.
func (s *Stack) HubData() string { return s.hubData }

// WorkerKubeconfig is the kubeconfig file that a worker on planes reads when it starts.
func (s *Stack) WorkerKubeconfig(cluster string) string {
	return filepath.Join(s.dir, cluster+".kubeconfig")
}

// Hubs returns the hub's replicas, where there are several.
func (s *Stack) Hubs() []Program { return s.hubs }

// Gossip returns the addresses at which the hub's replicas gossip, where there are several.
func (s *Stack) Gossip() []string { return s.gossip }

// Etcd returns the members of the etcd that they share.
func (s *Stack) Etcd() []Program { return s.etcd }

// EtcdEndpoints are the URLs of these, which take the hub's certificate.
func (s *Stack) EtcdEndpoints() []string { return s.etcdEndpoints }

// LinkAddresses returns where workers dial the hub on planes: host:port, with commas between those of several replicas.
func (s *Stack) LinkAddresses() string { return s.linkAddresses }

// Clusters returns the ids of all clusters, in order.
func (s *Stack) Clusters() []string { return s.ids }

// Cluster returns the cluster of an id.
func (s *Stack) Cluster(id string) Cluster { return s.clusters[id] }

// Worker returns the worker of a cluster.
func (s *Stack) Worker(cluster string) Program { return s.workers[cluster] }

// WorkerAs prepares, without starting it, another worker in a cluster, under any name and with any cluster's certificate. It
// shares the lease with the cluster's own worker. Only one such worker of a cluster and name may run at a time. WorkerClient
// finds the cluster's first such worker as CLUSTER+2, the next as CLUSTER+3.
func (s *Stack) WorkerAs(cluster, clusterID, certificateOf string) (Program, error) {
	return s.platform.workerAs(cluster, clusterID, certificateOf)
}

// UpgradeHub replaces the hub with another version, later or earlier, and returns when that is ready. There is one hub, so
// callers have none for a moment.
func (s *Stack) UpgradeHub(ctx context.Context, to Version) error {
	if err := s.platform.upgradeHub(ctx, to); err != nil {
		return fmt.Errorf("taking the hub to %s: %w", to.Name, err)
	}
	return nil
}

// UpgradeWorker replaces a cluster's worker with another version, and returns when all replicas are of that version and ready.
// A new replica starts before an old one ends.
func (s *Stack) UpgradeWorker(ctx context.Context, cluster string, to Version) error {
	if err := s.platform.upgradeWorker(ctx, cluster, to); err != nil {
		return fmt.Errorf("taking the worker of %s to %s: %w", cluster, to.Name, err)
	}
	return nil
}

// HubEndpoint is the endpoint of the hub's public API.
func (s *Stack) HubEndpoint() Endpoint { return s.endpoints[""] }

// WorkerEndpoint is the endpoint of a worker's local API.
func (s *Stack) WorkerEndpoint(cluster string) Endpoint { return s.endpoints[cluster] }

// E2BURL is where E2B clients reach the hub, or the worker of a cluster (Options.E2B): E2B_API_URL and E2B_SANDBOX_URL.
func (s *Stack) E2BURL(cluster string) string { return "http://" + s.e2b[cluster] }

// MetricsURLs returns where this machine reaches the metrics of each program: the hub, and a worker by its cluster.
func (s *Stack) MetricsURLs() map[string]string { return maps.Clone(s.metrics) }

// Metrics returns the metrics of a program as text: a worker by its cluster, "hub", or a worker of WorkerAs by its name.
func (s *Stack) Metrics(ctx context.Context, program string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.MetricsURL(program), nil)
	if err != nil {
		return "", fmt.Errorf("asking %s for metrics: %w", program, err)
	}
	request.Close = true
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", fmt.Errorf("asking %s for metrics: %w", program, err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}

// SumMetrics adds up the series of a program's metrics whose text begins with begin, such as "go_goroutines " or "name{".
func (s *Stack) SumMetrics(ctx context.Context, program, begin string) (all float64, err error) {
	text, err := s.Metrics(ctx, program)
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, begin) {
			value, wrong := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' ')+1:]), 64)
			all, err = all+value, errors.Join(err, wrong)
		}
	}
	return all, err
}

// MetricsURL is where this machine reads the metrics of a program, see Metrics.
func (s *Stack) MetricsURL(program string) string {
	return cmp.Or(s.metrics[program], s.passing[program])
}

// PKI is the folder of the CA that signs the certificates of clusters.
func (s *Stack) PKI() string { return filepath.Join(s.dir, "pki") }

// Issue issues a certificate for another cluster of the federation.
func (s *Stack) Issue(clusterID string) (link.Files, error) {
	authority, err := pki.Open(s.PKI())
	if err != nil {
		return link.Files{}, err
	}
	return authority.Cluster(clusterID)
}

// Certificate holds the files of a cluster's certificate; "" is the hub.
func (s *Stack) Certificate(cluster string) link.Files { return s.certs[cluster] }

// LogDir holds the programs' logs.
func (s *Stack) LogDir() string { return s.opts.LogDir }

// Close closes the stack's clients, and ends what must not outlive it. Planes may be taken down without it.
func (s *Stack) Close() error {
	errs := make([]error, 0, len(s.clients)+1)
	for _, c := range s.clients {
		errs = append(errs, c.Close())
	}
	return errors.Join(append(errs, s.platform.close())...)
}
