// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"

	"navix.sh/atoll/hub/internal/claims"
	"navix.sh/atoll/hub/internal/fleet"
	"navix.sh/atoll/hub/internal/registrycopy"
	"navix.sh/atoll/pkg/audit"
	"navix.sh/atoll/pkg/durable"
	"navix.sh/atoll/pkg/hubstate"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/reach"
	"navix.sh/atoll/pkg/serve"
	"navix.sh/atoll/pkg/telemetry"
	"navix.sh/atoll/pkg/validate"
	"navix.sh/atoll/pkg/watch"
)

type options struct {
	listen, linkListen, metricsListen, healthListen string

	dataDir, store string
	registryCopy   string
	encryptionKeys string
	etcd           hubstate.EtcdFlags

	refuseCredentials bool
	authOptions
	tls       link.Files
	retention time.Duration
	quota     claims.Quota
	lockWait  time.Duration
	limits    serve.Limits
	watches   watch.Limits
	shares    reach.Shares
	rates     reach.Rates // in MiB
	web       serve.Web
	cluster   fleet.Limits
	tracing   telemetry.Flags
	audit     audit.Flags
	replicas  replicaOptions
	joining   joinOptions
	e2b       e2bOptions
	mcp       mcpOptions

	catalog       catalogOptions
	clustersProxy bool
	allotments    bool
}

func (o *options) bind(flags *pflag.FlagSet) {
	flags.StringVar(&o.listen, "listen", "127.0.0.1:8080",
		"address of the public API, gRPC and REST; plain text on loopback, else TLS and only with --auth or a file of keys")
	flags.StringVar(&o.linkListen, "link-listen", ":8443", "address that workers dial, always with mutual TLS")
	flags.StringVar(&o.metricsListen, "metrics-listen", "127.0.0.1:9090", "address of /metrics")
	flags.StringVar(&o.healthListen, "health-listen", "127.0.0.1:8081", "address of /livez and /readyz")
	flags.StringVar(&o.dataDir, "data-dir", "/var/lib/atoll-hub", "directory of everything the hub keeps; with etcd, of backups in progress")
	flags.StringVar(&o.store, "store", "",
		"where claims and registry are: bbolt:DIRECTORY, for one replica, or etcd:URL,URL, for several; default: bbolt in the data directory")
	o.etcd.Bind(flags)
	flags.StringVar(&o.registryCopy, "registry-copy", "",
		"where, apart from the data directory, to keep which clusters are registered, so that a "+
			"hub which lost its volume waits for their claim keys: file:PATH, secret:NAME (of the Pod's namespace) or none; default: a file "+
			"beside --tls-ca-file, or in the data directory without one, if that can be written")
	flags.StringVar(&o.encryptionKeys, "encryption-key-file", "",
		encryptionKeyUsage+"; a change is taken up, and what was encrypted with other keys is encrypted anew")
	flags.DurationVar(&o.lockWait, "store-lock-wait", 15*time.Second, "how long to wait until another hub that stops has released the store")
	o.authOptions.bind(flags)
	flags.StringVar(&o.tls.Cert, "tls-cert-file", "",
		"the hub's certificate, with the URI name spiffe://atoll.navix.sh/hub; default: the hub has a CA of its own and issues it")
	flags.StringVar(&o.tls.Key, "tls-key-file", "", "its key")
	flags.StringVar(&o.tls.CA, "tls-ca-file", "", "CAs of the workers' certificates")
	flags.DurationVar(&o.retention, "claim-key-retention", claims.DefaultRetention, "how long a claim key is honoured after its sandbox ended")
	flags.BoolVar(&o.refuseCredentials, "refuse-hook-credentials", false, validate.RefuseCredentialsUsage)
	flags.IntVar(&o.quota.Keys, "team-max-claim-keys", claims.DefaultQuota.Keys,
		"how many claim keys a team may have in the ledger; beyond that its claims with a key get RATE_LIMITED")
	flags.Int64Var(&o.quota.Bytes, "team-max-claim-bytes", claims.DefaultQuota.Bytes, "how many bytes their records may take together")
	o.limits.Bind(flags)
	o.watches.Bind(flags)
	o.watches.BindCallers(flags)
	o.shares.Bind(flags)
	o.rates.Bind(flags)
	o.web.Bind(flags)
	const over = "; what is over it is left out, and the cluster is shown as degraded"
	flags.IntVar(&o.cluster.Envs, "cluster-max-envs", fleet.DefaultEnvs, "how many Envs one cluster may have"+over)
	flags.IntVar(&o.cluster.Members, "cluster-max-members", fleet.DefaultMembers, "how many members its Envs may have together"+over)
	flags.IntVar(&o.cluster.Keys, "cluster-max-keys", fleet.DefaultKeys,
		"how many claim keys it may hold; if there are more none of its key index is used")
	flags.IntVar(&o.cluster.Bytes, "cluster-max-bytes", fleet.DefaultBytes,
		"how many bytes its segments, or a report that is arriving, may take"+over)
	flags.BoolVar(&o.allotments, "allotments", false,
		"maxReplicas and minReplicas of a scaling group are for all clusters together: each gets a room, and no group grows without one; "+
			"say the same at every replica, and only once every worker is of this version")
	o.tracing.Bind(flags)
	o.audit.Bind(flags)
	o.replicas.bind(flags)
	o.joining.bind(flags)
	flags.BoolVar(&o.clustersProxy, "clusters-proxy", false,
		"serve the API servers of clusters at /v1/clusters/ID/proxy/, for callers with the permission to create clusters/proxy; a cluster's "+
			"worker must allow it (--serve-kubernetes), and impersonates the caller")
	o.e2b.bind(flags)
	o.catalog.bind(flags)
	o.mcp.bind(flags)
}

