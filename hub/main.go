// SPDX-License-Identifier: Apache-2.0

// Command atoll-hub merges the reports of many clusters' workers, and decides which cluster gives a caller a sandbox now.
//
// In: flags (options.go). run.go shows what runs, and in which order it is built and stopped. One process holds the store; a second one on
// the same files refuses to start. A hub's memory holds no state that is needed after its death: workers fill the view again, and claim
// keys are in the store. A copy of the list of clusters is kept apart from the store.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"navix.sh/atoll/pkg/config"
	"navix.sh/atoll/pkg/heap"
	"navix.sh/atoll/pkg/logging"
	"navix.sh/atoll/pkg/usage"
	"navix.sh/atoll/pkg/version"
)

// garbage bounds the growth of the heap of a hub with many clusters between collections.
const garbage = 24 << 20

func main() {
	heap.RelaxWithin(garbage)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := usage.Of(newCommand().ExecuteContext(ctx))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "atoll-hub:", err)
		os.Exit(usage.Code(err))
	}
}

func newCommand() *cobra.Command {
	var opts options
	var logs logging.Flags
	cmd := &cobra.Command{
		Use:           "atoll-hub [flags]",
		Short:         "Claim sandboxes across clusters",
		Version:       version.String(),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := logs.Logger(cmd.ErrOrStderr())
			if err != nil {
				return usage.Error{Err: err}
			}
			if err := opts.validate(); err != nil {
				return usage.Error{Err: err}
			}
			return run(cmd.Context(), &opts, log)
		},
	}
	opts.bind(cmd.Flags())
	logs.Bind(cmd.Flags())
	config.Bind(cmd)
	for _, other := range []*cobra.Command{
		apiKeyCommand(), initVolumeCommand(), restoreCommand(), migrateCommand(), encryptionKeyCommand(),
	} {
		other.PersistentPreRunE = func(*cobra.Command, []string) error { return nil } // the hub's own configuration does not apply to them
		cmd.AddCommand(other)
	}
	usage.Explain(cmd)
	return cmd
}
