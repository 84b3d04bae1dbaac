// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"navix.sh/atoll/pkg/config"
	"navix.sh/atoll/pkg/heap"
	"navix.sh/atoll/pkg/usage"
	"navix.sh/atoll/pkg/version"
	"navix.sh/atoll/worker/internal/hosted"
	"navix.sh/atoll/worker/internal/runner"
)

// garbage is how much the heap of a worker may grow between collections. Otherwise traffic through tunnels would make it grow to several
// times what claims need.
const garbage = 64 << 20

func main() {
	heap.RelaxWithin(garbage)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := usage.Of(command().ExecuteContext(ctx))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "atoll-worker:", err)
		os.Exit(usage.Code(err))
	}
}

func command() *cobra.Command {
	var o runner.Options
	var host hosted.Flags
	cmd := &cobra.Command{
		Use:           "atoll-worker --cluster-id ID [--hub HOST:PORT]",
		Short:         "Make this cluster a member of a federation, or serve it on its own",
		Version:       version.String(),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := host.Validate(&o); err != nil {
				return usage.Error{Err: err}
			}
			log, err := o.Logger(os.Stderr)
			if err != nil {
				return usage.Error{Err: err}
			}
			ctrl.SetLogger(log)
			klog.SetLogger(log.WithName("client"))
			if host.Provider != "" {
				return hosted.Run(logr.NewContext(cmd.Context(), log), host, o, log)
			}
			cluster, err := o.Cluster()
			if err != nil {
				return err
			}
			return runner.New(cluster, o, log).Run(logr.NewContext(cmd.Context(), log))
		},
	}
	o.Bind(cmd.Flags())
	host.Bind(cmd.Flags())
	config.Bind(cmd)
	usage.Explain(cmd)
	return cmd
}
