// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/distribution/reference"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"navix.sh/atoll/pkg/audit"
	"navix.sh/atoll/pkg/clip"
	"navix.sh/atoll/pkg/e2b"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/logging"
	"navix.sh/atoll/pkg/reach"
	"navix.sh/atoll/pkg/serve"
	"navix.sh/atoll/pkg/telemetry"
	"navix.sh/atoll/pkg/validate"
	"navix.sh/atoll/pkg/watch"
	"navix.sh/atoll/worker/internal/adoption"
	"navix.sh/atoll/worker/internal/claim"
	"navix.sh/atoll/worker/internal/history"
	"navix.sh/atoll/worker/internal/kubeproxy"
	"navix.sh/atoll/worker/internal/localapi"
	"navix.sh/atoll/worker/internal/netpolicy"
	"navix.sh/atoll/worker/internal/secretenv"
)

// Options are the flags of a worker.
type Options struct {
	clusterID  string
	kubeconfig string
	namespace  string
	// namespaces are those whose Envs and pools are served; empty means all.
	namespaces []string

	hub         hubOptions
	kubernetes  kubernetesOptions
	certificate identityOptions
	listen      listenOptions
	history     historyOptions
	pools       poolOptions
	network     networkOptions

	hosted *Hosted // nil if the worker is alone in its process

	limits  serve.Limits
	watches watch.Limits
	shares  reach.Shares
	web     serve.Web
	logging logging.Flags
	tracing telemetry.Flags
	audit   audit.Flags
}

// hubOptions configure the connection to the hub.
type hubOptions struct {
	address string
	name    string // in its certificate
}

// kubernetesOptions configure the requests of the hub's callers to the API server.
type kubernetesOptions struct {
	serve  bool
	prefix string
}

// listenOptions are the addresses that this process serves.
type listenOptions struct {
	api     string
	e2b     e2b.Flags // for E2B's clients
	access  accessOptions
	metrics string
	health  string
}

// historyOptions configure the records of ended sandboxes, and the replicas that have copies of them.
type historyOptions struct {
	dir         string
	retention   time.Duration
	records     int
	keyFile     string // of encryption keys
	peerListen  string
	peerAddress string
}

// poolOptions configure Envs and pools.
type poolOptions struct {
	pullSecrets   bool
	adopt         adoption.Mode
	foreignLeases []string

	hookSecrets       bool
	sandboxSecrets    []string // that claims may refer to
	refuseCredentials bool     // as text, in hooks

	sandboxd string // image of atoll-sandboxd

	queueCapacity int32
	teamQuotas    bool
}

// networkOptions configure the network of sandboxes.
type networkOptions struct {
	mode   netpolicy.Mode
	egress string // of pools that set none themselves
	from   string // labels of this worker's Pods
}

// on reports whether pools have network policies. An empty mode is off.
func (o *networkOptions) on() bool { return o.mode != "" && o.mode != netpolicy.Off }

// maxNamespaces bounds --namespaces, because each has watches of its own.
const maxNamespaces = 500

const clusterIDGrammar = "1 to 30 of a-z, 0-9 and -, beginning with a letter and not ending with -"

