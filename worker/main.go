// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"navix.sh/atoll/pkg/clip"
	"navix.sh/atoll/pkg/config"
	"navix.sh/atoll/pkg/heap"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/logging"
	"navix.sh/atoll/pkg/reach"
	"navix.sh/atoll/pkg/serve"
	"navix.sh/atoll/pkg/telemetry"
	"navix.sh/atoll/pkg/validate"
	"navix.sh/atoll/pkg/version"
	"navix.sh/atoll/worker/internal/adoption"
	"navix.sh/atoll/worker/internal/claim"
	"navix.sh/atoll/worker/internal/history"
	"navix.sh/atoll/worker/internal/localapi"
	"navix.sh/atoll/worker/internal/netpolicy"
)

// options are the flags.
type options struct {
	clusterID  string
	kubeconfig string
	namespace  string
	// namespaces are those whose Envs and pools are served; empty: all.
	namespaces []string

	hub     hubOptions
	tls     link.Files // to the hub, and to the other replicas
	listen  listenOptions
	history historyOptions
	pools   poolOptions
	network networkOptions

	queueCapacity int32
	teamQuotas    bool

	limits  serve.Limits
	shares  reach.Shares
	web     serve.Web
	logging logging.Flags
	tracing telemetry.Flags
}

// hubOptions say where the hub is.
type hubOptions struct {
	address string
	name    string // in its certificate
}

// listenOptions are the addresses that this process serves.
type listenOptions struct {
	api     string
	metrics string
	health  string
}

// historyOptions are about the records of ended sandboxes, and the other replicas that have copies of them.
type historyOptions struct {
	dir         string
	retention   time.Duration
	records     int
	keyFile     string // of encryption keys
	peerListen  string
	peerAddress string
}

// poolOptions are about Envs and pools.
type poolOptions struct {
	pullSecrets   bool
	adopt         adoption.Mode
	foreignLeases []string

	hookSecrets       bool
	refuseCredentials bool // as text, in hooks
}

// networkOptions are about the network of sandboxes.
type networkOptions struct {
	mode   netpolicy.Mode
	egress string // of pools that say nothing themselves
	from   string // labels of this worker's Pods
}

// garbage is how much the heap of a worker may grow between collections; because otherwise traffic through tunnels would make it
// grow to several times what claims need.
const garbage = 64 << 20

func main() {
	heap.RelaxWithin(garbage)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "atoll-worker:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:           "atoll-worker --cluster-id ID [--hub HOST:PORT]",
		Short:         "Make this cluster a member of a federation, or serve it on its own",
		Version:       version.String(),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			log, err := o.logging.Logger(os.Stderr)
			if err != nil {
				return err
			}
			ctrl.SetLogger(log)
			klog.SetLogger(log.WithName("client"))
			log = log.WithValues("cluster", o.clusterID)
			return run(logr.NewContext(cmd.Context(), log), o, log)
		},
	}
	o.bind(cmd.Flags())
	config.Bind(cmd)
	return cmd
}

// maxNamespaces bounds --namespaces; because each has watches of its own.
const maxNamespaces = 500

const clusterIDGrammar = "1 to 30 of a-z, 0-9 and -, beginning with a letter and not ending with -"

