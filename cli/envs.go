// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/clip"
)

var envView = view[*sandboxv1.Env]{
	name: envName,
	state: func(e *sandboxv1.Env) string {
		for _, c := range e.GetClusters() {
			for _, m := range c.GetMembers() {
				if m.GetReadyIdle() > 0 {
					return "ready"
				}
			}
		}
		return "empty"
	},
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
		{header: "LACKS", value: func(e *sandboxv1.Env) string { return strings.Join(lackedBy(e), "; ") }},
		{header: "CATALOGUE", wide: true, value: func(e *sandboxv1.Env) string { return catalogued(e.GetCatalog()) }},
		{header: "FAULT", wide: true, value: func(e *sandboxv1.Env) string { return clip.Line(strings.Join(faultsOf(e), "; ")) }},
	},
}

// faultsOf returns, by cluster, the problems that a person must fix.
func faultsOf(e *sandboxv1.Env) (faults []string) {
	for _, c := range e.GetClusters() {
		if c.GetFault() != "" {
			faults = append(faults, c.GetClusterId()+": "+c.GetFault())
		}
	}
	return faults
}

// lackedBy returns the clusters in which the Env has members but which do not serve it.
func lackedBy(e *sandboxv1.Env) (lacks []string) {
	for _, id := range e.GetMissingClusters() {
		lacks = append(lacks, id+" is not registered")
	}
	for _, id := range e.GetClustersWithoutEnv() {
		lacks = append(lacks, id+" has no such Env")
	}
	return lacks
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
		{header: "AGE", age: true, value: func(m memberRow) string { return ago(m.cluster.GetAge()) }},
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
	var of envRef
	var how following
	var cluster, order string
	cmd := &cobra.Command{
		Use:     "envs [[NAMESPACE/]NAME]",
		Aliases: []string{"env"},
		Short:   "Show the federated Envs, or one Env member by member",
		Example: `  atollctl envs
  atollctl envs --cluster west --sort-by 'pending desc'
  atollctl envs default/python
  atollctl envs python -n default --wait=ready`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: firstOnly(a.completeEnvs),
		RunE: func(cmd *cobra.Command, args []string) error {
			d := display[*sandboxv1.Env]{app: a, cmd: cmd, view: envView}
			d.print = func(got fetched[*sandboxv1.Env]) error {
				return envView.all(cmd, a.output, "envs", got.items, got.whole)
			}
			d.fetch = func(ctx context.Context, c clients) (fetched[*sandboxv1.Env], error) {
				got, err := allEnvs(ctx, c, &sandboxv1.ListEnvsRequest{Namespace: of.namespace, ClusterId: cluster})
				if err != nil {
					return got, err
				}
				return got, envOrders.sort(got.items, order)
			}
			if err := envOrders.sort(nil, order); err != nil {
				return err
			}
			if len(args) == 1 {
				if err := onlyForLists(cmd, args[0], "cluster", "all-namespaces"); err != nil {
					return err
				}
				namespace, name, err := of.resolve(args[0])
				if err != nil {
					return err
				}
				d.fetch = func(ctx context.Context, c clients) (fetched[*sandboxv1.Env], error) {
					env, err := c.envs.GetEnv(ctx, &sandboxv1.GetEnvRequest{Namespace: namespace, Name: name})
					return fetched[*sandboxv1.Env]{[]*sandboxv1.Env{env}, env}, err
				}
				if !how.watch {
					d.print = func(got fetched[*sandboxv1.Env]) error { return showEnv(cmd.OutOrStdout(), a.output, got.items[0]) }
				}
			}
			return d.run(how)
		},
	}
	cmd.AddCommand(refreshCommand(a), rolloutCommand(a), revisionsCommand(a), importCommand(a))
	of.bind(cmd.Flags())
	bindAllNamespaces(cmd)
	cmd.Flags().Lookup("namespace").Usage = "only this namespace; of a named Env, its namespace"
	cmd.Flags().StringVar(&cluster, "cluster", "", "only those that this cluster has")
	envOrders.bind(cmd, &order)
	how.bind(cmd, "ready", "empty")
	_ = cmd.RegisterFlagCompletionFunc("cluster", a.completeClusters)
	return cmd
}

func allEnvs(ctx context.Context, c clients, r *sandboxv1.ListEnvsRequest) (fetched[*sandboxv1.Env], error) {
	whole := &sandboxv1.ListEnvsResponse{}
	for {
		page, err := c.envs.ListEnvs(ctx, r)
		if err != nil {
			return fetched[*sandboxv1.Env]{}, err
		}
		whole.Envs = append(whole.Envs, page.GetEnvs()...)
		if r.PageToken = page.GetNextPageToken(); r.PageToken == "" {
			return fetched[*sandboxv1.Env]{whole.GetEnvs(), whole}, nil
		}
	}
}

// showEnv prints the members of an Env. A table also shows the problems that a person must fix, and the clusters that do not serve the Env.
func showEnv(w io.Writer, output string, env *sandboxv1.Env) error {
	if err := memberView.list(w, output, membersOf(env), env); err != nil || !tabular(output) {
		return err
	}
	for _, fault := range slices.Concat(faultsOf(env), lackedBy(env), troubles(env.GetCatalog())) {
		if _, err := fmt.Fprintf(w, "\n%s\n", clip.Line(fault)); err != nil {
			return err
		}
	}
	return nil
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
