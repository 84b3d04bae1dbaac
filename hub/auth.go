// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"navix.sh/atoll/hub/internal/api"
	"navix.sh/atoll/pkg/access"
	"navix.sh/atoll/pkg/kubeaccess"
	"navix.sh/atoll/pkg/oidc"
)

// The ways to authenticate callers.
const (
	authKeys       = "keys"
	authOIDC       = "oidc"
	authKubernetes = "kubernetes"
)

var authWays = []string{authKeys, authOIDC, authKubernetes}

// authOptions configure the authentication of callers.
type authOptions struct {
	ways        []string
	apiKeysFile string
	oidcConfig  string
	kubeconfig  string
	audiences   []string
	ttl         time.Duration
}

func (o *authOptions) bind(flags *pflag.FlagSet) {
	flags.StringSliceVar(&o.ways, "auth", nil,
		"how callers are authenticated, several allowed: "+authKeys+" (API keys), "+authOIDC+" (tokens of the issuers of --oidc-config-file), "+
			authKubernetes+" (tokens that the hub's cluster knows; its RBAC permits); default: what the other flags are for")
	flags.StringVar(&o.apiKeysFile, "api-keys-file", "",
		"YAML file of API keys, see api-key new; without one, and without --auth, the public API is open and on loopback only")
	flags.StringVar(&o.oidcConfig, "oidc-config-file", "", "YAML file of OpenID Connect issuers, read at the start")
	flags.StringVar(&o.kubeconfig, "auth-kubeconfig", "",
		"kubeconfig of the cluster that --auth kubernetes asks; default: the ServiceAccount of the Pod this runs in")
	flags.StringSliceVar(&o.audiences, "auth-kubernetes-audiences", nil,
		"audiences of which a cluster's token has one, so that a token for its API server is none for the hub; default: the API server's")
	flags.DurationVar(&o.ttl, "auth-kubernetes-ttl", kubeaccess.DefaultTTL,
		"how long a permission of the cluster is cached; a refusal is cached for a third of it")
}

func (o *authOptions) validate() error {
	var errs []error
	for _, way := range o.ways {
		if !slices.Contains(authWays, way) {
			errs = append(errs, fmt.Errorf("--auth: %q is not valid, want of %s", way, strings.Join(authWays, ", ")))
		}
	}
	if len(o.ways) > 0 && o.apiKeysFile != "" && !slices.Contains(o.ways, authKeys) {
		errs = append(errs, fmt.Errorf("--api-keys-file is of no use without --auth %s", authKeys))
	}
	if oidc := slices.Contains(o.ways, authOIDC); oidc && o.oidcConfig == "" {
		errs = append(errs, fmt.Errorf("--auth %s needs --oidc-config-file", authOIDC))
	} else if !oidc && len(o.ways) > 0 && o.oidcConfig != "" {
		errs = append(errs, fmt.Errorf("--oidc-config-file is of no use without --auth %s", authOIDC))
	}
	if o.ttl < time.Second || o.ttl > 10*time.Minute {
		errs = append(errs, fmt.Errorf("--auth-kubernetes-ttl: %s is not valid, want 1s to 10m", o.ttl))
	}
	return errors.Join(errs...)
}

// open reports whether the public API requires no credentials.
func (o *authOptions) open() bool {
	return len(o.ways) == 0 && o.apiKeysFile == "" && o.oidcConfig == ""
}

// uses reports whether callers may authenticate in a way.
func (o *authOptions) uses(way string) bool {
	switch {
	case len(o.ways) > 0:
		return slices.Contains(o.ways, way)
	case way == authKeys:
		return o.apiKeysFile != ""
	default:
		return way == authOIDC && o.oidcConfig != ""
	}
}

// runner is a part of the hub that runs until ctx ends.
type runner interface {
	Run(ctx context.Context) error
}

// addAuth adds the Authenticators and Authorizers that the flags configure, other than API keys.
func (h *hub) addAuth(o *authOptions, real clock.WithTicker, to *api.AuthOptions) error {
	log := h.log.WithName("auth")
	if o.uses(authOIDC) {
		issuers, err := oidc.Open(o.oidcConfig, real, log.WithName("oidc"))
		if err != nil {
			return fmt.Errorf("--oidc-config-file: %w", err)
		}
		to.Others = append(to.Others, issuers)
		h.background = append(h.background, issuers)
	}
	if o.uses(authKubernetes) {
		klog.SetLogger(log.WithName("kubernetes"))
		config, err := kubeaccess.Config(o.kubeconfig)
		if err != nil {
			return fmt.Errorf("--auth %s: %s: %w", authKubernetes, cmp.Or(o.kubeconfig, "not in a Pod"), err)
		}
		cluster, err := kubeaccess.New(kubeaccess.Options{Config: config, Audiences: o.audiences, TTL: o.ttl, Log: log.WithName("kubernetes")})
		if err != nil {
			return err
		}
		to.Others = append(to.Others, cluster) // last: it may have to call an API server about a token
		to.Authorizer = access.Either{to.Authorizer, cluster}
	}
	return nil
}
