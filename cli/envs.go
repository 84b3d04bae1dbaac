// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

var envView = view[*sandboxv1.Env]{
	name: envName,
	columns: []column[*sandboxv1.Env]{
		{header: "ENV", value: envName},
		{header: "IDLE", value: func(e *sandboxv1.Env) string { return number(e.GetIdle()) }},
		{header: "RUNNING", value: func(e *sandboxv1.Env) string { return number(e.GetRunning()) }},
		{header: "DESIRED", value: func(e *sandboxv1.Env) string { return number(e.GetDesired()) }},
		{header: "WAITING", value: func(e *sandboxv1.Env) string { return number(e.GetPending()) }},
		{header: "CLUSTERS", value: func(e *sandboxv1.Env) string {
			var ids []string
			for _, c := range e.GetClusters() {
				ids = append(ids, c.GetClusterId())
			}
			return strings.Join(ids, ",")
		}},
	},
}

// memberRow is one member with its cluster, for the detailed view of an Env.
type memberRow struct {
	*sandboxv1.EnvMember
	cluster *sandboxv1.EnvCluster
}

var memberView = view[memberRow]{
	name: func(m memberRow) string { return m.cluster.GetClusterId() + "/" + m.GetName() },
	columns: []column[memberRow]{
		{header: "CLUSTER", value: func(m memberRow) string { return m.cluster.GetClusterId() }},
		{header: "POOL", value: func(m memberRow) string { return m.GetName() }},
		{header: "STATE", value: func(m memberRow) string { return m.GetState() }},
		{header: "READY", value: func(m memberRow) string { return number(m.GetReadyIdle()) }},
		{header: "IDLE", value: func(m memberRow) string { return number(m.GetIdle()) }},
		{header: "RUNNING", value: func(m memberRow) string { return number(m.GetRunning()) }},
		{header: "DESIRED", value: func(m memberRow) string { return number(m.GetDesired()) }},
		{header: "WAITING", value: func(m memberRow) string { return number(m.GetPending()) }},
		{header: "PRIORITY", value: func(m memberRow) string { return number(m.GetPriority()) }},
		{header: "CLUSTER-STATE", value: func(m memberRow) string { return m.cluster.GetState().String() }},
		{header: "AGE", value: func(m memberRow) string { return ago(m.cluster.GetAge()) }},
		{header: "GROUP", wide: true, value: func(m memberRow) string { return m.GetScalingGroup() }},
		{header: "TYPE", wide: true, value: func(m memberRow) string {
			if m.GetInstanceType() == "" {
				return ""
			}
			return fmt.Sprintf("%s x%d", m.GetInstanceType(), m.GetMultiplier())
		}},
		{header: "IMAGE", wide: true, value: func(m memberRow) string { return m.GetImage() }},
	},
}

func envName(e *sandboxv1.Env) string { return e.GetNamespace() + "/" + e.GetName() }

func envsCommand(a *app) *cobra.Command {
	var namespace string
	cmd := &cobra.Command{
		Use:               "envs [[NAMESPACE/]NAME]",
		Aliases:           []string{"env"},
		Short:             "Show the federated Envs, or one Env member by member",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeEnvs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd, func(ctx context.Context, c clients) error {
				if len(args) == 1 {
					ns, name := splitEnv(args[0])
					env, err := c.envs.GetEnv(ctx, &sandboxv1.GetEnvRequest{Namespace: ns, Name: name})
					if err != nil {
						return err
					}
					return memberView.list(cmd.OutOrStdout(), a.output, membersOf(env), env)
				}
				whole := &sandboxv1.ListEnvsResponse{}
				for token := ""; ; {
					page, err := c.envs.ListEnvs(ctx, &sandboxv1.ListEnvsRequest{Namespace: namespace, PageToken: token})
					if err != nil {
						return err
					}
					whole.Envs = append(whole.Envs, page.GetEnvs()...)
					if token = page.GetNextPageToken(); token == "" {
						return envView.list(cmd.OutOrStdout(), a.output, whole.GetEnvs(), whole)
					}
				}
			})
		},
	}
	cmd.AddCommand(refreshCommand(a))
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "only this namespace")
	return cmd
}

func membersOf(env *sandboxv1.Env) []memberRow {
	var rows []memberRow
	for _, c := range env.GetClusters() {
		for _, m := range c.GetMembers() {
			rows = append(rows, memberRow{m, c})
		}
	}
	return rows
}

// splitEnv parses "namespace/name"; a bare name is in the namespace default.
func splitEnv(s string) (namespace, name string) {
	if ns, n, ok := strings.Cut(s, "/"); ok {
		return ns, n
	}
	return "default", s
}
