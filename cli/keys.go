// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/e2b"
)

var keyView = view[*sandboxv1.ApiKey]{
	name: (*sandboxv1.ApiKey).GetName,
	columns: []column[*sandboxv1.ApiKey]{
		{header: "NAME", value: (*sandboxv1.ApiKey).GetName},
		{header: "TEAM", value: func(k *sandboxv1.ApiKey) string { return orAll(k.GetTeam(), k.GetAllTeams()) }},
		{header: "NAMESPACES", value: func(k *sandboxv1.ApiKey) string {
			return orAll(strings.Join(k.GetNamespaces(), ","), k.GetAllNamespaces())
		}},
		{header: "SCOPES", value: func(k *sandboxv1.ApiKey) string { return strings.Join(k.GetScopes(), ",") }},
		{header: "EXPIRES", value: func(k *sandboxv1.ApiKey) string { return expires(time.Now(), k.GetExpires()) }},
		{header: "LAST-USED", value: func(k *sandboxv1.ApiKey) string { return since(time.Now(), k.GetLastUsed()) }},
		{header: "FROM", value: func(k *sandboxv1.ApiKey) string {
			if k.GetFromFile() {
				return "file"
			}
			return "store"
		}},
		{header: "USER", wide: true, value: (*sandboxv1.ApiKey).GetUser},
		{header: "CREATED", wide: true, value: func(k *sandboxv1.ApiKey) string { return since(time.Now(), k.GetCreated()) }},
		{header: "CREATED-BY", wide: true, value: (*sandboxv1.ApiKey).GetCreatedBy},
		{header: "OLD-TOKEN", wide: true, value: func(k *sandboxv1.ApiKey) string { return oldToken(time.Now(), k.GetOldTokenExpires()) }},
	},
}

func orAll(value string, all bool) string {
	if all {
		return "all"
	}
	return value
}

func expires(now time.Time, t *timestamppb.Timestamp) string {
	switch {
	case t == nil:
		return "never"
	case t.AsTime().After(now):
		left := t.AsTime().Sub(now)
		if left > time.Hour {
			left = left.Round(time.Minute) // so that a new key shows 90 days, not 89
		}
		return "in " + short(left)
	default:
		return "expired"
	}
}

func oldToken(now time.Time, t *timestamppb.Timestamp) string {
	if t == nil || !t.AsTime().After(now) {
		return ""
	}
	return expires(now, t)
}

func keysCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "keys",
		Aliases: []string{"key"},
		Short:   "Make, list, rotate and revoke API keys",
		Example: `  atollctl keys create ci --team red --namespaces default
  atollctl keys list
  atollctl keys rotate ci --overlap 1h
  atollctl keys revoke ci`,
	}
	cmd.AddCommand(createKeyCommand(a), listKeysCommand(a), rotateKeyCommand(a), revokeKeyCommand(a))
	return cmd
}

// limitFlags are the limits of a key.
func limitFlags(cmd *cobra.Command, l *sandboxv1.KeyLimits) {
	flags := cmd.Flags()
	flags.Float64Var(&l.ClaimsPerSecond, "claims-per-second", 0, "how many sandboxes it may claim a second; 0: no limit of its own")
	flags.Int32Var(&l.LiveSandboxes, "live-sandboxes", 0,
		"how many sandboxes its team and user may have in its namespaces; 0: no limit of its own")
	flags.Int32Var(&l.ClaimKeys, "claim-keys", 0, "how many claim keys its team may have; 0: no limit of its own")
	flags.Int32Var(&l.Conversations, "conversations", 0, "how many conversations with sandboxes it may have; 0: no limit of its own")
}

