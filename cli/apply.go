// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
	sigsyaml "sigs.k8s.io/yaml"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/clip"
	"navix.sh/atoll/pkg/manifest"
	"navix.sh/atoll/pkg/problem"
)

func applyCommand(a *app) *cobra.Command {
	var files []string
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Put SandboxEnvs and SandboxTemplates into the hub's catalogue, which gives each cluster its part",
		Long: `Put SandboxEnvs and SandboxTemplates into the hub's catalogue, which gives each cluster its part. The manifests are those that
kubectl applies in a cluster, with the segments of all clusters. Each is checked as an API server does it, before any cluster hears of it;
what is wrong is told with file, line and field. atollctl diff tells what an apply would do.`,
		Example: `  atollctl apply -f envs/
  kubectl kustomize overlays/prod | atollctl apply -f -`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.onlyTable(cmd, "envs NAME -o yaml and templates NAME -o yaml print what the catalogue has"); err != nil {
				return err
			}
			docs, err := readManifests(cmd.InOrStdin(), files)
			if err != nil {
				return err
			}
			return a.call(cmd, func(ctx context.Context, c clients) error {
				var faults []error
				for _, d := range docs {
					what, err := put(ctx, cmd.ErrOrStderr(), c, d, 0)
					if err != nil {
						faults = append(faults, d.fault(err))
						continue
					}
					fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", d.object.Ref(), what)
				}
				return errors.Join(faults...)
			})
		},
	}
	cmd.Flags().StringSliceVarP(&files, "filename", "f", nil, "file or folder with manifests, YAML or JSON; - for stdin")
	return cmd
}

// entry returns the catalogue's entry of an object, or nil if there is none.
func entry(ctx context.Context, c clients, r manifest.Ref) (e *sandboxv1.CatalogEntry, m *structpb.Struct, err error) {
	if r.Kind == manifest.EnvKind {
		env, failed := c.envs.GetEnv(ctx, &sandboxv1.GetEnvRequest{Namespace: r.Namespace, Name: r.Name})
		e, m, err = env.GetCatalog(), env.GetCatalog().GetManifest(), failed
	} else {
		t, failed := c.templates.GetTemplate(ctx, &sandboxv1.GetTemplateRequest{Name: r.Name})
		e, m, err = t.GetCatalog(), t.GetTemplate(), failed
	}
	if err == nil {
		return e, m, nil
	}
	switch problem.FromError(err).Reason {
	case problem.NotFound, problem.Recovering: // a hub that still waits for clusters already knows its catalogue
		return nil, nil, nil
	}
	return nil, nil, err
}

// put writes a manifest, prints warnings, and returns what happened to it. revision is the revision that it must replace; 0: any.
func put(ctx context.Context, warn io.Writer, c clients, d *document, revision int32) (string, error) {
	before, _, err := entry(ctx, c, d.object.Ref())
	if err != nil {
		return "", err
	}
	m, err := d.toStruct()
	if err != nil {
		return "", err
	}
	var after *sandboxv1.CatalogEntry
	if d.object.Kind() == manifest.EnvKind {
		env, failed := c.envs.PutEnv(ctx, &sandboxv1.PutEnvRequest{
			Namespace: d.object.Namespace(), Name: d.object.Name(), Env: m, Revision: revision,
		})
		after, err = env.GetCatalog(), failed
	} else {
		t, failed := c.templates.PutTemplate(ctx, &sandboxv1.PutTemplateRequest{Name: d.object.Name(), Template: m, Revision: revision})
		after, err = t.GetCatalog(), failed
	}
	showWarnings(warn, d.object.Ref(), after.GetWarnings())
	switch {
	case err != nil:
		return "", err
	case before == nil || before.GetRemoved():
		return fmt.Sprintf("created (revision %d)", after.GetRevision()), nil
	case before.GetRevision() == after.GetRevision():
		return fmt.Sprintf("unchanged (revision %d)", after.GetRevision()), nil
	}
	return fmt.Sprintf("configured (revision %d)", after.GetRevision()), nil
}

// showWarnings prints warnings as kubectl does.
func showWarnings(w io.Writer, ref manifest.Ref, all []string) {
	for _, text := range all {
		fmt.Fprintf(w, "Warning: %s: %s\n", ref, clip.Line(text))
	}
}

// catalogRef parses KIND NAME of a command line.
func catalogRef(of *envRef, kind, name string) (manifest.Ref, error) {
	switch kind {
	case "env", "envs", "sandboxenv", "sandboxenvs":
		namespace, resolved, err := of.resolve(name)
		return manifest.Ref{Kind: manifest.EnvKind, Namespace: namespace, Name: resolved}, err
	case "template", "templates", "sandboxtemplate", "sandboxtemplates":
		return manifest.Ref{Kind: manifest.TemplateKind, Name: name}, nil
	}
	return manifest.Ref{}, usagef("kind %q is not valid, want env or template", kind)
}

