// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"navix.sh/atoll/pkg/envelope"
	"navix.sh/atoll/pkg/hubstate"
)

// restoreCommand is for installations where only the hub's own image can access its volume.
func restoreCommand() *cobra.Command {
	var dir, keyFile string
	var force bool
	cmd := &cobra.Command{
		Use:   "restore FILE --data-dir DIR",
		Short: "Put an archive of `atollctl hub backup` into a data directory that no hub has open; FILE - is the standard input",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in := io.NopCloser(cmd.InOrStdin())
			if args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return fmt.Errorf("restoring: %w", err)
				}
				in = f
			}
			sealer, err := envelope.Open(keyFile)
			if err != nil {
				return errors.Join(err, in.Close())
			}
			restored, err := hubstate.Restore(cmd.Context(), in, dir, force, sealer)
			if err = errors.Join(err, in.Close()); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "restored to %s what hub %s held at %s\n%s\n", dir, restored.Version,
				restored.CreatedAt.Format(time.RFC3339), restored.Clusters())
			return err
		},
	}
	cmd.Flags().StringVar(&dir, "data-dir", "/var/lib/atoll-hub", "the hub's data directory")
	cmd.Flags().StringVar(&keyFile, "encryption-key-file", "", encryptionKeyUsage)
	cmd.Flags().BoolVar(&force, "force", false, "take the place of files that are there; they are kept as *.before-restore")
	return cmd
}
