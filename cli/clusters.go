// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/clip"
)

var clusterView = view[*sandboxv1.Cluster]{
	name:  func(c *sandboxv1.Cluster) string { return c.GetId() },
	state: func(c *sandboxv1.Cluster) string { return c.GetState().String() },
	columns: []column[*sandboxv1.Cluster]{
		{header: "CLUSTER", value: (*sandboxv1.Cluster).GetId},
		{header: "STATE", value: func(c *sandboxv1.Cluster) string { return c.GetState().String() }},
		{header: "IDLE", value: func(c *sandboxv1.Cluster) string { return number(c.GetIdle()) }},
		{header: "RUNNING", value: func(c *sandboxv1.Cluster) string { return number(c.GetRunning()) }},
		{header: "DESIRED", value: func(c *sandboxv1.Cluster) string { return number(c.GetDesired()) }},
		{header: "WAITING", value: func(c *sandboxv1.Cluster) string { return number(c.GetPending()) }},
		{header: "ENVS", value: func(c *sandboxv1.Cluster) string { return number(c.GetEnvs()) }},
		{header: "SEEN", age: true, value: func(c *sandboxv1.Cluster) string { return ago(c.GetLastSeen()) }},
		{header: "POOLS", wide: true, value: func(c *sandboxv1.Cluster) string { return number(c.GetMembers()) }},
		{header: "INCARNATION", wide: true, value: func(c *sandboxv1.Cluster) string { return number(c.GetIncarnation()) }},
		{header: "VERSION", wide: true, value: (*sandboxv1.Cluster).GetVersion},
		{header: "REPLICA", wide: true, value: (*sandboxv1.Cluster).GetReplica},
		{header: "SERVES", wide: true, value: func(c *sandboxv1.Cluster) string { return scopeText(c.GetScope()) }},
		{header: "WORKER", wide: true, value: workerText},
		{header: "MESSAGE", wide: true, value: func(c *sandboxv1.Cluster) string { return clip.Line(c.GetMessage()) }},
	},
}

// workerText describes where a cluster's worker runs and, if it runs elsewhere, its latency to the API server.
func workerText(c *sandboxv1.Cluster) string {
	hosted := c.GetHosted()
	if hosted == nil {
		return "inside"
	}
	return fmt.Sprintf("hosted by %s, %s away", hosted.GetHost(), hosted.GetLatency().AsDuration().Round(100*time.Microsecond))
}

