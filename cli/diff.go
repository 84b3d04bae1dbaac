// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/clip"
	"navix.sh/atoll/pkg/manifest"
)

// Exit codes of diff, the same as those of kubectl diff.
const (
	exitDiffers exitCode = 1
	exitNoDiff  exitCode = 2 // an error, or a cluster that could not be asked
)

func diffCommand(a *app) *cobra.Command {
	var files []string
	cmd := &cobra.Command{
		Use:   "diff -f FILE",
		Short: "Tell what an apply would do in each cluster, field by field",
		Long: `Tell what an apply would do, by a dry run in each cluster: through its admission and its quotas. For each cluster: what is created,
changed, removed or refused, field by field, and what becomes of its pools. A cluster that could not be asked is named.

The exit code is 0 if nothing would change, 1 if something would, 2 if something is wrong, or a cluster could not be asked.`,
		Example: `  atollctl diff -f envs/`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			docs, err := readManifests(cmd.InOrStdin(), files)
			if err != nil {
				return err
			}
			code, several := exitCode(0), false
			err = a.call(cmd, func(ctx context.Context, c clients) error {
				var faults []error
				for _, d := range docs {
					got, err := plan(ctx, c, d)
					if err != nil {
						faults = append(faults, d.fault(err))
						continue
					}
					code = max(code, codeOf(got))
					if a.output == "json" || a.output == "yaml" {
						if several && a.output == "yaml" {
							fmt.Fprintln(cmd.OutOrStdout(), "---")
						}
						several = true
						if err := encode(cmd.OutOrStdout(), a.output, got); err != nil {
							return err
						}
						continue
					}
					showWarnings(cmd.ErrOrStderr(), d.object.Ref(), unlessGiven(docs, d, got.GetWarnings()))
					showPlan(cmd.OutOrStdout(), d.object.Ref(), got)
				}
				return errors.Join(faults...)
			})
			if err != nil {
				reportError(cmd.ErrOrStderr(), err)
				return exitNoDiff
			}
			if code != 0 {
				return code
			}
			return nil
		},
	}
	cmd.Flags().StringSliceVarP(&files, "filename", "f", nil, "file or folder with manifests, YAML or JSON; - for stdin")
	return cmd
}

func plan(ctx context.Context, c clients, d *document) (*sandboxv1.PlanEnvResponse, error) {
	m, err := d.toStruct()
	if err != nil {
		return nil, err
	}
	if d.object.Kind() == manifest.EnvKind {
		return c.envs.PlanEnv(ctx, &sandboxv1.PlanEnvRequest{Namespace: d.object.Namespace(), Name: d.object.Name(), Env: m})
	}
	return c.templates.PlanTemplate(ctx, &sandboxv1.PlanTemplateRequest{Name: d.object.Name(), Template: m})
}

// unlessGiven drops the warning about a missing template if the same diff contains the template.
func unlessGiven(docs []*document, d *document, warnings []string) []string {
	if !slices.ContainsFunc(docs, func(t *document) bool {
		return t.object.Ref() == manifest.Ref{Kind: manifest.TemplateKind, Name: d.object.Template()}
	}) {
		return warnings
	}
	return slices.DeleteFunc(slices.Clone(warnings), func(w string) bool { return strings.HasPrefix(w, "spec.templateRef.name: ") })
}

func codeOf(p *sandboxv1.PlanEnvResponse) (code exitCode) {
	for _, c := range p.GetClusters() {
		switch c.GetAction() {
		case sandboxv1.PlannedCluster_UNCHANGED:
		case sandboxv1.PlannedCluster_UNKNOWN, sandboxv1.PlannedCluster_REFUSE:
			code = exitNoDiff
		default:
			code = max(code, exitDiffers)
		}
	}
	return code
}

func showPlan(w io.Writer, ref manifest.Ref, p *sandboxv1.PlanEnvResponse) {
	for _, c := range p.GetClusters() {
		if c.GetAction() == sandboxv1.PlannedCluster_UNCHANGED {
			continue
		}
		fmt.Fprintf(w, "%s in %s: %s\n", ref, c.GetClusterId(), strings.ToLower(c.GetAction().String()))
		if c.GetMessage() != "" {
			fmt.Fprintf(w, "  %s: %s\n", c.GetReason(), clip.Line(c.GetMessage()))
		}
		for _, change := range c.GetChanges() {
			fmt.Fprintln(w, "  "+clip.Line(change))
		}
		for _, pool := range c.GetPools() {
			fmt.Fprintf(w, "  pool %s: %s, %d idle, %d running and untouched", pool.GetName(), strings.ToLower(pool.GetAction()), pool.GetIdle(),
				pool.GetRunning())
			if pool.GetMessage() != "" {
				fmt.Fprint(w, ": "+clip.Line(pool.GetMessage()))
			}
			fmt.Fprintln(w)
		}
	}
}
