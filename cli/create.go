// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

// claimFlags are the flags of a request, shared by create and explain.
type claimFlags struct {
	request        sandboxv1.CreateSandboxRequest
	startupTimeout time.Duration
	wait           string

	idle, lifetime, firstActivity timeoutFlag // create's
	hooks                         string      // a file
}

func (f *claimFlags) bind(cmd *cobra.Command) {
	flags, r := cmd.Flags(), &f.request
	flags.StringVar(&r.Image, "image", "", "image to run; default the pool's")
	flags.StringVar(&r.InstanceType, "instance-type", "", "only pools of this instance type")
	flags.Int32Var(&r.Multiplier, "multiplier", 0, "only pools of this multiplier")
	flags.StringVar(&r.ScalingGroup, "scaling-group", "", "only pools of this scaling group")
	flags.StringSliceVar(&r.Clusters, "clusters", nil, "preferred clusters, best first")
	flags.BoolVar(&r.RequireClusters, "require-clusters", false, "no other clusters than --clusters")
	flags.StringVar(&r.Team, "team", "", "on behalf of this team")
	flags.StringVar(&r.User, "user", "", "on behalf of this user")
	flags.BoolVar(&r.NoQueue, "no-queue", false, "refuse at once when nothing is idle")
}

// message returns the request of the flags.
func (f *claimFlags) message(env string) (*sandboxv1.CreateSandboxRequest, error) {
	f.request.Namespace, f.request.Env = splitEnv(env)
	if f.startupTimeout > 0 {
		f.request.StartupTimeout = durationpb.New(f.startupTimeout)
	}
	f.request.IdleTimeout, f.request.MaxLifetime = f.idle.message(), f.lifetime.message()
	f.request.FirstActivityTimeout = f.firstActivity.message()
	var err error
	if f.request.PostStartHooks, err = readHooks(f.hooks); err != nil {
		return nil, err
	}
	if f.wait != "" {
		value, ok := sandboxv1.CreateSandboxRequest_Wait_value[strings.ToUpper(f.wait)]
		if !ok {
			return nil, fmt.Errorf("--wait %q is not valid, want ready, assigned or none", f.wait)
		}
		f.request.Wait = sandboxv1.CreateSandboxRequest_Wait(value)
	}
	return &f.request, nil
}

func createCommand(a *app) *cobra.Command {
	f := &claimFlags{}
	var env string
	cmd := &cobra.Command{
		Use:   "create --env [NAMESPACE/]NAME",
		Short: "Create a sandbox wherever there is room",
		Long: `Create a sandbox wherever there is room. With --claim-key the call can be repeated safely: it answers the same sandbox.

Without --claim-key a lost response loses the sandbox, so it ends 5 minutes after its start
unless it is used: ` + "`atollctl touch ID`" + ` within that time keeps it, as does --first-activity-timeout 0.`,
		Example: "  atollctl create --env python --claim-key build-17 -o name",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if env == "" {
				return errors.New("--env is missing; `atollctl envs` lists them")
			}
			request, err := f.message(env)
			if err != nil {
				return err
			}
			return a.call(cmd, func(ctx context.Context, c clients) error {
				sandbox, err := c.sandboxes.CreateSandbox(ctx, request)
				if err != nil {
					return err
				}
				return sandboxView.one(cmd.OutOrStdout(), a.output, sandbox)
			})
		},
	}
	f.bind(cmd)
	flags, r := cmd.Flags(), &f.request
	flags.StringVar(&env, "env", "", "the Env, as [NAMESPACE/]NAME")
	flags.StringVar(&r.ClaimKey, "claim-key", "", "your name for this claim, 1-128 printable characters")
	flags.StringToStringVar(&r.Labels, "label", nil, "labels, NAME=VALUE; on the Pod below tenant.navix.sh/")
	flags.StringToStringVar(&r.Metadata, "metadata", nil, "metadata kept with the sandbox, KEY=VALUE")
	flags.DurationVar(&f.startupTimeout, "startup-timeout", 0, "for queueing and starting; default the pool's, else 2m")
	flags.Var(&f.idle, "idle-timeout", "end it after so long without activity; 0: never; default the pool's, else never")
	flags.Var(&f.lifetime, "max-lifetime", "end it so long after its claim; default never")
	flags.Var(&f.firstActivity, "first-activity-timeout", "end it so long after its start if it was never used; 0: never; without --claim-key default 5m")
	flags.StringVar(&f.hooks, "hooks", "", "a file with post-start hooks, a YAML or JSON list; - is standard input")
	flags.StringVar(&f.wait, "wait", "ready", "return when: ready, assigned, or none (needs --claim-key)")
	_ = cmd.RegisterFlagCompletionFunc("env", a.completeEnvs)
	_ = cmd.RegisterFlagCompletionFunc("clusters", a.completeClusters)
	return cmd
}