// Bind adds the flags.
func (o *Options) Bind(flags *pflag.FlagSet) {
	flags.StringVar(&o.clusterID, "cluster-id", "",
		"name of this cluster in the federation, which cannot change: "+clusterIDGrammar+" (required)")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig of the cluster (default: the ServiceAccount of the Pod this runs in)")
	flags.StringVar(&o.namespace, "namespace", "atoll-system", "namespace of the worker's lease, state and ServiceAccounts")

	flags.StringSliceVar(&o.namespaces, "namespaces", nil,
		"namespaces whose Envs and pools are served, each with the worker's rights in it; without it all of them, with rights in the whole "+
			"cluster")

	flags.StringVar(&o.hub.address, "hub", "",
		"host:port of the hub's link, or several separated by commas: its replicas, of which one is used at a time, as is one of a name's "+
			"addresses; without it the cluster is served on its own")
	flags.StringVar(&o.hub.name, "hub-name", "", "name to look for in the hub's certificate (default: the host of --hub)")
	o.certificate.bind(flags)
	flags.BoolVar(&o.kubernetes.serve, "serve-kubernetes", false,
		"serve callers of the hub at this cluster's API server, each impersonated; the cluster's RBAC decides what they may do. Requires the "+
			"ServiceAccount "+kubeproxy.ServiceAccount+", which may impersonate")
	flags.StringVar(&o.kubernetes.prefix, "serve-kubernetes-prefix", kubeproxy.DefaultPrefix,
		"what begins the names of impersonated users and groups: "+kubeproxy.ValidPrefix)

	flags.StringVar(&o.listen.api, "listen", localapi.DefaultAddress,
		"address of the local API, gRPC and REST; plain text on loopback, else TLS and only with --auth")
	o.listen.access.bind(flags)
	o.listen.e2b.Bind(flags)
	flags.StringVar(&o.listen.metrics, "metrics-listen", "127.0.0.1:9090", "address of /metrics; 0 is off")
	flags.StringVar(&o.listen.health, "health-listen", "127.0.0.1:8081", "address of /livez and /readyz; 0 is off")
	flags.Int32Var(&o.pools.queueCapacity, "queue-capacity", claim.DefaultQueueCapacity, "how many claims may wait for one pool")
	flags.BoolVar(&o.pools.teamQuotas, "team-quotas", false, "hold teams to the limits in ConfigMap atoll-team-quotas of --namespace")
	flags.BoolVar(&o.pools.pullSecrets, "pull-secrets", true,
		"have the pools of an Env pull images with Secret ips-ENV if there is one, which requires the right to list Secrets (the worker "+
			"keeps only their names)")
	flags.StringVar((*string)(&o.network.mode), "sandbox-network-policy", string(netpolicy.Off),
		"whether each pool gets a NetworkPolicy that opens what its annotation agentbox.navix.sh/egress lists, and nothing else: off, "+
			"kubernetes, or cilium, which knows DNS names")
	flags.StringVar(&o.network.egress, "sandbox-egress", "", "that annotation's value for pools without it")
	flags.StringVar(&o.network.from, "sandbox-network-from", "",
		"labels of this worker's Pods in --namespace, as NAME=VALUE,…, which may connect to sandboxes; without it all Pods there")
	flags.BoolVar(&o.pools.hookSecrets, "hook-secrets", false,
		"let post-start hooks refer to Secrets of their sandbox's namespace that have the label agentbox.navix.sh/hook-secret=true, "+
			"which requires the right to get Secrets")
	flags.StringSliceVar(&o.pools.sandboxSecrets, "sandbox-secrets", nil,
		"NAMESPACE/PATTERN of Secrets whose values claims of that namespace may have in their sandboxes' environment, in which * stands for "+
			"any characters, such as agents/llm-*; requires the right to get Secrets there. Without it claims may refer to none")
	flags.StringVar(&o.pools.sandboxd, "sandboxd-image", "",
		"image of atoll-sandboxd, which Pods of a template with the runtime e2b get from an init container; without it their own images "+
			"bring it")
	flags.BoolVar(&o.pools.refuseCredentials, "refuse-hook-credentials", false, validate.RefuseCredentialsUsage)
	flags.StringVar((*string)(&o.pools.adopt), "adopt-pools", string(adoption.Off),
		"SandboxPools without an Env that get one of their name: off, label (those of the system that the API comes from) or all")
	flags.StringSliceVar(&o.pools.foreignLeases, "rival-leases", nil,
		"NAMESPACE/NAME of the leases of other controllers of the same objects, during a migration; while one is held, and for at "+
			"most a minute after, this worker changes nothing")
	flags.StringVar(&o.history.dir, "data-dir", "", "directory of the history of ended sandboxes; without one it is lost with the process")
	flags.DurationVar(&o.history.retention, "history-retention", history.DefaultRetention, "how long the record of an ended sandbox is kept")
	flags.IntVar(&o.history.records, "history-records", history.DefaultMaxRecords, "how many records of ended sandboxes are kept at most")
	flags.StringVar(&o.history.keyFile, "encryption-key-file", "",
		"YAML file of keys with which the history is encrypted, see atoll-hub encryption-key new; "+
			"the first one encrypts, all decrypt, and a change takes effect without a restart")
	flags.StringVar(&o.history.peerListen, "peer-listen", "",
		"address for the other replicas of this worker, always with mutual TLS; without it they get no copies of the history")
	flags.StringVar(&o.history.peerAddress, "peer-address", "", "host:port at which they reach this one (required with --peer-listen)")
	o.limits.Bind(flags)
	o.watches.Bind(flags)
	o.shares.Bind(flags)
	o.web.Bind(flags)
	o.logging.Bind(flags)
	o.tracing.Bind(flags)
	o.audit = audit.Nowhere() // the hub has the audit of a federation
	o.audit.Bind(flags)
}

