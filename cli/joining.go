// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

// scopeFlags say what a cluster may serve.
type scopeFlags struct {
	namespaces, teams, envs []string
	all                     bool
}

func (f *scopeFlags) bind(flags *pflag.FlagSet) {
	flags.StringSliceVar(&f.namespaces, "namespaces", nil, "namespaces that the cluster may serve; default: all")
	flags.StringSliceVar(&f.teams, "teams", nil, "teams that it may serve; default: all")
	flags.StringSliceVar(&f.envs, "envs", nil, "Envs that it may serve, as NAMESPACE/NAME; default: all")
}

// check rejects a scope flag with an empty value, for example from an unset variable, because an empty scope would allow the cluster
// everything.
func (f *scopeFlags) check(flags *pflag.FlagSet) error {
	for name, values := range map[string][]string{"namespaces": f.namespaces, "teams": f.teams, "envs": f.envs} {
		if flags.Changed(name) && len(values) == 0 {
			return invalidFlag(name, "", "names, or no such flag: that is all of them")
		}
	}
	return nil
}

func (f *scopeFlags) given() bool { return f.all || len(f.namespaces)+len(f.teams)+len(f.envs) > 0 }

// message returns nil if no flag was given.
func (f *scopeFlags) message() *sandboxv1.ClusterScope {
	if !f.given() {
		return nil
	}
	return &sandboxv1.ClusterScope{Namespaces: f.namespaces, Teams: f.teams, Envs: f.envs}
}

func (a *app) inviteCommand() *cobra.Command {
	var ttl time.Duration
	var scope scopeFlags
	var chart, address string
	cmd := &cobra.Command{
		Use:   "invite ID",
		Short: "Print a token with which a cluster joins, and the helm command that does it",
		Long: `Print a token with which one cluster joins, once, under this name, and the helm command for that cluster. Nothing has to be
prepared there: the worker makes its key, and the hub issues its certificate.

The token is a secret until it is used. An invitation also lets a cluster return that was revoked or forgotten, or whose certificate
has ended, with a new key; it keeps its sandboxes and its claim keys.`,
		Example: `  atollctl cluster invite east
  atollctl cluster invite east --ttl 10m --namespaces red,blue
  atollctl cluster invite east -o name > token`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := scope.check(cmd.Flags()); err != nil {
				return err
			}
			return a.call(cmd, func(ctx context.Context, c clients) error {
				invitation, err := c.clusters.InviteCluster(ctx, &sandboxv1.InviteClusterRequest{
					Id: args[0], Ttl: durationpb.New(ttl), Scope: scope.message(),
				})
				if err != nil {
					return err
				}
				switch a.output {
				case "table", "wide":
					printInvitation(cmd.OutOrStdout(), invitation, chart, address)
					return nil
				case "name":
					fmt.Fprintln(cmd.OutOrStdout(), invitation.GetToken())
					return nil
				default:
					return encode(cmd.OutOrStdout(), a.output, invitation)
				}
			})
		},
	}
	cmd.Flags().DurationVar(&ttl, "ttl", time.Hour, "how long the token is valid, at most 168h")
	cmd.Flags().StringVar(&chart, "chart", "charts/worker", "the worker's chart, for the command that is printed")
	cmd.Flags().StringVar(&address, "hub-address", "", "HOST:PORT of the hub's link, for the command; default: the hub's first --hub-names")
	scope.bind(cmd.Flags())
	return cmd
}

func printInvitation(w io.Writer, i *sandboxv1.Invitation, chart, address string) {
	fmt.Fprintf(w, "%s\n\nValid until %s, once, for cluster %s. In that cluster:\n\n", i.GetToken(),
		i.GetExpires().AsTime().Format(time.RFC3339), i.GetClusterId())
	fmt.Fprintf(w, "helm install atoll-worker %s --namespace atoll-system --create-namespace --set clusterID=%s --set hub.address=%s "+
		"--set hub.token=%s\n",
		chart, i.GetClusterId(), cmp.Or(address, i.GetHub(), "HUB:8443"), i.GetToken())
}

func (a *app) approveCommand() *cobra.Command {
	var deny bool
	var key string
	cmd := &cobra.Command{
		Use:     "approve ID",
		Short:   "Let a cluster in that waits (hub with --approve=manual), or refuse it",
		Example: "  atollctl cluster approve east\n  atollctl cluster approve east --deny",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd, func(ctx context.Context, c clients) error {
				cluster, err := c.clusters.ApproveCluster(ctx, &sandboxv1.ApproveClusterRequest{Id: args[0], KeyHash: key, Deny: deny})
				if err != nil {
					return err
				}
				return clusterView.one(cmd.OutOrStdout(), a.output, cluster)
			})
		},
	}
	cmd.Flags().BoolVar(&deny, "deny", false, "refuse the request instead, and end its invitation")
	cmd.Flags().StringVar(&key, "key", "", "hash of the request's key, where several wait under the name")
	return cmd
}

func (a *app) setCommand() *cobra.Command {
	var scope scopeFlags
	cmd := &cobra.Command{
		Use:   "set ID",
		Short: "Say what a cluster may serve: namespaces, teams, Envs",
		Long: `Say what a cluster may serve. It gets no claims of others, whatever it reports; its segments of other Envs are shown. What runs
there runs on. The flags replace what was set before.`,
		Example: `  atollctl cluster set east --namespaces red,blue
  atollctl cluster set east --teams red --envs default/python
  atollctl cluster set east --all`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeClusters,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := scope.check(cmd.Flags()); err != nil {
				return err
			}
			if !scope.given() || scope.all && len(scope.namespaces)+len(scope.teams)+len(scope.envs) > 0 {
				return usagef("want --namespaces, --teams, --envs, or --all alone")
			}
			return a.call(cmd, func(ctx context.Context, c clients) error {
				cluster, err := c.clusters.UpdateCluster(ctx, &sandboxv1.UpdateClusterRequest{Id: args[0], Scope: scope.message()})
				if err != nil {
					return err
				}
				return clusterView.showing("SERVES").one(cmd.OutOrStdout(), a.output, cluster)
			})
		},
	}
	scope.bind(cmd.Flags())
	cmd.Flags().BoolVar(&scope.all, "all", false, "everything")
	return cmd
}

// printWaiting prints the clusters that wait for approval.
func printWaiting(w io.Writer, waiting []*sandboxv1.JoinRequest) {
	for _, j := range waiting {
		fmt.Fprintf(w, "cluster %s waits for an approval since %s, from %s, kube-system uid %s, key %.16s: atollctl cluster approve %[1]s\n",
			j.GetClusterId(), since(time.Now(), j.GetSince()), j.GetRemote(), j.GetUid(), j.GetKeyHash())
	}
}

func scopeText(s *sandboxv1.ClusterScope) string {
	var parts []string
	for _, list := range []struct {
		name string
		of   []string
	}{{"namespaces", s.GetNamespaces()}, {"teams", s.GetTeams()}, {"envs", s.GetEnvs()}} {
		if len(list.of) > 0 {
			parts = append(parts, list.name+"="+strings.Join(list.of, ","))
		}
	}
	return cmp.Or(strings.Join(parts, " "), "all")
}
