// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"time"

	"github.com/spf13/cobra"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/config"
)

// completionTimeout is short, because a shell blocks on it at every completion.
const completionTimeout = 2 * time.Second

func (a *app) completeClusters(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.complete(cmd, func(ctx context.Context, c clients) ([]string, error) {
		list, err := c.clusters.ListClusters(ctx, &sandboxv1.ListClustersRequest{})
		var ids []string
		for _, cluster := range list.GetClusters() {
			ids = append(ids, cluster.GetId())
		}
		return ids, err
	})
}

// completeSandboxes completes the ids of live sandboxes.
func (a *app) completeSandboxes(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.complete(cmd, func(ctx context.Context, c clients) ([]string, error) {
		list, err := c.sandboxes.ListSandboxes(ctx, &sandboxv1.ListSandboxesRequest{PageSize: 1000})
		var ids []string
		for _, sandbox := range list.GetSandboxes() {
			ids = append(ids, sandbox.GetId())
		}
		return ids, err
	})
}

// firstOnly completes only the first argument.
func firstOnly(complete cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(cmd, args, begun)
	}
}

// completeEnvs completes NAMESPACE/NAME or, if the command line has a namespace, NAME in that namespace.
func (a *app) completeEnvs(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.complete(cmd, func(ctx context.Context, c clients) ([]string, error) {
		namespace := ""
		if flag := cmd.Flags().Lookup("namespace"); flag != nil && flag.Changed {
			namespace = flag.Value.String()
		}
		list, err := c.envs.ListEnvs(ctx, &sandboxv1.ListEnvsRequest{Namespace: namespace, PageSize: 1000})
		var names []string
		for _, env := range list.GetEnvs() {
			if namespace != "" {
				names = append(names, env.GetName())
			} else {
				names = append(names, envName(env))
			}
		}
		return names, err
	})
}

func (a *app) complete(cmd *cobra.Command, f func(context.Context, clients) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	if err := config.Load(cmd.Flags(), os.LookupEnv, os.ReadFile); err != nil { // cobra does not run PersistentPreRunE for completions
		return nil, cobra.ShellCompDirectiveError
	}
	if err := a.useContext(cmd.Flags()); err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	base := cmd.Context()
	if base == nil {
		base = context.Background()
	}
	ctx, cancel := context.WithTimeout(base, completionTimeout)
	defer cancel()
	var found []string
	err := a.connect(ctx, func(c clients) error {
		var err error
		found, err = f(ctx, c)
		return err
	})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}
