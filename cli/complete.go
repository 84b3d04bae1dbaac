// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

// completionTimeout is short; because a shell waits for it at every key.
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

func (a *app) completeEnvs(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.complete(cmd, func(ctx context.Context, c clients) ([]string, error) {
		list, err := c.envs.ListEnvs(ctx, &sandboxv1.ListEnvsRequest{PageSize: 1000})
		var names []string
		for _, env := range list.GetEnvs() {
			names = append(names, envName(env))
		}
		return names, err
	})
}

func (a *app) complete(cmd *cobra.Command, f func(context.Context, clients) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	base := cmd.Context()
	if base == nil {
		base = context.Background()
	}
	ctx, cancel := context.WithTimeout(base, completionTimeout)
	defer cancel()
	var found []string
	err := a.connect(func(c clients) error {
		var err error
		found, err = f(ctx, c)
		return err
	})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}