func deleteCommand(a *app) *cobra.Command {
	var files []string
	var of envRef
	cmd := &cobra.Command{
		Use:   "delete (env|template) NAME | delete -f FILE",
		Short: "Remove Envs and templates from the hub's catalogue, and from its clusters",
		Long: `Remove Envs and templates from the hub's catalogue, and from its clusters. Sandboxes that run end as they would have; a cluster
that is away does it when it is back. What a user owns in a cluster stays there.`,
		Example: `  atollctl delete env agents/shell
  atollctl delete -f envs/`,
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var refs []manifest.Ref
			switch {
			case len(args) == 2 && len(files) == 0:
				ref, err := catalogRef(&of, args[0], args[1])
				if err != nil {
					return err
				}
				refs = append(refs, ref)
			case len(args) == 0:
				docs, err := readManifests(cmd.InOrStdin(), files)
				if err != nil {
					return err
				}
				for i := range docs { // delete Envs before the templates that they name
					refs = append(refs, docs[len(docs)-1-i].object.Ref())
				}
			default:
				return usagef("delete needs a kind and a name, or --filename")
			}
			return a.call(cmd, func(ctx context.Context, c clients) error {
				var faults []error
				for _, r := range refs {
					var err error
					if r.Kind == manifest.EnvKind {
						_, err = c.envs.DeleteEnv(ctx, &sandboxv1.DeleteEnvRequest{Namespace: r.Namespace, Name: r.Name})
					} else {
						_, err = c.templates.DeleteTemplate(ctx, &sandboxv1.DeleteTemplateRequest{Name: r.Name})
					}
					if err != nil {
						faults = append(faults, err)
						continue
					}
					fmt.Fprintf(cmd.OutOrStdout(), "%s removed\n", r)
				}
				return errors.Join(faults...)
			})
		},
	}
	of.bind(cmd.Flags())
	cmd.Flags().StringSliceVarP(&files, "filename", "f", nil, "file or folder with manifests of what to remove; - for stdin")
	return cmd
}

func editCommand(a *app) *cobra.Command {
	var of envRef
	cmd := &cobra.Command{
		Use:   "edit (env|template) NAME",
		Short: "Change a manifest of the catalogue in an editor",
		Long: `Change a manifest of the catalogue in the editor that ATOLL_EDITOR or EDITOR names. What was changed meanwhile by another caller is
not replaced. If the change is not taken, the file that was edited is kept, and named.`,
		Example: `  atollctl edit env agents/shell`,
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			ref, err := catalogRef(&of, args[0], args[1])
			if err != nil {
				return err
			}
			return a.connect(cmd.Context(), func(c clients) error { return a.edit(cmd, c, ref) })
		},
	}
	of.bind(cmd.Flags())
	return cmd
}

// edit has no time limit for the user; each call has its own deadline. If it fails, what the user has written is kept in its file.
func (a *app) edit(cmd *cobra.Command, c clients, ref manifest.Ref) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), a.limit())
	defer cancel()
	before, m, err := entry(ctx, c, ref)
	if err != nil {
		return err
	}
	if before == nil || m == nil {
		return problem.New(problem.NotFound, "%s", ref.Missing())
	}
	text, err := manifestYAML(m)
	if err != nil {
		return err
	}
	file, err := temporary(text)
	if err != nil {
		return err
	}
	err = a.editFile(cmd, c, ref, before.GetRevision(), file, text)
	if written, unread := os.ReadFile(file); err != nil && unread == nil && !bytes.Equal(written, text) {
		fmt.Fprintf(cmd.ErrOrStderr(), "what you have written is kept in %s\n", file)
		return err
	}
	_ = os.Remove(file)
	return err
}

// temporary returns a new file with a text.
func temporary(text []byte) (path string, err error) {
	f, err := os.CreateTemp("", "atollctl-*.yaml")
	if err != nil {
		return "", err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}

// editFile lets the user change a manifest in a file, and puts it into the catalogue in the place of a revision.
func (a *app) editFile(cmd *cobra.Command, c clients, ref manifest.Ref, revision int32, file string, text []byte) error {
	// While the editor runs, an interrupt is for the editor: it ends neither that nor what follows.
	ctx, stop := signal.NotifyContext(context.WithoutCancel(cmd.Context()), syscall.SIGTERM)
	defer stop()
	changed, err := inEditor(ctx, cmd, file)
	if err != nil {
		return err
	}
	if bytes.Equal(changed, text) {
		fmt.Fprintf(cmd.OutOrStdout(), "%s unchanged\n", ref)
		return nil
	}
	docs, err := parseManifests(ref.String(), changed)
	if err != nil {
		return err
	}
	if len(docs) != 1 || docs[0].object.Ref() != ref {
		return usagef("the file must have one manifest, of %s", ref)
	}
	ctx, forget := signal.NotifyContext(ctx, os.Interrupt)
	defer forget()
	ctx, cancel := context.WithTimeout(ctx, a.limit())
	defer cancel()
	what, err := put(ctx, cmd.ErrOrStderr(), c, docs[0], revision)
	if err != nil {
		return docs[0].fault(err)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", ref, what)
	return nil
}

func manifestYAML(m *structpb.Struct) ([]byte, error) {
	data, err := protojson.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encoding a manifest: %w", err)
	}
	return sigsyaml.JSONToYAML(data)
}

// inEditor runs the editor on a file, and returns what the file has then.
func inEditor(ctx context.Context, cmd *cobra.Command, file string) ([]byte, error) {
	words := strings.Fields(cmp.Or(os.Getenv("ATOLL_EDITOR"), os.Getenv("EDITOR")))
	if len(words) == 0 {
		return nil, usagef("ATOLL_EDITOR or EDITOR must name an editor")
	}
	interrupts := make(chan os.Signal, 1) // while it is notified, no interrupt ends the program
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)
	run := exec.CommandContext(ctx, words[0], append(words[1:], file)...)
	run.Stdin, run.Stdout, run.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	if err := run.Run(); err != nil {
		return nil, fmt.Errorf("running %s: %w", words[0], err)
	}
	return os.ReadFile(file)
}
