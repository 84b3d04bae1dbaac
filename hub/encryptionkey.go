// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"navix.sh/atoll/pkg/envelope"
	"navix.sh/atoll/pkg/hubstate"
)

const encryptionKeyUsage = "YAML file of keys with which what the hub keeps, and its backups, are encrypted, see encryption-key new; the " +
	"first one encrypts, all decrypt"

// encryptionKeyCommand makes keys and rewrites files. It needs no hub and no configuration.
func encryptionKeyCommand() *cobra.Command {
	parent := &cobra.Command{Use: "encryption-key", Short: "Make encryption keys, and rewrite what a hub keeps with another one"}
	parent.AddCommand(newEncryptionKeyCommand(), rewriteCommand())
	return parent
}

func newEncryptionKeyCommand() *cobra.Command {
	var name, file string
	cmd := &cobra.Command{
		Use:   "new --name NAME",
		Short: "Print a file for --encryption-key-file with a new key; to rotate, put its entry before those of the present file",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			content, err := envelope.NewKey(name)
			if err != nil {
				return fmt.Errorf("making an encryption key: %w", err)
			}
			if file != "" {
				return writeNew(file, string(content))
			}
			if _, err := cmd.OutOrStdout().Write(content); err != nil {
				return fmt.Errorf("printing: %w", err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "what the key is called, for good: up to 63 of a-z, 0-9 and - (required)")
	cmd.Flags().StringVar(&file, "file", "", "write to this new file, for its owner's eyes, instead")
	return cmd
}

func rewriteCommand() *cobra.Command {
	var dir, keyFile string
	var plain bool
	cmd := &cobra.Command{
		Use:   "rewrite --data-dir DIR --encryption-key-file FILE",
		Short: "Rewrite the files of a stopped hub, encrypted with the first key alone, or plain",
		Long: `Rewrite the files of a stopped hub, encrypted with the first key alone, or plain.

A running hub does this by itself, record by record, and leaves old versions of records in the free space of its files. This
command leaves none: use it when a key has become known. --plain decrypts, for a hub without --encryption-key-file.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if keyFile == "" {
				return errors.New("--encryption-key-file is required")
			}
			from, err := envelope.Open(keyFile)
			if err != nil {
				return err
			}
			to, how := from, fmt.Sprintf("encrypted with key %q", from.Current())
			if plain {
				to, how = nil, "not encrypted"
			}
			if err := hubstate.Rewrite(dir, from, to); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "rewrote the files of %s: %s\n", dir, how)
			return err
		},
	}
	cmd.Flags().StringVar(&dir, "data-dir", "/var/lib/atoll-hub", "the hub's data directory")
	cmd.Flags().StringVar(&keyFile, "encryption-key-file", "", encryptionKeyUsage+" (required)")
	cmd.Flags().BoolVar(&plain, "plain", false, "decrypt")
	return cmd
}
