// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"navix.sh/atoll/hub/internal/api"
	"navix.sh/atoll/pkg/durable"
)

// apiKeyCommand mints API keys. It needs no hub and no configuration.
func apiKeyCommand() *cobra.Command {
	parent := &cobra.Command{Use: "api-key", Short: "Make API keys"}
	var key api.Key
	var scopes []string
	var tokenFile string
	var valid time.Duration
	var all bool
	create := &cobra.Command{
		Use:   "new --name NAME (--team TEAM --namespaces NAMESPACE,... | --all) [--scopes read,claim,admin]",
		Short: "Print a new token, once, and the entry for the keys file that makes it known",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, s := range scopes {
				key.Scopes = append(key.Scopes, api.Scope(s))
			}
			key.AllTeams, key.AllNamespaces = key.AllTeams || all, key.AllNamespaces || all
			if err := bound(&key); err != nil {
				return err
			}
			if valid > 0 {
				expires := time.Now().Add(valid).UTC().Truncate(time.Second)
				key.Expires = &expires
			}
			token, entry, err := api.NewToken(key)
			if err != nil {
				return fmt.Errorf("making an API key: %w", err)
			}
			heading := fmt.Sprintf("# The token. It is not kept anywhere:\n#   %s\n# The entry for --api-keys-file:\n", token)
			if tokenFile != "" {
				heading = ""
				if err := writeNew(tokenFile, token+"\n"); err != nil {
					return err
				}
			}
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s%s", heading, entry); err != nil {
				return fmt.Errorf("printing: %w", err)
			}
			return nil
		},
	}
	flags := create.Flags()
	flags.StringVar(&key.Name, "name", "", "what the key is called in logs and errors (required)")
	flags.StringVar(&key.Team, "team", "", "the only team that the key's claims may have and see")
	flags.BoolVar(&key.AllTeams, "all-teams", false, "the key's claims may have and see every team, and none")
	flags.StringVar(&key.User, "user", "", "the only user that the key's claims may have and see")
	flags.StringSliceVar(&key.Namespaces, "namespaces", nil, "the only namespaces that the key reaches")
	flags.BoolVar(&key.AllNamespaces, "all-namespaces", false, "the key reaches every namespace")
	flags.BoolVar(&all, "all", false, "--all-teams and --all-namespaces; what concerns the whole hub, such as to drain a cluster, needs both")
	flags.StringSliceVar(&scopes, "scopes", []string{string(api.ScopeClaim)}, "read, claim (and read), admin (everything)")
	flags.DurationVar(&valid, "valid-for", 0, "how long the key is good for; 0: until it is removed")
	flags.StringVar(&tokenFile, "token-file", "", "write the token to this new file, for its owner's eyes, and print the entry alone")
	parent.AddCommand(create)
	return parent
}

// bound returns an error unless the flags say which teams and namespaces a key is for.
func bound(key *api.Key) error {
	var errs []error
	if key.Team == "" && !key.AllTeams {
		errs = append(errs, errors.New("--team, --all-teams or --all is required: which claims the key may have and see"))
	}
	if len(key.Namespaces) == 0 && !key.AllNamespaces {
		errs = append(errs, errors.New("--namespaces, --all-namespaces or --all is required: what the key reaches"))
	}
	return errors.Join(errs...)
}

// writeNew writes a secret to a new file. The file must not exist: the token in it may be the only copy. It returns once the file is
// durable; because data that is encrypted with a key that a power cut removed is lost.
func writeNew(path, content string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("writing the token: %w", err)
	}
	_, err = f.WriteString(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = durable.SyncDir(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("writing the token: %w", err)
	}
	return nil
}
