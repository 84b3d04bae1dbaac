// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"sigs.k8s.io/yaml"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/plural"
	"navix.sh/atoll/pkg/problem"
)

func accessCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "access",
		Short: "Show and change who may do what: roles, bindings and limits",
		Example: `  atollctl access get > access.yaml
  atollctl access apply -f access.yaml
  atollctl access can-i create sandboxes/exec --namespace default
  atollctl access who-can drain clusters`,
	}
	cmd.AddCommand(getAccessCommand(a), applyAccessCommand(a), canICommand(a), whoCanCommand(a))
	return cmd
}

// documentOutput returns the output format for objects that have no table.
func (a *app) documentOutput() string {
	if tabular(a.output) {
		return "yaml"
	}
	return a.output
}

func getAccessCommand(a *app) *cobra.Command {
	var builtIn bool
	cmd := &cobra.Command{
		Use:     "get",
		Short:   "Print roles, bindings and limits, as apply reads them",
		Example: "  atollctl access get --built-in",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.call(cmd, func(ctx context.Context, c clients) error {
				policy, err := c.access.GetAccess(ctx, &sandboxv1.GetAccessRequest{BuiltIn: builtIn})
				if err != nil {
					return err
				}
				return encode(cmd.OutOrStdout(), a.documentOutput(), policy)
			})
		},
	}
	cmd.Flags().BoolVar(&builtIn, "built-in", false, "the built-in roles as well")
	return cmd
}

func applyAccessCommand(a *app) *cobra.Command {
	var file string
	var force bool
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Replace roles, bindings and limits by those of a file",
		Long: `Replace roles, bindings and limits by those of a file, as "access get" prints them. With a revision in it the file is refused
if the policy was changed since; without one it replaces whatever is there.`,
		Example: "  atollctl access apply -f access.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			policy, err := readPolicy(cmd.InOrStdin(), file)
			if err != nil {
				return err
			}
			policy.Force = policy.GetForce() || force
			return a.call(cmd, func(ctx context.Context, c clients) error {
				now, err := c.access.PutAccess(ctx, policy)
				if err != nil {
					return err
				}
				if !tabular(a.output) {
					return encode(cmd.OutOrStdout(), a.output, now)
				}
				fmt.Fprintf(cmd.ErrOrStderr(), "applied: %s, %s, limits of %s, revision %s\n", plural.Of(len(now.GetRoles()), "role"),
					plural.Of(len(now.GetBindings()), "binding"), plural.Of(len(now.GetLimits()), "team"), now.GetRevision())
				return nil
			})
		},
	}
	cmd.Flags().StringVarP(&file, "filename", "f", "", "YAML or JSON file; -: stdin (required)")
	cmd.Flags().BoolVar(&force, "force", false, "also if you could not change the policy any more")
	_ = cmd.MarkFlagRequired("filename")
	return cmd
}

// maxPolicyFile bounds what is read from stdin. A hub accepts less.
const maxPolicyFile = 4 << 20

func readPolicy(stdin io.Reader, file string) (*sandboxv1.AccessPolicy, error) {
	var text []byte
	var err error
	if file == "-" {
		text, err = io.ReadAll(io.LimitReader(stdin, maxPolicyFile+1))
	} else {
		text, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, usagef("reading --filename: %w", err)
	}
	if file == "-" && len(text) > maxPolicyFile {
		return nil, usagef("reading --filename: more than %d bytes are not valid", maxPolicyFile)
	}
	data, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, usagef("reading %s: %w", file, err)
	}
	policy := &sandboxv1.AccessPolicy{}
	if string(data) == "null" {
		return nil, usagef("reading %s: it is empty; want roles, bindings, limits; to remove all: {}", file)
	}
	if err := protojson.Unmarshal(data, policy); err != nil {
		return nil, usagef("reading %s: %s", file, explainFields(err, policy.ProtoReflect().Descriptor()))
	}
	return policy, nil
}

// protoPlace matches the position that protobuf reports for an error. It refers to JSON made from the file, which the author has not seen.
var protoPlace = regexp.MustCompile(`^proto:\s*(\(line [0-9:]+\): )?`)

// explainFields adds the valid fields to an error about an unknown field in a file.
func explainFields(err error, message protoreflect.MessageDescriptor) string {
	// Protobuf writes some of its spaces as no-break spaces, which differs from build to build.
	text := protoPlace.ReplaceAllString(strings.ReplaceAll(err.Error(), "\u00a0", " "), "")
	m := unknownField.FindStringSubmatch(text)
	if m == nil {
		return text
	}
	all := fieldsOf(message)
	if near := problem.Nearest(m[1], all); near != "" {
		return fmt.Sprintf("there is no field %q; did you mean %q?", m[1], near)
	}
	return fmt.Sprintf("there is no field %q; there are: %s", m[1], strings.Join(all, ", "))
}