func createKeyCommand(a *app) *cobra.Command {
	in := &sandboxv1.CreateKeyRequest{Limits: &sandboxv1.KeyLimits{}}
	var all bool
	var valid time.Duration
	var out string
	var forE2B bool
	cmd := &cobra.Command{
		Use:   "create NAME (--team TEAM --namespaces NAMESPACE,... | --all) [--scopes read,claim,admin]",
		Short: "Make an API key, and print its token, which is kept nowhere",
		Long: `Make an API key, and print its token, which is kept nowhere.

A scope is a role in the key's namespaces: read is viewer, claim is developer, admin is admin. With --scopes "" the key has what is bound
to it, or to its team: see "atollctl access".`,
		Example: `  atollctl keys create ci --team red --namespaces default
  atollctl keys create platform --all --scopes admin --valid-for 720h --out platform.token`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in.Name = args[0]
			in.AllTeams, in.AllNamespaces = in.AllTeams || all, in.AllNamespaces || all
			if len(in.GetScopes()) > 0 && len(in.GetNamespaces()) == 0 && !in.GetAllNamespaces() {
				return usagef("%s needs --namespaces, --all-namespaces or --all: where the scopes hold", cmd.CommandPath())
			}
			if cmd.Flags().Changed("valid-for") {
				in.ValidFor = durationpb.New(valid)
			}
			return a.createToken(cmd, out, func(ctx context.Context, c clients) (*sandboxv1.ApiKey, error) {
				key, err := c.keys.CreateKey(ctx, in)
				if err == nil && forE2B {
					key.Token, err = e2b.ClientKey(key.GetToken())
				}
				return key, err
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&in.Team, "team", "", "the only team that the key's claims may have and see")
	flags.BoolVar(&in.AllTeams, "all-teams", false, "the key's claims may have and see every team, and none")
	flags.StringVar(&in.User, "user", "", "the only user that the key's claims may have and see")
	flags.StringSliceVar(&in.Namespaces, "namespaces", nil, "the only namespaces that the key reaches")
	flags.BoolVar(&in.AllNamespaces, "all-namespaces", false, "the key reaches every namespace")
	flags.BoolVar(&all, "all", false, "--all-teams and --all-namespaces")
	flags.StringSliceVar(&in.Scopes, "scopes", []string{"claim"}, "read, claim (and read), admin (everything)")
	flags.DurationVar(&valid, "valid-for", 90*24*time.Hour, "how long the key is good for; 0: until it is revoked")
	flags.BoolVar(&forE2B, "e2b", false, "print the token in the form that E2B's clients check")
	for _, every := range []string{"all-teams", "all"} {
		cmd.MarkFlagsMutuallyExclusive("team", every)
	}
	for _, every := range []string{"all-namespaces", "all"} {
		cmd.MarkFlagsMutuallyExclusive("namespaces", every)
	}
	outFlag(cmd, &out)
	limitFlags(cmd, in.Limits)
	return cmd
}

func outFlag(cmd *cobra.Command, out *string) {
	cmd.Flags().StringVar(out, "out", "", "write the token to this new file, for its owner's eyes, and print it nowhere")
}

// createToken creates a token and passes it to the user: in a new file, which is created first, or as the only output on stdout.
func (a *app) createToken(cmd *cobra.Command, out string, make func(context.Context, clients) (*sandboxv1.ApiKey, error)) error {
	var file *os.File
	if out != "" {
		var err error
		if file, err = os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
			return usagef("--out: %w", err)
		}
		defer file.Close()
	}
	made := false
	err := a.call(cmd, func(ctx context.Context, c clients) error {
		key, err := make(ctx, c)
		if err != nil {
			return err
		}
		made = true
		if hub, err := c.hub.GetHub(ctx, &sandboxv1.GetHubRequest{}); err == nil && hub.GetOpen() {
			fmt.Fprintln(cmd.ErrOrStderr(), "Warning: this hub asks no caller for a key (it has no --auth): who reaches it may do everything")
		}
		return a.deliverToken(cmd, key, file)
	})
	if file != nil && !made {
		_ = os.Remove(out) // it is empty
	}
	return err
}

// deliverToken writes a new token to the file, or prints it.
func (a *app) deliverToken(cmd *cobra.Command, key *sandboxv1.ApiKey, file *os.File) error {
	if file != nil {
		_, err := fmt.Fprintln(file, key.GetToken())
		if err = errors.Join(err, file.Sync()); err != nil {
			return fmt.Errorf("the key %s is made, and its token is lost (rotate it): %w", key.GetName(), err)
		}
		key.Token = ""
	}
	if !tabular(a.output) {
		return keyView.one(cmd.OutOrStdout(), a.output, key)
	}
	until := expires(time.Now(), key.GetExpires())
	if file != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "API key %s expires: %s. Its token is in %s, and is kept nowhere else.\n", key.GetName(), until,
			file.Name())
		return nil
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "API key %s expires: %s. Its token, which is kept nowhere:\n", key.GetName(), until)
	fmt.Fprintln(cmd.OutOrStdout(), key.GetToken())
	return nil
}

func listKeysCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the API keys of the hub's store and of its file",
		Example: "  atollctl keys list -o wide",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.call(cmd, func(ctx context.Context, c clients) error {
				list, err := c.keys.ListKeys(ctx, &sandboxv1.ListKeysRequest{})
				if err != nil {
					return err
				}
				return keyView.all(cmd, a.output, "API keys", list.GetKeys(), list)
			})
		},
	}
}

func rotateKeyCommand(a *app) *cobra.Command {
	var overlap, valid time.Duration
	var out string
	cmd := &cobra.Command{
		Use:     "rotate NAME",
		Short:   "Give an API key a new token; the old one stays valid for a while",
		Example: "  atollctl keys rotate ci --overlap 1h",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in := &sandboxv1.RotateKeyRequest{Name: args[0], Overlap: durationpb.New(overlap)}
			if cmd.Flags().Changed("valid-for") {
				in.ValidFor = durationpb.New(valid)
			}
			return a.createToken(cmd, out, func(ctx context.Context, c clients) (*sandboxv1.ApiKey, error) { return c.keys.RotateKey(ctx, in) })
		},
	}
	cmd.Flags().DurationVar(&overlap, "overlap", 24*time.Hour, "for how long the old token stays valid; 0: not at all")
	cmd.Flags().DurationVar(&valid, "valid-for", 0,
		"how long the new token is good for; 0: until it is revoked; default: as long as the old one was")
	outFlag(cmd, &out)
	return cmd
}

func revokeKeyCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "revoke NAME...",
		Short:   "Revoke API keys: their calls are refused at once, and their watches and conversations end",
		Example: "  atollctl keys revoke ci",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd, func(ctx context.Context, c clients) error {
				var errs []error
				for _, name := range args { // also after one that fails: a key that is known to others must not stay valid
					if _, err := c.keys.DeleteKey(ctx, &sandboxv1.DeleteKeyRequest{Name: name}); err != nil {
						errs = append(errs, fmt.Errorf("revoking %s: %w", name, err))
						continue
					}
					fmt.Fprintf(cmd.ErrOrStderr(), "revoked %s\n", name)
				}
				return errors.Join(errs...)
			})
		},
	}
}
