// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/plural"
	"navix.sh/atoll/pkg/problem"
)

// clearScreen moves the cursor home and clears to the end, which does not flicker.
const clearScreen = "\x1b[H\x1b[J"

func topCommand(a *app) *cobra.Command {
	var interval time.Duration
	var once bool
	cmd := &cobra.Command{
		Use:     "top",
		Short:   "Watch clusters and Envs live, and the replicas of the hub",
		Example: "  atollctl top\n  atollctl top --once",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if interval < 100*time.Millisecond {
				return invalidFlag("interval", interval.String(), "100ms or more")
			}
			if a.output != "table" {
				return invalidFlag("output", a.output, "table; clusters -o json and envs -o json print what top shows")
			}
			return a.connect(cmd.Context(), func(c clients) error {
				return top(cmd.Context(), cmd.OutOrStdout(), c, interval, once)
			})
		},
	}
	cmd.Flags().DurationVarP(&interval, "interval", "i", time.Second, "time between two looks")
	cmd.Flags().BoolVar(&once, "once", false, "print once and leave")
	return cmd
}

// top redraws until ctx ends. It shows errors of the server and retries; only an error of the first poll makes it fail.
func top(ctx context.Context, w io.Writer, c clients, interval time.Duration, once bool) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	var previous *look
	for {
		current, err := takeLook(ctx, c, interval)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && previous == nil:
			return err
		case err != nil:
			fmt.Fprintf(w, "%sserver does not respond: %s\n\nlast seen:\n", clearScreen, problem.FromError(err).Message)
			err = previous.print(w, nil)
		default:
			if !once {
				fmt.Fprint(w, clearScreen)
			}
			err = current.print(w, previous)
			previous = current
		}
		if err != nil || once {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// look is one state of the federation.
type look struct {
	at       time.Time
	clusters *sandboxv1.ListClustersResponse
	envs     []*sandboxv1.Env
	replicas []*sandboxv1.Replica // of the hub; one is not shown
}

func takeLook(ctx context.Context, c clients, interval time.Duration) (*look, error) {
	ctx, cancel := context.WithTimeout(ctx, max(interval, 5*time.Second))
	defer cancel()
	clusters, err := c.clusters.ListClusters(ctx, &sandboxv1.ListClustersRequest{})
	if err != nil {
		return nil, err
	}
	envs, err := allEnvs(ctx, c, &sandboxv1.ListEnvsRequest{})
	if err != nil {
		return nil, err
	}
	// A worker has no hub replicas, and a key may lack the permission to list them. top works without them.
	replicas, _ := c.hub.ListReplicas(ctx, &sandboxv1.ListReplicasRequest{})
	return &look{at: time.Now(), clusters: clusters, envs: envs.items, replicas: replicas.GetReplicas()}, nil
}

func (l *look) running() (n int32) {
	for _, c := range l.clusters.GetClusters() {
		n += c.GetRunning()
	}
	return n
}

func (l *look) print(w io.Writer, previous *look) error {
	var out bytes.Buffer
	change := ""
	if previous != nil {
		change = fmt.Sprintf(" (%+d)", l.running()-previous.running())
	}
	fmt.Fprintf(&out, "%s   %s, %s, %d running%s\n\n", l.at.Format(time.TimeOnly),
		plural.Of(len(l.clusters.GetClusters()), "cluster"), plural.Of(len(l.envs), "env"), l.running(), change)
	if len(l.replicas) > 1 {
		if err := replicaView.list(&out, "table", l.replicas, nil); err != nil {
			return err
		}
		out.WriteByte('\n')
	}
	if err := clusterView.list(&out, "table", l.clusters.GetClusters(), nil); err != nil {
		return err
	}
	out.WriteByte('\n')
	if err := envView.list(&out, "table", l.envs, nil); err != nil {
		return err
	}
	_, err := io.WriteString(w, strings.TrimRight(out.String(), "\n")+"\n")
	return err
}