// fieldsOf returns the fields of a message and of its nested messages, each once.
func fieldsOf(message protoreflect.MessageDescriptor) (names []string) {
	fields := message.Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		names = append(names, f.JSONName())
		if f.Kind() == protoreflect.MessageKind && f.Message().ParentFile().Package() == message.ParentFile().Package() {
			names = append(names, fieldsOf(f.Message())...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// bindPlace registers the flags for the place that an access check is about.
func bindPlace(cmd *cobra.Command, in *sandboxv1.CheckAccessRequest) {
	cmd.Flags().StringVarP(&in.Namespace, "namespace", "n", "", "in this namespace; default: anywhere")
	cmd.Flags().StringVar(&in.Env, "env", "", "for this Env of the namespace")
	cmd.Flags().StringVar(&in.Cluster, "cluster", "", "on this cluster")
}

func canICommand(a *app) *cobra.Command {
	in := &sandboxv1.CheckAccessRequest{}
	var as [4]string
	kinds := [4]string{"Key", "User", "Group", "Team"}
	cmd := &cobra.Command{
		Use:   "can-i VERB RESOURCE",
		Short: "Tell whether you, or another subject, may do something, and why; if not, the exit code is 7",
		Example: `  atollctl access can-i create sandboxes -n default
  atollctl access can-i create sandboxes/exec -n default --as-key ci`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			in.Verb, in.Resource = args[0], args[1]
			for i, name := range as {
				switch {
				case name != "" && in.GetSubject() != nil:
					return usagef("--as-key, --as-user, --as-group, --as-team: want one of them")
				case name != "":
					in.Subject = &sandboxv1.Subject{Kind: kinds[i], Name: name}
				}
			}
			return a.call(cmd, func(ctx context.Context, c clients) error {
				out, err := c.access.CheckAccess(ctx, in)
				if err != nil {
					return err
				}
				if a.output == "json" || a.output == "yaml" {
					if err := encode(cmd.OutOrStdout(), a.output, out); err != nil {
						return err
					}
				} else {
					fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", map[bool]string{true: "yes", false: "no"}[out.GetAllowed()], out.GetReason())
				}
				if !out.GetAllowed() {
					return exitCode(problem.Forbidden.ExitCode())
				}
				return nil
			})
		},
	}
	for i, kind := range kinds {
		cmd.Flags().StringVar(&as[i], "as-"+strings.ToLower(kind), "",
			"ask about this "+strings.ToLower(kind)+"; it needs the permission to get access")
	}
	bindPlace(cmd, in)
	return cmd
}

func whoCanCommand(a *app) *cobra.Command {
	in := &sandboxv1.CheckAccessRequest{Who: true}
	cmd := &cobra.Command{
		Use:     "who-can VERB RESOURCE",
		Short:   "List the users, groups, keys and teams that may do something, by bindings and by scopes of keys",
		Example: "  atollctl access who-can create sandboxes/exec -n default",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			in.Verb, in.Resource = args[0], args[1]
			return a.call(cmd, func(ctx context.Context, c clients) error {
				out, err := c.access.CheckAccess(ctx, in)
				if err != nil {
					return err
				}
				if out.GetAllowed() { // no subject is named, because every caller may
					fmt.Fprintln(cmd.ErrOrStderr(), out.GetReason())
				}
				return subjectView.all(cmd, a.output, "subjects", out.GetSubjects(), out)
			})
		},
	}
	bindPlace(cmd, in)
	return cmd
}

var subjectView = view[*sandboxv1.Subject]{
	name: func(s *sandboxv1.Subject) string { return s.GetKind() + "/" + s.GetName() },
	columns: []column[*sandboxv1.Subject]{
		{header: "KIND", value: (*sandboxv1.Subject).GetKind},
		{header: "NAME", value: (*sandboxv1.Subject).GetName},
	},
}

// quota is the use of a team or a key.
type quota struct {
	*sandboxv1.QuotaUse
	kind string
}

var quotaView = view[quota]{
	name: func(q quota) string { return q.kind + "/" + q.GetName() },
	columns: []column[quota]{
		{header: "KIND", value: func(q quota) string { return q.kind }},
		{header: "NAME", value: func(q quota) string { return cmp.Or(q.GetName(), "(no team)") }},
		{header: "CLAIMS/S", value: func(q quota) string { return of(q.GetUsed().GetClaimsPerSecond(), q.GetLimits().GetClaimsPerSecond()) }},
		{header: "LIVE", value: func(q quota) string { return of(q.GetUsed().GetLiveSandboxes(), q.GetLimits().GetLiveSandboxes()) }},
		{header: "CLAIM-KEYS", value: func(q quota) string { return of(q.GetUsed().GetClaimKeys(), q.GetLimits().GetClaimKeys()) }},
		{header: "CONVERSATIONS", value: func(q quota) string { return of(q.GetUsed().GetConversations(), q.GetLimits().GetConversations()) }},
	},
}

// of formats how much of a limit is used.
func of[N int32 | float64](used, limit N) string {
	if limit == 0 {
		return fmt.Sprint(used)
	}
	return fmt.Sprintf("%v of %v", used, limit)
}

func quotaCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "quota [TEAM]",
		Aliases: []string{"quotas"},
		Short:   "Show the limits of teams and API keys, and what is used of them",
		Example: "  atollctl quota red",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in := &sandboxv1.GetQuotasRequest{}
			if len(args) == 1 {
				in.Team = args[0]
			}
			return a.call(cmd, func(ctx context.Context, c clients) error {
				out, err := c.access.GetQuotas(ctx, in)
				if err != nil {
					return err
				}
				var all []quota
				for _, one := range out.GetTeams() {
					all = append(all, quota{one, "team"})
				}
				for _, one := range out.GetKeys() {
					all = append(all, quota{one, "key"})
				}
				return quotaView.all(cmd, a.output, "quotas", all, out)
			})
		},
	}
}
