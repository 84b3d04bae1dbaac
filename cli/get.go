// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

// getCommand offers the commands under kubectl's name: each kind below it is the command of that name.
func getCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get KIND [NAME]",
		Short: "Show sandboxes, Envs, clusters or templates, as the commands of these names do",
		Example: `  atollctl get sandboxes -n default --watch
  atollctl get env python -n default -o yaml
  atollctl get cluster east`,
	}
	for _, kind := range []*cobra.Command{sandboxesCommand(a), envsCommand(a), clustersCommand(a), claimCommand(a), templatesCommand(a)} {
		kind.RemoveCommand(kind.Commands()...)
		cmd.AddCommand(kind)
	}
	return cmd
}

// describeCommand prints everything that the server returns about one object.
func describeCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "describe KIND NAME",
		Short: "Print all that the server tells of one sandbox, Env, cluster or claim key",
		Example: `  atollctl describe sandbox 01j9zq3p3k5m8x7c2v4b6n8d0f-east
  atollctl describe env default/python`,
	}
	var of envRef
	env := a.describe("env [NAMESPACE/]NAME", "env", "default/python", func(ctx context.Context, c clients, name string) (proto.Message,
		error) {
		namespace, name, err := of.resolve(name)
		if err != nil {
			return nil, err
		}
		return c.envs.GetEnv(ctx, &sandboxv1.GetEnvRequest{Namespace: namespace, Name: name})
	})
	of.bind(env.Flags())
	env.ValidArgsFunction = a.completeEnvs
	var namespace string
	claim := a.describe("claim KEY", "claim", "build-17", func(ctx context.Context, c clients, key string) (proto.Message, error) {
		return c.claims.GetClaim(ctx, &sandboxv1.GetClaimRequest{ClaimKey: key, Namespace: namespace})
	})
	claim.Flags().StringVarP(&namespace, "namespace", "n", "default", "the claim's namespace")
	sandbox := a.describe("sandbox ID", "sandbox", "01j9zq3p3k5m8x7c2v4b6n8d0f-east",
		func(ctx context.Context, c clients, id string) (proto.Message, error) {
			return c.sandboxes.GetSandbox(ctx, &sandboxv1.GetSandboxRequest{Id: id})
		})
	sandbox.ValidArgsFunction = a.completeSandboxes
	cluster := a.describe("cluster ID", "cluster", "east", func(ctx context.Context, c clients, id string) (proto.Message, error) {
		return c.clusters.GetCluster(ctx, &sandboxv1.GetClusterRequest{Id: id})
	})
	cluster.ValidArgsFunction = a.completeClusters
	cmd.AddCommand(sandbox, env, cluster, claim)
	return cmd
}

func (a *app) describe(use, kind, example string, get func(context.Context, clients, string) (proto.Message, error)) *cobra.Command {
	aliases := map[string][]string{"sandbox": {"sandboxes", "sb"}, "env": {"envs"}, "cluster": {"clusters"}}[kind]
	return &cobra.Command{
		Use:     use,
		Aliases: aliases,
		Short:   "Print all that the server tells of one " + kind,
		Example: "  atollctl describe " + kind + " " + example,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd, func(ctx context.Context, c clients) error {
				got, err := get(ctx, c, args[0])
				if err != nil {
					return err
				}
				output := "yaml"
				if a.output == "json" {
					output = a.output
				}
				return encode(cmd.OutOrStdout(), output, got)
			})
		},
	}
}
