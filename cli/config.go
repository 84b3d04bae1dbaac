// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"navix.sh/atoll/cli/internal/signin"
)

// withoutContext annotates commands that change contexts or use no server. They work even if the current context is invalid.
const withoutContext = "without-context"

func configCommand(app *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Contexts: the hubs that you use, and where the token for each comes from",
		Long: `Contexts: the hubs that you use, and where the token for each comes from.

They are in ~/.config/atoll/config.yaml (or where ATOLL_CONFIG_HOME or XDG_CONFIG_HOME says). A command uses the current
context, or that of --context. Flags and the environment come before a context. A server that is named by --server or
ATOLL_SERVER is not the current context's and gets none of its tokens.`,
		Example: `  atollctl config get-contexts
  atollctl config use-context prod`,
		Annotations: map[string]string{withoutContext: ""},
	}
	cmd.AddCommand(getContextsCommand(), currentContextCommand(), useContextCommand(), setContextCommand(app), deleteContextCommand(),
		viewConfigCommand())
	return cmd
}

func getContextsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "get-contexts", Example: "  atollctl config get-contexts", Short: "List the contexts", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, err := loadContexts()
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 3, ' ', 0)
			fmt.Fprintln(w, "CURRENT\tNAME\tSERVER\tTOKEN")
			for _, name := range file.names() {
				side, mark := file.find(name), ""
				if name == file.CurrentContext {
					mark = "*"
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", mark, name, side.Server, side.source())
			}
			return w.Flush()
		},
	}
}

// source describes the source of the token.
func (h *hubSide) source() string {
	switch {
	case h.TokenFile != "":
		return "file " + h.TokenFile
	case h.Exec != nil:
		return "command " + h.Exec.Command
	case h.OIDC == nil:
		return "none"
	}
	user := "not signed in"
	if dir, err := configDir(); err == nil {
		if t, err := signin.NewStore(dir, h.Name).Load(*h.OIDC); err == nil && t != nil {
			user = t.User
		}
	}
	return h.OIDC.Issuer + " (" + user + ")"
}

func currentContextCommand() *cobra.Command {
	return &cobra.Command{
		Use: "current-context", Example: "  atollctl config current-context", Short: "Print the name of the current context", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, err := loadContexts()
			if err != nil {
				return err
			}
			if file.CurrentContext == "" {
				return errors.New("there is no current context")
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), file.CurrentContext)
			return err
		},
	}
}

func completeContexts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	file, err := loadContexts()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return file.names(), cobra.ShellCompDirectiveNoFileComp
}

func useContextCommand() *cobra.Command {
	return &cobra.Command{
		Use: "use-context NAME", Example: "  atollctl config use-context prod", Short: "Make a context the current one", Args: cobra.ExactArgs(1),
		ValidArgsFunction: firstOnly(completeContexts),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := loadContexts()
			if err != nil {
				return err
			}
			if _, err := file.must(args[0]); err != nil {
				return err
			}
			file.CurrentContext = args[0]
			return file.save()
		},
	}
}