func (o *options) validate() error {
	var errs []error
	errs = append(errs, o.checkFiles(), o.joining.validate())
	if err := serve.CheckLoopback(o.listen); err != nil && o.open() {
		errs = append(errs, fmt.Errorf("--listen: %w (--auth, --api-keys-file)", err))
	}
	if o.clustersProxy && o.open() {
		errs = append(errs, errors.New("--clusters-proxy needs callers with credentials, want --auth or --api-keys-file"))
	}
	errs = append(errs, o.e2b.validate(o.open(), strings.HasPrefix(o.store, "etcd:")))
	errs = append(errs, o.catalog.validate())
	errs = append(errs, o.mcp.validate())
	if o.retention <= 0 {
		errs = append(errs, fmt.Errorf("--claim-key-retention: %s is not valid, want more than 0", o.retention))
	}
	if o.quota.Keys <= 0 || o.quota.Bytes <= 0 {
		errs = append(errs, fmt.Errorf("--team-max-claim-keys, --team-max-claim-bytes: %d and %d are not valid, want more than 0", o.quota.Keys,
			o.quota.Bytes))
	}
	for flag, limit := range map[string]int{
		"envs": o.cluster.Envs, "members": o.cluster.Members, "keys": o.cluster.Keys, "bytes": o.cluster.Bytes,
	} {
		if limit <= 0 {
			errs = append(errs, fmt.Errorf("--cluster-max-%s: %d is not valid, want more than 0", flag, limit))
		}
	}
	place, err := o.place()
	if errs = append(errs, err); place.Etcd != nil && o.registryCopy != "" && o.registryCopy != noCopy {
		errs = append(errs, fmt.Errorf("--registry-copy: %q is not valid with --store etcd, want %s: back up etcd instead",
			o.registryCopy, noCopy))
	}
	if kind, where, _ := strings.Cut(o.registryCopy, ":"); o.registryCopy != "" && o.registryCopy != noCopy &&
		(where == "" || kind != "file" && kind != "secret") {
		errs = append(errs, fmt.Errorf("--registry-copy: %q is not valid, want file:PATH, secret:NAME or %s", o.registryCopy, noCopy))
	}
	errs = append(errs, o.authOptions.validate(), o.replicas.validate(place.Etcd != nil), o.limits.Validate(), o.watches.Validate(),
		o.shares.Validate(), o.rates.Validate(), o.web.Validate(), o.tracing.Validate(), o.audit.Validate())
	return errors.Join(errs...)
}

// place returns the location of the two stores: claims, and the state that must outlive their loss.
func (o *options) place() (hubstate.Place, error) {
	if o.store == "" {
		return hubstate.Place{Dir: o.dataDir}, nil
	}
	return o.etcd.Place("--store", o.store)
}

const noCopy = "none"

// copyPlace returns the place of the registry's copy, or nil if there is none. The default is beside the CA, which outlives the volume,
// under a name that hubs with other data directories do not use.
func (o *options) copyPlace(log logr.Logger) (registrycopy.Place, error) {
	switch kind, where, _ := strings.Cut(o.registryCopy, ":"); {
	case o.registryCopy == noCopy:
		return nil, nil // nowhere
	case kind == "file":
		return registrycopy.File(where), nil
	case kind == "secret":
		return registrycopy.InCluster(where)
	}
	place, err := o.place()
	if err != nil || place.Etcd != nil {
		return nil, err // etcd has copies of its own
	}
	dir, err := filepath.Abs(place.Dir)
	if err != nil {
		return nil, fmt.Errorf("--data-dir: %w", err)
	}
	beside := filepath.Dir(o.tls.CA)
	if !o.files() {
		if o.encryptionKeys != "" { // the CA's key would be in clear beside the encrypted files
			log.Info("A loss of the whole data directory will not be noticed, and loses the CA: give --registry-copy a place")
			return nil, nil // nowhere
		}
		beside = filepath.Join(o.dataDir, caDir)
		if err := durable.MkdirAll(beside, 0o700); err != nil {
			return nil, fmt.Errorf("--data-dir: %w", err)
		}
	}
	sum := sha256.Sum256([]byte(dir))
	file := registrycopy.File(filepath.Join(beside, "hub-registry-"+hex.EncodeToString(sum[:4])+".json"))
	if err := file.Usable(); err != nil {
		log.Info("A loss of the whole data directory will not be noticed: give --registry-copy a place that can be written", "error", err.Error())
		return nil, nil // nowhere
	}
	return file, nil
}

// secure reports whether the public API needs TLS: a token must not cross a network in plain text.
func (o *options) secure() bool { return serve.CheckLoopback(o.listen) != nil }