func (o *options) bind(flags *pflag.FlagSet) {
	flags.StringVar(&o.clusterID, "cluster-id", "", "name of this cluster in the federation, for good: "+clusterIDGrammar+" (required)")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig of the cluster (default: the ServiceAccount of the Pod this runs in)")
	flags.StringVar(&o.namespace, "namespace", "atoll-system", "namespace of the worker's lease, state and ServiceAccounts")

	flags.StringSliceVar(&o.namespaces, "namespaces", nil,
		"namespaces whose Envs and pools are served, each with the worker's rights in it; without it all of them, with rights in the whole "+
			"cluster")

	flags.StringVar(&o.hub.address, "hub", "", "host:port of the hub's link; without it the cluster is served on its own")
	flags.StringVar(&o.hub.name, "hub-name", "", "name to look for in the hub's certificate (default: the host of --hub)")
	flags.StringVar(&o.tls.Cert, "tls-cert-file", "", "PEM certificate for the link, of this cluster")
	flags.StringVar(&o.tls.Key, "tls-key-file", "", "PEM key of that certificate")
	flags.StringVar(&o.tls.CA, "tls-ca-file", "", "PEM certificates of the CAs that the hub's certificate may come from")

	flags.StringVar(&o.listen.api, "listen", localapi.DefaultAddress, "address of the local API, gRPC and REST")
	flags.StringVar(&o.listen.metrics, "metrics-listen", "127.0.0.1:9090", "address of /metrics; 0 is off")
	flags.StringVar(&o.listen.health, "health-listen", "127.0.0.1:8081", "address of /livez and /readyz; 0 is off")
	flags.Int32Var(&o.queueCapacity, "queue-capacity", claim.DefaultQueueCapacity, "how many claims may wait for one pool")
	flags.BoolVar(&o.teamQuotas, "team-quotas", false, "hold teams to the limits in ConfigMap atoll-team-quotas of --namespace")
	flags.BoolVar(&o.pools.pullSecrets, "pull-secrets", true,
		"have the pools of an Env pull images with Secret ips-ENV if there is one, which takes the right to list Secrets (of which names "+
			"alone are kept)")
	flags.StringVar((*string)(&o.network.mode), "sandbox-network-policy", string(netpolicy.Off),
		"whether each pool gets a NetworkPolicy that opens what its annotation agentbox.navix.sh/egress lists, and nothing else: off, "+
			"kubernetes, or cilium, which knows DNS names")
	flags.StringVar(&o.network.egress, "sandbox-egress", "", "that annotation's value for pools without it")
	flags.StringVar(&o.network.from, "sandbox-network-from", "",
		"labels of this worker's Pods in --namespace, as NAME=VALUE,…, which may connect to sandboxes; without it all Pods there")
	flags.BoolVar(&o.pools.hookSecrets, "hook-secrets", false,
		"let post-start hooks refer to Secrets of their sandbox's namespace that have the label agentbox.navix.sh/hook-secret=true, "+
			"which takes the right to get Secrets")
	flags.BoolVar(&o.pools.refuseCredentials, "refuse-hook-credentials", false, validate.RefuseCredentialsUsage)
	flags.StringVar((*string)(&o.pools.adopt), "adopt-pools", string(adoption.Off),
		"SandboxPools without an Env that get one of their name: off, label (those of the system that the API comes from) or all")
	flags.StringSliceVar(&o.pools.foreignLeases, "rival-leases", nil,
		"NAMESPACE/NAME of the leases of other controllers of the same objects, for the time of moving over; while one is held, and for a "+
			"minute after at most, nothing is done here")
	flags.StringVar(&o.history.dir, "data-dir", "", "directory of the history of ended sandboxes; without one it is lost with the process")
	flags.DurationVar(&o.history.retention, "history-retention", history.DefaultRetention, "how long the record of an ended sandbox is kept")
	flags.IntVar(&o.history.records, "history-records", history.DefaultMaxRecords, "how many records of ended sandboxes are kept at most")
	flags.StringVar(&o.history.keyFile, "encryption-key-file", "",
		"YAML file of keys with which the history is encrypted, see atoll-hub encryption-key new; "+
			"the first one encrypts, all decrypt, and a change is taken up")
	flags.StringVar(&o.history.peerListen, "peer-listen", "",
		"address for the other replicas of this worker, always with mutual TLS; without it they get no copies of the history")
	flags.StringVar(&o.history.peerAddress, "peer-address", "", "host:port at which they reach this one (required with --peer-listen)")
	o.limits.Bind(flags)
	o.shares.Bind(flags)
	o.web.Bind(flags)
	o.logging.Bind(flags)
	o.tracing.Bind(flags)
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

// validate reports all faults at once.
func (o *options) validate() error {
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
	if o.queueCapacity < 1 {
		errs = append(errs, fmt.Errorf("--queue-capacity %d is not valid, want 1 or more", o.queueCapacity))
	}
	if o.pools.adopt != "" {
		if _, err := adoption.ParseMode(string(o.pools.adopt)); err != nil {
			errs = append(errs, fmt.Errorf("--adopt-pools %w", err))
		}
	}
	errs = append(errs, o.network.validate())
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
		if o.tls.Cert == "" || o.tls.Key == "" || o.tls.CA == "" {
			errs = append(errs, errors.New("--peer-listen needs --tls-cert-file, --tls-key-file and --tls-ca-file"))
		}
	}
	if o.hub.address != "" {
		if _, _, err := net.SplitHostPort(o.hub.address); err != nil {
			errs = append(errs, fmt.Errorf("--hub %q is not valid, want host:port", o.hub.address))
		}
		if o.tls.Cert == "" || o.tls.Key == "" || o.tls.CA == "" {
			errs = append(errs, errors.New("--hub needs --tls-cert-file, --tls-key-file and --tls-ca-file"))
		}
	}
	return errors.Join(append(errs, o.limits.Validate(), o.shares.Validate(), o.web.Validate(), o.tracing.Validate())...)
}
