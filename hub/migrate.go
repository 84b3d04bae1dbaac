// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"navix.sh/atoll/pkg/hubstate"
)

// migrateCommand is for installations where only the hub's own image can access its volume.
func migrateCommand() *cobra.Command {
	var flags hubstate.MigrateFlags
	cmd := &cobra.Command{
		Use:   "migrate --from bbolt:DIR --to etcd:URL,URL",
		Short: hubstate.MigrateShort,
		Long:  hubstate.MigrateLong,
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return flags.Run(cmd.Context(), cmd.OutOrStdout()) },
	}
	flags.Bind(cmd.Flags())
	_, _ = cmd.MarkFlagRequired("from"), cmd.MarkFlagRequired("to")
	return cmd
}
