// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"navix.sh/atoll/hub/internal/api"
)

// apiKeyCommand mints API keys. It needs no hub and no configuration.
func apiKeyCommand() *cobra.Command {
	parent := &cobra.Command{
		Use: "api-key", Short: "Make API keys",
		// The hub's own configuration is not this command's.
		PersistentPreRunE: func(*cobra.Command, []string) error { return nil },
	}
	var key api.Key
	var scopes []string
	var valid time.Duration
	create := &cobra.Command{
		Use:   "new --name NAME [--scopes read,claim,admin]",
		Short: "Print a new token, once, and the entry for the keys file that makes it known",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, s := range scopes {
				key.Scopes = append(key.Scopes, api.Scope(s))
			}
			if valid > 0 {
				expires := time.Now().Add(valid).UTC().Truncate(time.Second)
				key.Expires = &expires
			}
			token, entry, err := api.NewToken(key)
			if err != nil {
				return fmt.Errorf("making an API key: %w", err)
			}
			out := cmd.OutOrStdout()
			if _, err := fmt.Fprintf(out, "# The token. It is not kept anywhere:\n#   %s\n# The entry for --api-keys-file:\n%s", token, entry); err != nil {
				return fmt.Errorf("printing: %w", err)
			}
			return nil
		},
	}
	flags := create.Flags()
	flags.StringVar(&key.Name, "name", "", "what the key is called in logs and errors (required)")
	flags.StringVar(&key.Team, "team", "", "the only team that the key's claims may have and see")
	flags.StringVar(&key.User, "user", "", "the only user that the key's claims may have and see")
	flags.StringSliceVar(&key.Namespaces, "namespaces", nil, "the only namespaces that the key reaches")
	flags.StringSliceVar(&scopes, "scopes", []string{string(api.ScopeClaim)}, "read, claim (and read), admin (everything)")
	flags.DurationVar(&valid, "valid-for", 0, "how long the key is good for; 0: until it is removed")
	parent.AddCommand(create)
	return parent
}
