// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/clip"
	"navix.sh/atoll/pkg/problem"
)

var refreshView = view[*sandboxv1.RefreshedMember]{
	name: func(m *sandboxv1.RefreshedMember) string { return m.GetClusterId() + "/" + m.GetName() },
	columns: []column[*sandboxv1.RefreshedMember]{
		{header: "CLUSTER", value: (*sandboxv1.RefreshedMember).GetClusterId},
		{header: "POOL", value: (*sandboxv1.RefreshedMember).GetName},
		{header: "OUTCOME", value: func(m *sandboxv1.RefreshedMember) string { return m.GetOutcome().String() }},
		{header: "REASON", value: (*sandboxv1.RefreshedMember).GetReason},
		{header: "CHANGES", value: func(m *sandboxv1.RefreshedMember) string { return number(int32(len(m.GetChanges()))) }},
		{header: "MESSAGE", value: func(m *sandboxv1.RefreshedMember) string { return clip.Line(m.GetMessage()) }},
	},
}

func refreshCommand(a *app) *cobra.Command {
	request := &sandboxv1.RefreshEnvRequest{}
	var of envRef
	cmd := &cobra.Command{
		Use:   "refresh [NAMESPACE/]NAME",
		Short: "Make an Env's pools anew from what its template, overrides and instance types are now",
		Long: `Make an Env's pools anew from what its template, overrides, members' config and instance types are now. A pool goes on as
it was made until then; the condition TemplateConsistent says which of them are behind.

Replicas stay, and so do sandboxes that run: their Pods are replaced when they have ended. Idle Pods of the old kind are
replaced a few at a time, broken ones first; --max-unavailable says how many may be missing meanwhile.`,
		Example: `  atollctl envs refresh agents/shell --dry-run
  atollctl envs refresh agents/shell --cluster east --max-unavailable 50%`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeEnvs,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if request.Namespace, request.Name, err = of.resolve(args[0]); err != nil {
				return err
			}
			return a.call(cmd, func(ctx context.Context, c clients) error {
				got, err := c.envs.RefreshEnv(ctx, request)
				if err != nil {
					return err
				}
				return showRefresh(cmd.OutOrStdout(), a.output, got)
			})
		},
	}
	flags := cmd.Flags()
	of.bind(flags)
	flags.StringSliceVar(&request.Clusters, "cluster", nil, "only in these clusters")
	flags.StringSliceVar(&request.Members, "member", nil, "only these pools")
	flags.BoolVar(&request.DryRun, "dry-run", false, "show what would change, field by field, and change nothing")
	flags.StringVar(&request.MaxUnavailable, "max-unavailable", "",
		"how many idle Pods of a pool may be missing while old ones are replaced: a number or a percentage; 0 replaces none that could serve "+
			"(default 20%)")
	return cmd
}

// showRefresh prints the outcome for each member. It fails if a cluster did not respond or refused.
func showRefresh(out io.Writer, format string, got *sandboxv1.RefreshEnvResponse) error {
	if err := refreshView.list(out, format, got.GetMembers(), got); err != nil {
		return err
	}
	var errs []error
	for _, m := range got.GetMembers() {
		switch m.GetOutcome() {
		case sandboxv1.RefreshedMember_REFRESHED, sandboxv1.RefreshedMember_UNCHANGED, sandboxv1.RefreshedMember_WOULD_REFRESH:
		default:
			errs = append(errs, fmt.Errorf("%s/%s was not refreshed: %s", m.GetClusterId(), m.GetName(), m.GetMessage()))
		}
		if len(m.GetChanges()) > 0 && tabular(format) {
			lines := fmt.Sprintf("\n%s/%s\n", m.GetClusterId(), m.GetName())
			for _, change := range m.GetChanges() {
				lines += "  " + clip.Line(change) + "\n"
			}
			if _, err := io.WriteString(out, lines); err != nil {
				return err
			}
		}
	}
	for _, f := range got.GetFailures() {
		why := problem.New(problem.Reason(f.GetReason()), "%s", f.GetMessage()) // determines the exit code
		errs = append(errs, fmt.Errorf("cluster %s: %w", f.GetClusterId(), why))
	}
	return errors.Join(errs...)
}
