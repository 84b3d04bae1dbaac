// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"

	"navix.sh/atoll/pkg/audit"
	"navix.sh/atoll/pkg/kubeaccess"
	"navix.sh/atoll/pkg/serve"
	"navix.sh/atoll/pkg/telemetry"
	"navix.sh/atoll/pkg/version"
	"navix.sh/atoll/worker/internal/localapi"
)

// authKubernetes authenticates callers of the local API by the cluster's tokens.
const authKubernetes = "kubernetes"

// accessOptions configure who may call the local API.
type accessOptions struct {
	auth      string
	cert, key string
	audiences []string
	ttl       time.Duration
}

func (o *accessOptions) bind(flags *pflag.FlagSet) {
	flags.StringVar(&o.auth, "auth", "",
		"how callers of the local API are authenticated: "+authKubernetes+" (tokens that the cluster knows; its RBAC permits); default: "+
			"they are "+
			"not, on loopback")
	flags.StringVar(&o.cert, "local-tls-cert-file", "", "PEM certificate of the local API; a change takes effect without a restart")
	flags.StringVar(&o.key, "local-tls-key-file", "", "PEM key of that certificate")
	flags.StringSliceVar(&o.audiences, "auth-kubernetes-audiences", nil,
		"audiences of which a token has one, so that one for the API server is none for the worker; default: the API server's")
	flags.DurationVar(&o.ttl, "auth-kubernetes-ttl", kubeaccess.DefaultTTL,
		"how long what the cluster has permitted is cached, and what it has not, a third of it")
}

func (o *accessOptions) validate(listen string) error {
	var errs []error
	if o.auth != "" && o.auth != authKubernetes {
		errs = append(errs, fmt.Errorf("--auth %q is not valid, want %s", o.auth, authKubernetes))
	}
	if (o.cert == "") != (o.key == "") {
		errs = append(errs, errors.New("--local-tls-cert-file and --local-tls-key-file are needed together"))
	}
	if err := serve.CheckLoopback(listen); listen != "" && err != nil && (o.auth == "" || o.cert == "") {
		errs = append(errs, fmt.Errorf("--listen: %w (--auth %s with --local-tls-cert-file)", err, authKubernetes))
	}
	if o.auth != "" && (o.ttl < time.Second || o.ttl > 10*time.Minute) {
		errs = append(errs, fmt.Errorf("--auth-kubernetes-ttl %s is not valid, want 1s to 10m", o.ttl))
	}
	return errors.Join(errs...)
}

// guard configures how callers of the local API are authenticated, by the flags.
func (w *assembly) guard(opts *localapi.Options) error {
	o := w.listen.access
	if o.auth != "" {
		cluster, err := kubeaccess.New(kubeaccess.Options{
			Config: w.cfg, Audiences: o.audiences, TTL: o.ttl, Log: w.log.WithName("access"),
		})
		if err != nil {
			return err
		}
		opts.Gate = &localapi.Gate{Who: cluster, May: cluster}
	}
	if o.cert != "" {
		files, err := certwatcher.New(o.cert, o.key)
		if err != nil {
			return fmt.Errorf("--local-tls-cert-file: %w", err)
		}
		if err := w.mgr.Add(files); err != nil {
			return fmt.Errorf("watching --local-tls-cert-file: %w", err)
		}
		opts.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: files.GetCertificate}
	}
	return nil
}

// openAudit opens the audit log of the local API. It ends with ctx.
func (w *assembly) openAudit(ctx context.Context) (*audit.Log, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("naming this replica in the audit: %w", err)
	}
	log, err := w.audit.Open(ctx, audit.Environment{
		DataDir: w.history.dir, Replica: w.clusterID + "/" + host, Clock: clock.RealClock{}, Metrics: w.registry, Prefix: "atoll_worker",
		Log: w.log.WithName("audit"),
		OTLP: func(ctx context.Context) (audit.Sink, error) {
			logs, err := w.tracing.OpenLogs(ctx, telemetry.Service{Name: "atoll-worker", Version: version.String(), ClusterID: w.clusterID})
			if err != nil {
				return nil, err
			}
			return audit.Collector(logs), nil
		},
	})
	if err != nil || log == nil {
		return nil, err
	}
	err = w.mgr.Add(flushing{log})
	return log, err
}

// flushing writes the last lines when the worker ends. It runs in followers as well.
type flushing struct{ audit *audit.Log }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (flushing) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (f flushing) Start(ctx context.Context) error {
	<-ctx.Done()
	return f.audit.Close()
}
