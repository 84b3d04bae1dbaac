// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"navix.sh/atoll/pkg/config"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newRoot().ExecuteContext(ctx)
	stop()
	var code exitCode
	if errors.As(err, &code) {
		os.Exit(int(code))
	}
	if err != nil {
		reportError(os.Stderr, err)
		os.Exit(int(exitCodeOf(err)))
	}
}

func newRoot() *cobra.Command {
	app := &app{}
	root := &cobra.Command{
		Use:   "atollctl",
		Short: "Look at an Atoll federation and use its sandboxes",
		Long: `Look at an Atoll federation and use its sandboxes.

The server is a hub, or a worker's local address: both speak the same API. Every flag can also be given in the
environment (ATOLL_SERVER, ATOLL_TOKEN_FILE, ...) or in the YAML file that --config names.`,
		Example: `  atollctl clusters
  atollctl create --env default/python --image registry.example/py:3.13 --claim-key build-17
  atollctl exec -it 01j9zq3p3k5m8x7c2v4b6n8d0f-east -- sh
  atollctl explain default/python
  atollctl release 01j9zq3p3k5m8x7c2v4b6n8d0f-east`,
		Version:       version.String(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	app.bind(root.PersistentFlags())
	config.Bind(root)
	root.AddCommand(
		hubCommand(app), clustersCommand(app), envsCommand(app), sandboxesCommand(app), claimCommand(app),
		createCommand(app), releaseCommand(app), touchCommand(app), updateCommand(app), pauseCommand(app), resumeCommand(app),
		explainCommand(app), topCommand(app), pkiCommand(), verifyCommand(app), doctorCommand(app), execCommand(app), logsCommand(app),
		portForwardCommand(app), simulateCommand(app),
	)
	return root
}

// reportError prints an API error with a remedy.
func reportError(w io.Writer, err error) {
	p := problem.FromError(err)
	if p.Reason == problem.Internal && p.Unwrap() != nil {
		fmt.Fprintln(w, "atollctl:", err)
		return
	}
	fmt.Fprintf(w, "atollctl: %s (%s)\n", p.Message, p.Reason)
	for _, f := range p.Fields {
		fmt.Fprintf(w, "  %s: got %q, want %s\n", f.Field, f.Value, f.Valid)
	}
	if p.RetryAfter > 0 {
		fmt.Fprintf(w, "  try again in %s\n", p.RetryAfter)
	}
	if p.ClaimKey != "" {
		fmt.Fprintf(w, "  retry with the same --claim-key %s, or ask: atollctl claim %s\n", p.ClaimKey, p.ClaimKey)
	}
}