func setContextCommand(app *app) *cobra.Command {
	var command, issuer, clientID, issuerCA string
	var args, scopes []string
	var embed, current bool
	cmd := &cobra.Command{
		Use: "set-context NAME", Short: "Create a context, or change what the flags say", Args: cobra.ExactArgs(1),
		Example: `  atollctl config set-context prod --server hub.example:8080 --ca-file hub-ca.crt --embed-certs --use
  atollctl config set-context prod --issuer https://login.example --client-id atollctl
  atollctl config set-context ci --server hub.example:8080 --token-file /run/secrets/atoll`,
		ValidArgsFunction: firstOnly(completeContexts),
		RunE: func(cmd *cobra.Command, names []string) error {
			file, err := loadContexts()
			if err != nil {
				return err
			}
			side := file.at(names[0])
			app.noteServer(cmd, side)
			said := cmd.Flags().Changed
			if embed && side.CAFile != "" {
				if side.CAData, err = os.ReadFile(side.CAFile); err != nil {
					return usagef("reading --ca-file: %w", err)
				}
				side.CAFile = ""
			}
			switch {
			case said("exec-command"):
				side.TokenFile, side.OIDC, side.Exec = "", nil, &tokenCommand{Command: command, Args: args}
			case said("exec-arg") && side.Exec == nil:
				return usagef("--exec-arg: context %q has no command, want --exec-command as well", names[0])
			case said("exec-arg"):
				side.Exec.Args = args
			}
			if said("issuer") || said("client-id") || said("scopes") || said("issuer-ca-file") {
				if err := side.sign(issuer, clientID, issuerCA, scopes); err != nil {
					return err
				}
			}
			if err := side.check(); err != nil {
				return usagef("context %q: %w", names[0], err)
			}
			if current || file.CurrentContext == "" {
				file.CurrentContext = names[0]
			}
			return file.save()
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&embed, "embed-certs", false, "keep the certificates of --ca-file in the context itself")
	flags.BoolVar(&current, "use", false, "make it the current context; the first one is anyway")
	flags.StringVar(&command, "exec-command", "", "command that prints a token")
	flags.StringSliceVar(&args, "exec-arg", nil, "its arguments")
	bindIssuer(cmd, &issuer, &clientID, &issuerCA, &scopes)
	return cmd
}

func bindIssuer(cmd *cobra.Command, issuer, clientID, ca *string, scopes *[]string) {
	flags := cmd.Flags()
	flags.StringVar(issuer, "issuer", "", "OpenID Connect issuer that signs you in, https://…")
	flags.StringVar(clientID, "client-id", "", "what the issuer knows atollctl as: a public client")
	flags.StringVar(ca, "issuer-ca-file", "", "certificates that sign the issuer's; default the system's")
	flags.StringSliceVar(scopes, "scopes", nil, "what to ask the issuer for; default openid, email, profile, groups, offline_access")
}

// at returns the context with the given name. It adds one if there is none.
func (f *contextFile) at(name string) *hubSide {
	if found := f.find(name); found != nil {
		return found
	}
	f.Contexts = append(f.Contexts, hubSide{Name: name})
	slices.SortFunc(f.Contexts, func(a, b hubSide) int { return cmp.Compare(a.Name, b.Name) })
	return f.find(name)
}

// noteServer stores the flags that say how to reach a hub in a context.
func (a *app) noteServer(cmd *cobra.Command, side *hubSide) {
	said := cmd.Flags().Changed
	if said("server") {
		side.Server = a.server
	}
	if said("plaintext") {
		side.Plaintext = a.plaintext
	}
	if said("ca-file") {
		side.CAFile, side.CAData = absolute(a.caFile), nil
	}
	if said("token-file") {
		side.TokenFile, side.Exec, side.OIDC = absolute(a.tokenFile), nil, nil
	}
}

func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil && path != "" {
		return abs
	}
	return path
}

// sign stores in a context how its user signs in. Empty arguments leave a setting unchanged.
func (h *hubSide) sign(issuer, clientID, caFile string, scopes []string) error {
	s := signin.Settings{}
	if h.OIDC != nil {
		s = *h.OIDC
	}
	if caFile != "" {
		var err error
		if s.CA, err = os.ReadFile(caFile); err != nil {
			return usagef("reading --issuer-ca-file: %w", err)
		}
	}
	s.Issuer, s.ClientID = cmp.Or(issuer, s.Issuer), cmp.Or(clientID, s.ClientID)
	if len(scopes) > 0 {
		s.Scopes = scopes
	}
	h.TokenFile, h.Exec, h.OIDC = "", nil, &s
	return nil
}

func deleteContextCommand() *cobra.Command {
	return &cobra.Command{
		Use: "delete-context NAME", Example: "  atollctl config delete-context prod",
		Short: "Delete a context and the tokens that are kept for it", Args: cobra.ExactArgs(1),
		ValidArgsFunction: firstOnly(completeContexts),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := loadContexts()
			if err != nil {
				return err
			}
			if _, err := file.must(args[0]); err != nil {
				return err
			}
			dir, err := configDir()
			if err != nil {
				return err
			}
			if err := signin.NewStore(dir, args[0]).Remove(); err != nil {
				return err
			}
			file.Contexts = slices.DeleteFunc(file.Contexts, func(h hubSide) bool { return h.Name == args[0] })
			if file.CurrentContext == args[0] {
				file.CurrentContext = ""
				fmt.Fprintln(cmd.ErrOrStderr(), "There is no current context now; see atollctl config use-context.")
			}
			return file.save()
		},
	}
}

func viewConfigCommand() *cobra.Command {
	return &cobra.Command{
		Use: "view", Example: "  atollctl config view", Short: "Print all contexts; tokens are not in them", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, err := loadContexts()
			if err != nil {
				return err
			}
			data, err := yaml.Marshal(file)
			if err != nil {
				return fmt.Errorf("printing contexts: %w", err)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), strings.TrimSpace(string(data)))
			return err
		},
	}
}
