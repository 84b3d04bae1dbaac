// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/worker/internal/identity"
)

// ClusterField is the placeholder for a cluster's id in flags that have a value for each hosted cluster.
const ClusterField = "{cluster}"

// Hosted has the settings that differ for a worker that shares its process with those of other clusters.
type Hosted struct {
	ClusterID string
	Host      string // of the process
	// Metrics receives the worker's metrics, with the label cluster. A registry serves one Run.
	Metrics *prometheus.Registry
	// Identities reads and writes Secrets of the hosting cluster without a cache. If it is nil, --identity-dir is used.
	Identities client.Client
}

// ForCluster returns the options of one hosted worker. The worker serves no address, because its local API would be in the hosting cluster.
func (o *Options) ForCluster(h Hosted) Options {
	out := *o
	out.hosted, out.clusterID = &h, h.ClusterID
	out.listen = listenOptions{metrics: off, health: off}
	out.certificate.tokenFile = strings.ReplaceAll(o.certificate.tokenFile, ClusterField, h.ClusterID)
	if o.certificate.dir != "" {
		out.certificate.dir = filepath.Join(o.certificate.dir, h.ClusterID)
	}
	if o.history.dir != "" {
		out.history.dir = filepath.Join(o.history.dir, h.ClusterID)
	}
	return out
}

// ValidateHosting reports all faults in the options of a process that hosts workers.
func (o *Options) ValidateHosting() error {
	var errs []error
	for _, f := range []struct{ flag, value string }{
		{"--cluster-id", o.clusterID}, {"--peer-listen", o.history.peerListen}, {"--peer-address", o.history.peerAddress},
		{"--tls-cert-file", o.certificate.files.Cert}, {"--tls-key-file", o.certificate.files.Key},
		{"--tls-ca-file", o.certificate.files.CA}, {"--auth", o.listen.access.auth},
		{"--e2b-listen", o.listen.e2b.Listen},
	} {
		if f.value != "" {
			errs = append(errs, fmt.Errorf("%s %q is not valid together with --provider, want it left out: it is one cluster's", f.flag, f.value))
		}
	}
	if file := o.certificate.tokenFile; file != "" && !strings.Contains(file, ClusterField) {
		errs = append(errs, fmt.Errorf("--token-file %q is not valid together with --provider, want a path with %s, which stands for the "+
			"cluster's id",
			file, ClusterField))
	}
	one := o.ForCluster(Hosted{ClusterID: "a"})
	return errors.Join(append(errs, one.Validate())...)
}

// HasIdentityDir reports whether identities are stored in a directory instead of Secrets.
func (o *Options) HasIdentityDir() bool { return o.certificate.dir != "" }

// NeedsIdentity reports whether there is a hub, which requires a certificate of each cluster.
func (o *Options) NeedsIdentity() bool { return o.hub.address != "" }

// Namespace returns the value of --namespace.
func (o *Options) Namespace() string { return o.namespace }

// HostingCluster returns the configuration of the cluster that has the kubeconfigs, the certificates and the leases.
func (o *Options) HostingCluster() (*rest.Config, error) {
	cfg, err := o.Cluster()
	if err != nil {
		return nil, err
	}
	rest.AddUserAgent(cfg, "hosting")
	return cfg, nil
}

// CheckClusterID returns an error that names the valid form if the id is invalid.
func CheckClusterID(id string) error {
	if !link.ValidClusterID(id) {
		return fmt.Errorf("cluster id %q is not valid, want %s", id, clusterIDGrammar)
	}
	return nil
}

// CheckKubeconfig rejects a kubeconfig that makes the process which uses it run a program or read a file.
func CheckKubeconfig(data []byte) error {
	kubeconfig, err := clientcmd.Load(data)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	for name, user := range kubeconfig.AuthInfos {
		if user.Exec != nil || user.AuthProvider != nil {
			return fmt.Errorf("user %q has exec or auth-provider, which run programs here; want a token or a certificate", name)
		}
		if user.TokenFile != "" || user.ClientCertificate != "" || user.ClientKey != "" {
			return fmt.Errorf("user %q names a file; want the data themselves", name)
		}
	}
	for name, cluster := range kubeconfig.Clusters {
		if cluster.CertificateAuthority != "" {
			return fmt.Errorf("cluster %q names a file; want certificate-authority-data", name)
		}
	}
	return nil
}

// ServeProbes serves metrics and health of a process that hosts workers, until ctx ends.
func (o *Options) ServeProbes(ctx context.Context, gatherer prometheus.Gatherer) error {
	alive := map[string]healthz.Checker{"ping": func(*http.Request) error { return nil }}
	servers, err := probeServers(ctx, o.listen, gatherer, alive, alive)
	if err != nil {
		return err
	}
	ended := make(chan error, len(servers))
	for _, s := range servers {
		go func() { ended <- s.Start(ctx) }()
	}
	var errs []error
	for range servers {
		errs = append(errs, <-ended)
	}
	return errors.Join(errs...)
}

// identityStore returns the store of this worker's certificate.
func (w *assembly) identityStore() identity.Store {
	switch {
	case w.certificate.dir != "":
		return identity.Directory(w.certificate.dir)
	case w.hosted != nil:
		name := types.NamespacedName{Namespace: w.namespace, Name: identity.SecretName + "-" + w.clusterID}
		return identity.Secret{Client: w.hosted.Identities, Reader: w.hosted.Identities, Name: name}
	}
	return identity.Secret{
		Client: w.mgr.GetClient(), Reader: w.mgr.Manager.GetAPIReader(),
		Name: types.NamespacedName{Namespace: w.namespace, Name: identity.SecretName},
	}
}

// host returns where a hosted worker runs, or "" if it runs in its own cluster.
func (o *Options) host() string {
	if o.hosted == nil {
		return ""
	}
	return o.hosted.Host
}
