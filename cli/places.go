// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"navix.sh/atoll/pkg/config"
	"navix.sh/atoll/pkg/verify"
)

// places are the servers to read, for commands that read more than the public API.
type places struct {
	kubeconfigs, contexts, metrics []string
	namespace                      string
	noHub                          bool
	needsClusters                  bool // without one the command can find nothing
}

func (p *places) bind(flags *pflag.FlagSet) {
	flags.StringArrayVar(&p.contexts, "context", nil,
		"[ID=]CONTEXT of kubectl for a cluster; ID is the cluster's id, if it is not the context's name (repeatable)")
	kubectlsContext(flags)
	flags.StringArrayVar(&p.kubeconfigs, "kubeconfig", nil,
		"[ID=]FILE: where contexts are; without --context, the current one of each file is a cluster (repeatable)")
	flags.StringArrayVar(&p.metrics, "metrics", nil, "[NAME=]URL of a hub's or worker's metrics (repeatable)")
	flags.StringVar(&p.namespace, "system-namespace", "atoll-system", "namespace of the workers")
	flags.BoolVar(&p.noHub, "no-hub", false, "do not look at the hub of --server")
}

// kubectlsContext makes --context a context of kubectl in this command. ATOLL_CONTEXT, and context in a file of --config, stay atollctl's
// own context in every command.
func kubectlsContext(flags *pflag.FlagSet) {
	flags.Lookup("context").Annotations = map[string][]string{config.LineOnly: nil}
}

// site is a cluster to read.
type site struct {
	id, context string
	config      *rest.Config
}

// sites resolves the clusters, in the order they were given.
func (p *places) sites() ([]site, error) {
	var out []site
	add := func(id, context string, rules *clientcmd.ClientConfigLoadingRules) error {
		loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: context})
		if context == "" {
			raw, err := loader.RawConfig()
			if err != nil {
				return fmt.Errorf("reading --kubeconfig: %w", err)
			}
			if context = raw.CurrentContext; context == "" {
				return fmt.Errorf("--kubeconfig %s has no current context; name one with --context", rules.ExplicitPath)
			}
		}
		config, err := loader.ClientConfig()
		if err != nil {
			return fmt.Errorf("finding the cluster of context %q: %w", context, err)
		}
		id = cmp.Or(id, context)
		if slices.ContainsFunc(out, func(s site) bool { return s.id == id }) {
			return fmt.Errorf("cluster %q is named twice; tell them apart with ID=CONTEXT", id)
		}
		out = append(out, site{id, context, config})
		return nil
	}
	if len(p.contexts) == 0 {
		for _, named := range p.kubeconfigs {
			id, path := cutName(named)
			if err := add(id, "", &clientcmd.ClientConfigLoadingRules{ExplicitPath: path}); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	if len(p.kubeconfigs) > 0 {
		rules = &clientcmd.ClientConfigLoadingRules{}
		for _, named := range p.kubeconfigs {
			id, path := cutName(named)
			if id != "" {
				return nil, fmt.Errorf("--kubeconfig %s: with --context, ids go there", named)
			}
			rules.Precedence = append(rules.Precedence, path)
		}
	}
	for _, named := range p.contexts {
		id, context := cutName(named)
		if err := add(id, context, rules); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// cutName splits ID=VALUE. If there is no valid id before the sign, the whole text is the value.
func cutName(s string) (id, value string) {
	before, after, ok := strings.Cut(s, "=")
	if !ok || before == "" || strings.ContainsAny(before, "/:@.") {
		return "", s
	}
	return before, after
}

var errNowhere = errors.New("there is nowhere to look: name clusters with --context or --kubeconfig, or leave out --no-hub")

var errNoClusters = usagef("no cluster is named, so nothing can be compared: name clusters with --context or --kubeconfig")

// with calls f with all places, while a connection to the hub is open.
func (p *places) with(ctx context.Context, a *app, f func(*verify.Federation, []site) error) error {
	sites, err := p.sites()
	if err != nil {
		return err
	}
	if len(sites) == 0 && p.noHub {
		return errNowhere
	}
	if len(sites) == 0 && p.needsClusters {
		return errNoClusters
	}
	federation := &verify.Federation{Metrics: map[string]string{}}
	for _, named := range p.metrics {
		name, url := cutName(named)
		federation.Metrics[cmp.Or(name, url)] = url
	}
	for _, s := range sites {
		reader, err := verify.NewReader(s.id, s.config)
		if err != nil {
			return err
		}
		reader.Namespace = p.namespace
		federation.Clusters = append(federation.Clusters, reader)
	}
	if p.noHub {
		return f(federation, sites)
	}
	return a.dial(ctx, func(conn *grpc.ClientConn) error {
		federation.Hub = verify.NewHubReader(conn)
		return f(federation, sites)
	})
}
