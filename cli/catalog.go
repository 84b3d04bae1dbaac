// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/clip"
	"navix.sh/atoll/pkg/problem"
)

// catalogued describes briefly where an object of the catalogue has been delivered.
func catalogued(e *sandboxv1.CatalogEntry) string {
	if e == nil {
		return ""
	}
	out := []string{fmt.Sprintf("revision %d", e.GetRevision())}
	if e.GetRemoved() {
		out[0] += " (removed)"
	}
	for _, c := range e.GetClusters() {
		if c.GetState() != sandboxv1.CatalogCluster_APPLIED {
			out = append(out, c.GetClusterId()+" "+strings.ToLower(c.GetState().String()))
		}
	}
	return strings.Join(out, ", ")
}

// troubles returns what keeps clusters from having what the catalogue has.
func troubles(e *sandboxv1.CatalogEntry) (out []string) {
	for _, c := range e.GetClusters() {
		if c.GetState() != sandboxv1.CatalogCluster_APPLIED {
			out = append(out, fmt.Sprintf("catalogue: %s: %s: %s: %s", c.GetClusterId(), strings.ToLower(c.GetState().String()), c.GetReason(),
				c.GetMessage()))
		}
	}
	return out
}

var templateView = view[*sandboxv1.Template]{
	name: (*sandboxv1.Template).GetName,
	columns: []column[*sandboxv1.Template]{
		{header: "TEMPLATE", value: (*sandboxv1.Template).GetName},
		{header: "CATALOGUE", value: func(t *sandboxv1.Template) string { return catalogued(t.GetCatalog()) }},
		{header: "CHANGED-BY", value: func(t *sandboxv1.Template) string { return t.GetCatalog().GetChangedBy() }},
	},
}

func templatesCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "templates [NAME]",
		Aliases: []string{"template"},
		Short:   "Show the templates of the catalogue that you may see",
		Example: `  atollctl templates
  atollctl get template base -o yaml`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd, func(ctx context.Context, c clients) error {
				if len(args) == 1 {
					one, err := c.templates.GetTemplate(ctx, &sandboxv1.GetTemplateRequest{Name: args[0]})
					if err != nil {
						return err
					}
					return templateView.one(cmd.OutOrStdout(), a.output, one)
				}
				whole, page := &sandboxv1.ListTemplatesResponse{}, &sandboxv1.ListTemplatesRequest{}
				for {
					got, err := c.templates.ListTemplates(ctx, page)
					if err != nil {
						return err
					}
					whole.Templates = append(whole.Templates, got.GetTemplates()...)
					if page.PageToken = got.GetNextPageToken(); page.PageToken == "" {
						return templateView.all(cmd, a.output, "templates", whole.GetTemplates(), whole)
					}
				}
			})
		},
	}
}

var revisionView = view[*sandboxv1.CatalogRevision]{
	name: func(r *sandboxv1.CatalogRevision) string { return number(r.GetRevision()) },
	columns: []column[*sandboxv1.CatalogRevision]{
		{header: "REVISION", value: func(r *sandboxv1.CatalogRevision) string { return number(r.GetRevision()) }},
		{header: "CHANGED", value: func(r *sandboxv1.CatalogRevision) string {
			return r.GetChanged().AsTime().Format("2006-01-02 15:04:05Z")
		}},
		{header: "BY", value: (*sandboxv1.CatalogRevision).GetChangedBy},
		{header: "CHANGES", value: func(r *sandboxv1.CatalogRevision) string {
			if r.GetManifest() == nil {
				return "removed or hidden"
			}
			return clip.Line(strings.Join(r.GetChanges(), "; "))
		}},
	},
}

func revisionsCommand(a *app) *cobra.Command {
	var of envRef
	cmd := &cobra.Command{
		Use:     "revisions [NAMESPACE/]NAME",
		Short:   "List the last changes of an Env in the catalogue: when, by whom, and what",
		Example: `  atollctl envs revisions agents/shell`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			namespace, name, err := of.resolve(args[0])
			if err != nil {
				return err
			}
			return a.call(cmd, func(ctx context.Context, c clients) error {
				got, err := c.envs.ListEnvRevisions(ctx, &sandboxv1.ListEnvRevisionsRequest{Namespace: namespace, Name: name})
				if err != nil {
					return err
				}
				return revisionView.all(cmd, a.output, "revisions", got.GetRevisions(), got)
			})
		},
	}
	of.bind(cmd.Flags())
	return cmd
}

var rolloutView = view[*sandboxv1.Rollout]{
	name: func(r *sandboxv1.Rollout) string { return number(r.GetRevision()) },
	columns: []column[*sandboxv1.Rollout]{
		{header: "STATE", value: func(r *sandboxv1.Rollout) string { return r.GetState().String() }},
		{header: "REVISION", value: func(r *sandboxv1.Rollout) string { return number(r.GetRevision()) }},
		{header: "STAGE", value: func(r *sandboxv1.Rollout) string { return fmt.Sprintf("%d/%d", r.GetStage(), len(r.GetStages())) }},
		{header: "STAGES", value: func(r *sandboxv1.Rollout) string {
			var out []string
			for _, s := range r.GetStages() {
				out = append(out, strings.Join(s.GetClusters(), ",")+" "+s.GetState())
			}
			return strings.Join(out, "; ")
		}},
		{header: "REASON", value: (*sandboxv1.Rollout).GetReason},
		{header: "MESSAGE", value: func(r *sandboxv1.Rollout) string { return clip.Line(r.GetMessage()) }},
	},
}

func rolloutCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rollout",
		Short: "Show, pause, resume or undo the rollout of an Env of the catalogue",
		Long: `Show, pause, resume or undo the rollout of an Env of the catalogue. The annotation agentbox.navix.sh/rollout of the manifest is its
plan: stages, pause, onFailure, abortOn.`,
		Example: `  atollctl envs rollout status agents/shell
  atollctl envs rollout undo agents/shell --to-revision 3`,
	}
	for _, one := range []struct {
		name, short string
		action      sandboxv1.ControlRolloutRequest_Action
	}{
		{"status", "Show how far a rollout has come", sandboxv1.ControlRolloutRequest_ACTION_UNSPECIFIED},
		{"pause", "Stop a rollout at its present stage", sandboxv1.ControlRolloutRequest_PAUSE},
		{"resume", "Go on with a rollout; one that waits between stages begins the next one", sandboxv1.ControlRolloutRequest_RESUME},
		{"undo", "Give every cluster an earlier revision", sandboxv1.ControlRolloutRequest_UNDO},
	} {
		var of envRef
		request := &sandboxv1.ControlRolloutRequest{Action: one.action}
		sub := &cobra.Command{
			Use: one.name + " [NAMESPACE/]NAME", Short: one.short, Example: "  atollctl envs rollout " + one.name + " agents/shell",
			Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) (err error) {
				if request.Namespace, request.Name, err = of.resolve(args[0]); err != nil {
					return err
				}
				return a.call(cmd, func(ctx context.Context, c clients) error {
					var got *sandboxv1.Rollout
					var err error
					if request.GetAction() == sandboxv1.ControlRolloutRequest_ACTION_UNSPECIFIED {
						got, err = c.envs.GetRollout(ctx, &sandboxv1.GetRolloutRequest{Namespace: request.GetNamespace(), Name: request.GetName()})
					} else {
						got, err = c.envs.ControlRollout(ctx, request)
					}
					if err != nil {
						return err
					}
					return rolloutView.one(cmd.OutOrStdout(), a.output, got)
				})
			},
		}
		of.bind(sub.Flags())
		if one.action == sandboxv1.ControlRolloutRequest_UNDO {
			sub.Flags().Int32Var(&request.ToRevision, "to-revision", 0,
				"revision to go back to; default what the rollout began with, or the one before; needed where the latest is an undo")
		}
		cmd.AddCommand(sub)
	}
	return cmd
}

func importCommand(a *app) *cobra.Command {
	var of envRef
	request := &sandboxv1.ImportEnvRequest{}
	cmd := &cobra.Command{
		Use:   "import [NAMESPACE/]NAME",
		Short: "Take an Env that was applied in the clusters into the catalogue",
		Long: `Take an Env that was applied in the clusters into the catalogue: each cluster's own segment, and what most clusters have of the
rest. It prints the manifest, and what differs between clusters. Nothing is put into the catalogue while a cluster cannot be asked, or
refuses.`,
		Example: `  atollctl envs import agents/shell --dry-run`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if request.Namespace, request.Name, err = of.resolve(args[0]); err != nil {
				return err
			}
			return a.call(cmd, func(ctx context.Context, c clients) error {
				got, err := c.envs.ImportEnv(ctx, request)
				if err != nil {
					return err
				}
				for _, d := range got.GetDifferences() {
					fmt.Fprintln(cmd.ErrOrStderr(), "differs: "+clip.Line(d))
				}
				return showImport(cmd.OutOrStdout(), a.output, got)
			})
		},
	}
	of.bind(cmd.Flags())
	cmd.Flags().BoolVar(&request.DryRun, "dry-run", false, "print the manifest, and put nothing into the catalogue")
	return cmd
}

// showImport prints the manifest. It fails if the part of a cluster that could not be asked is missing.
func showImport(out io.Writer, format string, got *sandboxv1.ImportEnvResponse) error {
	if format == "json" {
		if err := encode(out, format, got); err != nil {
			return err
		}
	} else {
		text, err := manifestYAML(got.GetManifest())
		if err != nil {
			return err
		}
		if _, err := out.Write(text); err != nil {
			return err
		}
	}
	var errs []error
	for _, c := range got.GetClusters() {
		if c.GetState() != sandboxv1.CatalogCluster_APPLIED {
			errs = append(errs, problem.New(problem.Unavailable, "the manifest may lack the part of %s, which could not be read: %s",
				c.GetClusterId(), clip.Line(c.GetMessage())))
		}
	}
	return errors.Join(errs...)
}
