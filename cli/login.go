// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"navix.sh/atoll/cli/internal/signin"
)

// signInPatience is how long a user has to sign in.
const signInPatience = 5 * time.Minute

func loginCommand(app *app) *cobra.Command {
	var issuer, clientID, issuerCA string
	var scopes []string
	var device, noBrowser bool
	cmd := &cobra.Command{
		Use:   "login",
		Short: "Sign in at an OpenID Connect issuer, for a context",
		Long: `Sign in at an OpenID Connect issuer, for a context.

A browser opens, and comes back to atollctl. On a machine without one, a code is shown that is entered in a browser
elsewhere (--device). What the flags say is kept in the context of --context, else in the current one, else in one named
default; later, atollctl login suffices. Tokens are kept beside the contexts, readable by you alone, and renewed.`,
		Example: `  atollctl login --context prod --server hub.example:8080 --issuer https://login.example --client-id atollctl
  atollctl login --device`,
		Args:        cobra.NoArgs,
		Annotations: map[string]string{withoutContext: ""},
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, err := loadContexts()
			if err != nil {
				return err
			}
			side := file.at(cmp.Or(app.contextName, file.CurrentContext, "default"))
			app.noteServer(cmd, side)
			if side.OIDC == nil && (issuer == "" || clientID == "") {
				return usagef("--issuer and --client-id are required: context %q has none yet", side.Name)
			}
			if err := side.sign(issuer, clientID, issuerCA, scopes); err != nil {
				return err
			}
			if err := side.check(); err != nil {
				return usagef("context %q: %w", side.Name, err)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), cmp.Or(app.timeout, signInPatience))
			defer cancel()
			tokens, err := signIn(ctx, cmd.ErrOrStderr(), *side.OIDC, device, noBrowser)
			if err != nil {
				return err
			}
			dir, err := configDir()
			if err != nil {
				return err
			}
			file.CurrentContext = cmp.Or(file.CurrentContext, side.Name)
			if err := file.save(); err != nil {
				return err
			}
			if err := signin.NewStore(dir, side.Name).Save(tokens); err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "Signed in as %s for context %s.\n", tokens.User, side.Name)
			return nil
		},
	}
	flags := cmd.Flags()
	bindIssuer(cmd, &issuer, &clientID, &issuerCA, &scopes)
	flags.BoolVar(&device, "device", false, "show a code to enter in a browser elsewhere; the default where there is no browser")
	flags.BoolVar(&noBrowser, "no-browser", false, "print the URL and open no browser; it has to be one of this machine")
	return cmd
}

func signIn(ctx context.Context, w io.Writer, s signin.Settings, device, noBrowser bool) (*signin.Tokens, error) {
	client, err := signin.New(ctx, s)
	if err != nil {
		return nil, err
	}
	if device || !noBrowser && !hasBrowser() {
		return client.Device(ctx, func(where, code string) {
			fmt.Fprintf(w, "Open %s in a browser and confirm the code %s\n", where, code)
		})
	}
	return client.Code(ctx, func(where string) {
		if !noBrowser && openBrowser(where) == nil {
			fmt.Fprintf(w, "A browser opens. If it does not, visit:\n  %s\n", where)
			return
		}
		fmt.Fprintf(w, "Visit, with a browser on this machine:\n  %s\n", where)
	})
}

// hasBrowser reports whether a browser can be opened, so that its user sees it.
func hasBrowser() bool {
	if os.Getenv("SSH_CONNECTION") != "" {
		return false
	}
	switch runtime.GOOS {
	case "darwin", "windows":
		return true
	}
	if os.Getenv("BROWSER") != "" {
		return true
	}
	_, err := exec.LookPath("xdg-open")
	return err == nil && (os.Getenv("DISPLAY") != "" || os.Getenv("WAYLAND_DISPLAY") != "")
}

// openBrowser starts a browser and does not wait for it.
func openBrowser(where string) error {
	command := []string{cmp.Or(os.Getenv("BROWSER"), "xdg-open")}
	switch {
	case os.Getenv("BROWSER") != "":
	case runtime.GOOS == "darwin":
		command = []string{"open"}
	case runtime.GOOS == "windows":
		command = []string{"rundll32", "url.dll,FileProtocolHandler"}
	}
	cmd := exec.Command(command[0], append(command[1:], where)...)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("opening a browser: %w", err)
	}
	go func() { _ = cmd.Wait() }()
	return nil
}

func logoutCommand(app *app) *cobra.Command {
	return &cobra.Command{
		Use: "logout", Example: "  atollctl logout --context prod",
		Short: "Remove the tokens of a context, and revoke them at their issuer where it takes that", Args: cobra.NoArgs,
		Annotations: map[string]string{withoutContext: ""},
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, err := loadContexts()
			if err != nil {
				return err
			}
			side, err := file.must(cmp.Or(app.contextName, file.CurrentContext))
			if err != nil {
				return err
			}
			if side.OIDC == nil {
				return usagef("context %q has no issuer to sign out of", side.Name)
			}
			dir, err := configDir()
			if err != nil {
				return err
			}
			store := signin.NewStore(dir, side.Name)
			tokens, err := store.Load(*side.OIDC)
			if err != nil {
				return err
			}
			if err := store.Remove(); err != nil {
				return err
			}
			if tokens == nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "Context %s was not signed in.\n", side.Name)
				return nil
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), app.limit())
			defer cancel()
			client, err := signin.New(ctx, *side.OIDC)
			if err == nil {
				err = client.Revoke(ctx, tokens)
			}
			if err != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "The issuer was not told: %v\n", err)
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "Signed out of context %s.\n", side.Name)
			return nil
		},
	}
}
