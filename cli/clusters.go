// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/spf13/cobra"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

var clusterView = view[*sandboxv1.Cluster]{
	name: func(c *sandboxv1.Cluster) string { return c.GetId() },
	columns: []column[*sandboxv1.Cluster]{
		{header: "CLUSTER", value: (*sandboxv1.Cluster).GetId},
		{header: "STATE", value: func(c *sandboxv1.Cluster) string { return c.GetState().String() }},
		{header: "IDLE", value: func(c *sandboxv1.Cluster) string { return number(c.GetIdle()) }},
		{header: "RUNNING", value: func(c *sandboxv1.Cluster) string { return number(c.GetRunning()) }},
		{header: "DESIRED", value: func(c *sandboxv1.Cluster) string { return number(c.GetDesired()) }},
		{header: "WAITING", value: func(c *sandboxv1.Cluster) string { return number(c.GetPending()) }},
		{header: "ENVS", value: func(c *sandboxv1.Cluster) string { return number(c.GetEnvs()) }},
		{header: "SEEN", value: func(c *sandboxv1.Cluster) string { return ago(c.GetLastSeen()) }},
		{header: "POOLS", wide: true, value: func(c *sandboxv1.Cluster) string { return number(c.GetMembers()) }},
		{header: "INCARNATION", wide: true, value: func(c *sandboxv1.Cluster) string { return number(c.GetIncarnation()) }},
		{header: "VERSION", wide: true, value: (*sandboxv1.Cluster).GetVersion},
		{header: "MESSAGE", wide: true, value: (*sandboxv1.Cluster).GetMessage},
	},
}

func clustersCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "clusters [ID]",
		Aliases:           []string{"cluster"},
		Short:             "Show the member clusters: reachable or not, and how much room they have",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeClusters,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd, func(ctx context.Context, c clients) error {
				if len(args) == 1 {
					cluster, err := c.clusters.GetCluster(ctx, &sandboxv1.GetClusterRequest{Id: args[0]})
					if err != nil {
						return err
					}
					return clusterView.one(cmd.OutOrStdout(), a.output, cluster)
				}
				list, err := c.clusters.ListClusters(ctx, &sandboxv1.ListClustersRequest{})
				if err != nil {
					return err
				}
				return clusterView.list(cmd.OutOrStdout(), a.output, list.GetClusters(), list)
			})
		},
	}
}