func (o *networkOptions) validate() error {
	var errs []error
	if o.mode != "" {
		if _, err := netpolicy.ParseMode(string(o.mode)); err != nil {
			errs = append(errs, fmt.Errorf("--sandbox-network-policy %w", err))
		}
	}
	if _, err := netpolicy.ParseEgress(o.egress); err != nil {
		errs = append(errs, fmt.Errorf("--sandbox-egress: %w", err))
	}
	if _, err := labels.ConvertSelectorToLabelsMap(o.from); err != nil {
		errs = append(errs, fmt.Errorf("--sandbox-network-from %q is not valid, want NAME=VALUE,…: %w", o.from, err))
	}
	return errors.Join(errs...)
}

// Validate reports all faults at once.
func (o *Options) Validate() error {
	var errs []error
	switch {
	case o.clusterID == "":
		errs = append(errs, errors.New("--cluster-id is required"))
	case !link.ValidClusterID(o.clusterID):
		errs = append(errs, fmt.Errorf("--cluster-id %q is not valid, want %s", o.clusterID, clusterIDGrammar))
	}
	if o.namespace == "" {
		errs = append(errs, errors.New("--namespace is required"))
	}
	if len(o.namespaces) > maxNamespaces {
		errs = append(errs, fmt.Errorf("--namespaces lists %d, want %d at most; without it all are served", len(o.namespaces), maxNamespaces))
	}
	for _, namespace := range o.namespaces {
		if faults := validation.IsDNS1123Label(namespace); len(faults) > 0 {
			errs = append(errs, fmt.Errorf("--namespaces %q is not valid, want names of namespaces: %s", clip.Text(namespace, 100), faults[0]))
		}
	}
	if o.pools.queueCapacity < 1 {
		errs = append(errs, fmt.Errorf("--queue-capacity %d is not valid, want 1 or more", o.pools.queueCapacity))
	}
	if o.pools.adopt != "" {
		if _, err := adoption.ParseMode(string(o.pools.adopt)); err != nil {
			errs = append(errs, fmt.Errorf("--adopt-pools %w", err))
		}
	}
	if o.pools.sandboxd != "" {
		if _, err := reference.ParseNormalizedNamed(o.pools.sandboxd); err != nil {
			errs = append(errs, fmt.Errorf(
				"--sandboxd-image %q is not valid, want the name of an image such as registry.example/atoll-sandboxd:v1: %w",
				clip.Text(o.pools.sandboxd, 100), err))
		}
	}
	if _, err := secretenv.ParseRules(o.pools.sandboxSecrets); err != nil {
		errs = append(errs, fmt.Errorf("--sandbox-secrets: %w", err))
	}
	errs = append(errs, o.network.validate(), o.listen.access.validate(o.listen.api), o.validateE2B())
	for _, lease := range o.pools.foreignLeases {
		if namespace, name, ok := strings.Cut(lease, "/"); !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
			errs = append(errs, fmt.Errorf("--rival-leases %q is not valid, want NAMESPACE/NAME", lease))
		}
	}
	if o.history.retention <= 0 {
		errs = append(errs, fmt.Errorf("--history-retention %s is not valid, want more than 0", o.history.retention))
	}
	if o.history.records < 1 {
		errs = append(errs, fmt.Errorf("--history-records %d is not valid, want 1 or more", o.history.records))
	}
	if o.history.peerListen != "" || o.history.peerAddress != "" {
		if _, _, err := net.SplitHostPort(o.history.peerListen); err != nil {
			errs = append(errs, fmt.Errorf("--peer-listen %q is not valid, want host:port or :port", o.history.peerListen))
		}
		if host, _, err := net.SplitHostPort(o.history.peerAddress); err != nil || host == "" {
			errs = append(errs, fmt.Errorf("--peer-address %q is not valid, want host:port, by which other replicas reach this one",
				o.history.peerAddress))
		}
	}
	if o.hub.address != "" {
		if _, err := link.SplitTargets(o.hub.address); err != nil {
			errs = append(errs, fmt.Errorf("--hub: %w", err))
		}
	}
	if err := kubeproxy.CheckPrefix(o.kubernetes.prefix); o.kubernetes.serve && err != nil {
		errs = append(errs, fmt.Errorf("--serve-kubernetes-prefix: %w", err))
	}
	if o.kubernetes.serve && o.hub.address == "" {
		errs = append(errs, errors.New("--serve-kubernetes is of no use without --hub"))
	}
	errs = append(errs, o.certificate.validate(o.hub.address, o.history.peerListen != "" || o.history.peerAddress != ""))
	if o.audit.InDataDirectory() && o.history.dir == "" {
		errs = append(errs, errors.New("--audit: file is not valid without --data-dir, want file:PATH"))
	}
	errs = append(errs, o.audit.Validate())
	return errors.Join(append(errs, o.limits.Validate(), o.watches.Validate(), o.shares.Validate(), o.web.Validate(), o.tracing.Validate())...)
}