func clustersCommand(a *app) *cobra.Command {
	var how following
	var order string
	cmd := &cobra.Command{
		Use:     "clusters [ID]",
		Aliases: []string{"cluster"},
		Short:   "Show the member clusters: reachable or not, and how much room they have",
		Example: `  atollctl clusters --watch
  atollctl clusters --sort-by 'idle desc'
  atollctl clusters east --wait=fresh`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: firstOnly(a.completeClusters),
		RunE: func(cmd *cobra.Command, args []string) error {
			d := display[*sandboxv1.Cluster]{app: a, cmd: cmd, view: clusterView}
			d.fetch = func(ctx context.Context, c clients) (fetched[*sandboxv1.Cluster], error) {
				if len(args) == 1 {
					cluster, err := c.clusters.GetCluster(ctx, &sandboxv1.GetClusterRequest{Id: args[0]})
					return fetched[*sandboxv1.Cluster]{[]*sandboxv1.Cluster{cluster}, cluster}, err
				}
				list, err := c.clusters.ListClusters(ctx, &sandboxv1.ListClustersRequest{})
				if err != nil {
					return fetched[*sandboxv1.Cluster]{}, err
				}
				return fetched[*sandboxv1.Cluster]{list.GetClusters(), list}, clusterOrders.sort(list.GetClusters(), order)
			}
			if err := clusterOrders.sort(nil, order); err != nil {
				return err
			}
			d.print = func(got fetched[*sandboxv1.Cluster]) error {
				err := clusterView.all(cmd, a.output, "clusters", got.items, got.whole)
				if list, ok := got.whole.(*sandboxv1.ListClustersResponse); ok && err == nil && tabular(a.output) {
					printWaiting(cmd.ErrOrStderr(), list.GetWaiting())
				}
				return err
			}
			return d.run(how)
		},
	}
	clusterOrders.bind(cmd, &order)
	how.bind(cmd, "fresh", "suspect", "unreachable", "quarantined", "draining", "degraded")
	var successor bool
	undrain := a.clusterChange("undrain", "Send claims to a cluster again, or let a forgotten one register again",
		`Send claims to a cluster again. A cluster that was forgotten may register again after it, with its certificate.

With --successor another cluster may register under the name of one that was forgotten; that one stays refused, by its uid and
the keys of its certificates.`,
		func(ctx context.Context, c clients, id string) (*sandboxv1.Cluster, error) {
			return c.clusters.UndrainCluster(ctx, &sandboxv1.UndrainClusterRequest{Id: id, Successor: successor})
		})
	undrain.Flags().BoolVar(&successor, "successor", false,
		"let another cluster register under the name of a forgotten one, which stays refused")
	var reclaim bool
	forget := a.clusterChange("forget", "Remove a cluster for good: one that is gone, or that was drained",
		`Remove a cluster for good: one that is gone, or that was drained. It need not be reachable.

Its claim keys are given up, which is the permission to go elsewhere: a claim that it may hold starts anew in another
cluster, and a sandbox that was returned counts as ended, although it may run on over there. From then on the name is refused, and the keys
of the cluster's certificates under every name, until "cluster undrain" takes that back.

Where the hub divides maxReplicas over clusters, what the cluster may hold of it stays missing, because its Pods may run on. With
--reclaim-room the others get it: do that once its Pods are gone. It may be said later, of a cluster that was forgotten before.`,
		func(ctx context.Context, c clients, id string) (*sandboxv1.Cluster, error) {
			return c.clusters.ForgetCluster(ctx, &sandboxv1.ForgetClusterRequest{Id: id, ReclaimRoom: reclaim})
		})
	forget.Flags().BoolVar(&reclaim, "reclaim-room", false, "its Pods are gone: let other clusters have what it may hold of maxReplicas")
	cmd.AddCommand(
		a.clusterChange("drain", "Send no new claims to a cluster; its sandboxes run on",
			"Send no new claims to a cluster. Its sandboxes run on, its claim keys and its own callers are served.",
			func(ctx context.Context, c clients, id string) (*sandboxv1.Cluster, error) {
				return c.clusters.DrainCluster(ctx, &sandboxv1.DrainClusterRequest{Id: id})
			}),
		undrain,
		a.inviteCommand(), a.approveCommand(), a.setCommand(), a.rbacCommand(),
		a.clusterChange("revoke", "Refuse a cluster's certificates; it stays registered, and comes back by an invitation",
			`Refuse every certificate that a cluster has or was issued, and end its stream at once. It stays registered with its claim keys and
its sandboxes run on; "cluster invite" lets it come back with a new key. Invitations of before end, also those of a cluster that has not
joined yet: that is for a token that has become known.`,
			func(ctx context.Context, c clients, id string) (*sandboxv1.Cluster, error) {
				return c.clusters.RevokeCluster(ctx, &sandboxv1.RevokeClusterRequest{Id: id})
			}),
		forget,
	)
	return cmd
}

// clusterChange is a command that changes one cluster and shows it.
func (a *app) clusterChange(
	name, short, long string, change func(context.Context, clients, string) (*sandboxv1.Cluster, error),
) *cobra.Command {
	return &cobra.Command{
		Use:               name + " ID",
		Short:             short,
		Long:              long,
		Example:           "  atollctl cluster " + name + " east",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeClusters,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd, func(ctx context.Context, c clients) error {
				cluster, err := change(ctx, c, args[0])
				if err != nil {
					return err
				}
				if cluster.GetRevoked() && name == "undrain" {
					fmt.Fprintf(cmd.ErrOrStderr(), "Warning: %[1]s is revoked: it gets claims once its worker joins by: atollctl cluster invite %[1]s\n",
						cluster.GetId())
				}
				return clusterView.one(cmd.OutOrStdout(), a.output, cluster)
			})
		},
	}
}
