// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/version"
	"navix.sh/atoll/worker/internal/identity"
	"navix.sh/atoll/worker/internal/sync"
)

// identityOptions configure how the worker gets its certificate.
type identityOptions struct {
	files     link.Files // for the hub and the other replicas; if empty, the hub issues it
	tokenFile string
	dir       string
}

func (o *identityOptions) bind(flags *pflag.FlagSet) {
	flags.StringVar(&o.files.Cert, "tls-cert-file", "",
		"PEM certificate for the link, of this cluster; with its key and CAs it is used as it is, and the hub does not renew it")
	flags.StringVar(&o.files.Key, "tls-key-file", "", "PEM key of that certificate")
	flags.StringVar(&o.files.CA, "tls-ca-file", "", "PEM certificates of the CAs that the hub's certificate may come from")
	flags.StringVar(&o.tokenFile, "token-file", "",
		"file of the invitation with which this cluster joins its federation, see atollctl cluster invite; it is used once, and a new one "+
			"takes effect without a restart")
	flags.StringVar(&o.dir, "identity-dir", "",
		"directory of the key and the certificate that the hub issues; without it they are in Secret "+identity.SecretName+" of --namespace")
}

// fromFiles reports whether the certificate comes from files.
func (o *identityOptions) fromFiles() bool { return o.files != link.Files{} }

func (o *identityOptions) validate(hub string, peers bool) error {
	var errs []error
	complete := o.files.Cert != "" && o.files.Key != "" && o.files.CA != ""
	const want = "--tls-cert-file, --tls-key-file and --tls-ca-file"
	switch {
	case hub != "" && o.fromFiles() && !complete:
		errs = append(errs, errors.New("--hub needs "+want+", or none of them and a --token-file"))
	case hub == "" && peers && !complete:
		errs = append(errs, errors.New("--peer-listen needs "+want+", or a --hub that issues a certificate"))
	}
	if o.fromFiles() || hub == "" {
		for _, f := range []struct{ flag, value string }{{"--token-file", o.tokenFile}, {"--identity-dir", o.dir}} {
			switch {
			case f.value == "":
			case o.fromFiles():
				errs = append(errs, fmt.Errorf("%s %q is not valid together with --tls-cert-file, whose certificate is used", f.flag, f.value))
			default:
				errs = append(errs, fmt.Errorf("%s %q is not valid without --hub", f.flag, f.value))
			}
		}
	}
	return errors.Join(errs...)
}

// issued holds an assembly's identity and credentials.
type issued struct {
	identity    *identity.Identity // nil if the certificate comes from files, or there is none
	credentials *link.Credentials  // nil until loaded
	syncer      atomic.Pointer[sync.Syncer]
}

// addIdentity reads the identity that the hub has issued, and watches it for changes.
func (w *assembly) addIdentity(ctx context.Context) (err error) {
	if w.hub.address == "" || w.certificate.fromFiles() {
		return nil
	}
	log := w.log.WithName("identity")
	w.issued.identity, err = identity.New(identity.Options{
		ClusterID: w.clusterID, Version: version.String(), Store: w.identityStore(), TokenFile: w.certificate.tokenFile, ClusterUID: w.clusterUID,
		Clock: w.local, Metrics: w.registry, Log: log,
		Changed: func() {
			if s := w.issued.syncer.Load(); s != nil {
				s.CauseChanged()
			}
		},
	})
	if err != nil {
		return err
	}
	if err := w.issued.identity.Load(ctx); err != nil {
		log.Error(err, "Cannot use the identity that is stored; starting without it")
	}
	w.issued.credentials = link.AwaitCredentials(w.issued.identity, w.log.WithName("link"))
	if err := w.mgr.Add(w.issued.identity); err != nil {
		return fmt.Errorf("adding the identity: %w", err)
	}
	return nil
}

// loadCredentials returns the credentials for the link and between replicas.
func (w *assembly) loadCredentials() (*link.Credentials, error) {
	if w.issued.credentials != nil {
		return w.issued.credentials, nil
	}
	return link.LoadCredentials(w.certificate.files, w.log.WithName("link"))
}

// checkIdentity rejects a certificate from files that belongs to another cluster.
func (w *assembly) checkIdentity(credentials *link.Credentials) error {
	if w.issued.identity != nil {
		return nil
	}
	if who, err := credentials.Identity(); err != nil || who.ClusterID != w.clusterID {
		return fmt.Errorf("--tls-cert-file is a certificate of %s, not of --cluster-id %s: %w", who, w.clusterID,
			errors.Join(err, link.ErrIdentity))
	}
	return nil
}

// cause returns why this cluster is out of its federation, or "".
func (w *assembly) cause() string {
	if w.issued.identity == nil {
		return ""
	}
	return w.issued.identity.Cause()
}

// registerCause registers a metric that reports whether there is a cause.
func (w *assembly) registerCause() error {
	return w.registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "atoll_worker_hub_refused",
		Help: "Whether this cluster is out of its federation because of its identity (1): the hub does not accept it, or it has none.",
	}, func() float64 {
		if w.cause() != "" {
			return 1
		}
		return 0
	}))
}

// clusterUID returns the uid of the namespace kube-system.
func (w *assembly) clusterUID(ctx context.Context) (string, error) {
	ns := &corev1.Namespace{}
	if err := w.mgr.Manager.GetAPIReader().Get(ctx, types.NamespacedName{Name: "kube-system"}, ns); err != nil {
		return "", fmt.Errorf("reading the cluster's uid: %w", err)
	}
	return string(ns.UID), nil
}
