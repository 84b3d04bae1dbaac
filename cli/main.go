// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/status"

	"navix.sh/atoll/pkg/config"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/usage"
	"navix.sh/atoll/pkg/version"
)

func main() {
	ctx, stop := interruptible()
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

// interruptible returns a context that an interrupt cancels. A second interrupt ends the program, because what it waits for may not end
// with the context.
func interruptible() (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

func newRoot() *cobra.Command {
	app := &app{}
	root := &cobra.Command{
		Use:   "atollctl",
		Short: "Look at an Atoll federation and use its sandboxes",
		Long: `Look at an Atoll federation and use its sandboxes.

The server is a hub, or a worker's local address: both speak the same API. Every flag can also be given in the
environment (ATOLL_SERVER, ATOLL_TOKEN_FILE, ...) or in the YAML file that --config names; atollctl config keeps
contexts for several hubs.`,
		Example: `  atollctl clusters
  atollctl create --env default/python --image registry.example/py:3.13 --claim-key build-17
  atollctl exec -it 01j9zq3p3k5m8x7c2v4b6n8d0f-east -- sh
  atollctl explain default/python
  atollctl release 01j9zq3p3k5m8x7c2v4b6n8d0f-east`,
		Version:       version.String(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	app.bind(root)
	config.Bind(root)
	root.AddCommand(
		hubCommand(app), clustersCommand(app), envsCommand(app), sandboxesCommand(app), claimCommand(app),
		createCommand(app), releaseCommand(app), touchCommand(app), updateCommand(app), pauseCommand(app), resumeCommand(app),
		explainCommand(app), topCommand(app), pkiCommand(app), verifyCommand(app), doctorCommand(app), execCommand(app), logsCommand(app),
		portForwardCommand(app), cpCommand(app), psCommand(app), runCommand(app), mcpCommand(app), simulateCommand(app),
		auditCommand(), getCommand(app), describeCommand(app),
		versionCommand(app), keysCommand(app), accessCommand(app), quotaCommand(app),
		applyCommand(app), diffCommand(app), editCommand(app), deleteCommand(app), templatesCommand(app),
		loginCommand(app), logoutCommand(app), configCommand(app), kubeconfigCommand(app),
	)
	usage.Explain(root)
	return root
}

// hinted is an error with advice for the command that failed.
type hinted struct {
	error
	hint string
}

func (h *hinted) Unwrap() error { return h.error }

// joined returns the errors that errors.Join combined. It treats an error that wraps several in a text of its own as one.
func joined(err error) []error {
	several, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return nil
	}
	if err.Error() != errors.Join(several.Unwrap()...).Error() {
		return nil
	}
	return several.Unwrap()
}

// reportError prints errors, each with the details that the server sent.
func reportError(w io.Writer, err error) {
	if several := joined(err); len(several) > 0 {
		for _, one := range several {
			reportError(w, one)
		}
		return
	}
	var p *problem.Error
	if _, remote := status.FromError(err); !errors.As(err, &p) && remote { // of a stream
		p = problem.FromError(err)
	}
	if p == nil {
		text := problem.Plain(err.Error())
		if ours, of := usage.ExplainGroup(text); of {
			text = ours
		}
		fmt.Fprintln(w, "atollctl:", text)
		return
	}
	text := strings.Replace(problem.Plain(err.Error()), p.Error(), p.Message, 1) // keeps the text before the server's message
	fmt.Fprintf(w, "atollctl: %s (%s)\n", text, p.Reason)
	if len(p.Fields) > 1 || len(p.Fields) == 1 && !strings.Contains(text, p.Fields[0].Valid) {
		for _, f := range p.Fields {
			fmt.Fprintf(w, "  %s: got %q, want %s\n", f.Field, f.Value, f.Valid)
		}
	}
	var advice *hinted
	if errors.As(err, &advice) && advice.hint != "" {
		fmt.Fprintln(w, "  "+advice.hint)
	}
	if p.RetryAfter > 0 {
		fmt.Fprintf(w, "  try again in %s\n", p.RetryAfter)
	}
}
