// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/version"
)

// versionPatience bounds the wait for the server's version, so that a dead server does not hide that of this command.
const versionPatience = 3 * time.Second

func versionCommand(a *app) *cobra.Command {
	var client bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version of atollctl, and the hub's",
		Example: "  atollctl version\n  atollctl version --client",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.onlyTable(cmd, "hub -o json prints the hub's version"); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "atollctl  %s\n", version.String())
			if client {
				return nil
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), versionPatience)
			defer cancel()
			return a.connect(ctx, func(c clients) error {
				status, err := c.hub.GetHub(ctx, &sandboxv1.GetHubRequest{})
				if err != nil && problem.FromError(err).Reason == problem.Unimplemented {
					_, err := fmt.Fprintf(cmd.OutOrStdout(), "server    not told: %s is a worker's local API\n", a.server)
					return err
				}
				if err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "hub       %s\n", status.GetVersion())
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&client, "client", false, "print the version of atollctl alone; call no server")
	return cmd
}
