// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

// timeoutFlag is an optional duration; an unset flag differs from 0.
type timeoutFlag struct {
	set   bool
	value time.Duration
}

func (t *timeoutFlag) Type() string { return "duration" }

func (t *timeoutFlag) String() string {
	if !t.set {
		return ""
	}
	return t.value.String()
}

func (t *timeoutFlag) Set(text string) (err error) {
	if t.value, err = time.ParseDuration(text); err != nil {
		return err
	}
	t.set = true
	return nil
}

func (t *timeoutFlag) message() *durationpb.Duration {
	if !t.set {
		return nil
	}
	return durationpb.New(t.value)
}

func releaseCommand(a *app) *cobra.Command {
	return a.eachCommand("release", "Release sandboxes; releasing an ended one is no error",
		a.each("releasing", anyState, func(ctx context.Context, c clients, id string) (*sandboxv1.Sandbox, error) {
			return c.sandboxes.ReleaseSandbox(ctx, &sandboxv1.ReleaseSandboxRequest{Id: id})
		}))
}

func touchCommand(a *app) *cobra.Command {
	return a.eachCommand("touch", "Record activity of sandboxes, so that they do not end as idle; an ended one stays ended",
		a.each("touching", usable, func(ctx context.Context, c clients, id string) (*sandboxv1.Sandbox, error) {
			return c.sandboxes.TouchSandbox(ctx, &sandboxv1.TouchSandboxRequest{Id: id})
		}))
}

func pauseCommand(a *app) *cobra.Command {
	return a.eachCommand("pause", "Free the CPU of sandboxes; their Pods, addresses and memory stay",
		a.each("pausing", usable, func(ctx context.Context, c clients, id string) (*sandboxv1.Sandbox, error) {
			return c.sandboxes.PauseSandbox(ctx, &sandboxv1.PauseSandboxRequest{Id: id})
		}))
}

func resumeCommand(a *app) *cobra.Command {
	return a.eachCommand("resume", "Give paused sandboxes their CPU back; where there is no room now, as soon as there is",
		a.each("resuming", usable, func(ctx context.Context, c clients, id string) (*sandboxv1.Sandbox, error) {
			return c.sandboxes.ResumeSandbox(ctx, &sandboxv1.ResumeSandboxRequest{Id: id})
		}))
}

func updateCommand(a *app) *cobra.Command {
	var idle, lifetime timeoutFlag
	cmd := a.eachCommand("update", "Change the timeouts of live sandboxes",
		a.each("changing", usable, func(ctx context.Context, c clients, id string) (*sandboxv1.Sandbox, error) {
			return c.sandboxes.UpdateSandbox(ctx, &sandboxv1.UpdateSandboxRequest{
				Id: id, IdleTimeout: idle.message(), MaxLifetime: lifetime.message(),
			})
		}))
	cmd.Long = `Change the timeouts of live sandboxes. What is left out stays, 0 takes a timeout off. They count from where they did
before: one that has run out by then ends the sandbox.`
	cmd.Example += " --idle-timeout 30m --max-lifetime 0"
	cmd.Flags().Var(&idle, "idle-timeout", "end it after so long without activity; 0: never")
	cmd.Flags().Var(&lifetime, "max-lifetime", "end it so long after its claim; 0: never")
	cmd.MarkFlagsOneRequired("idle-timeout", "max-lifetime")
	return cmd
}

// eachCommand is a command about some sandboxes.
func (a *app) eachCommand(name, short string, run func(*cobra.Command, []string) error) *cobra.Command {
	return &cobra.Command{
		Use: name + " ID...", Short: short, Example: "  atollctl " + name + " 01j9zq3p3k5m8x7c2v4b6n8d0f-east",
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: a.completeSandboxes, RunE: run,
	}
}

// each makes the call for one sandbox after the other, and prints the results. check returns an error for a result that is not what the
// caller asked for.
func (a *app) each(
	doing string, check func(*sandboxv1.Sandbox) error, call func(context.Context, clients, string) (*sandboxv1.Sandbox, error),
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, ids []string) error {
		return a.call(cmd, func(ctx context.Context, c clients) error {
			whole := &sandboxv1.ListSandboxesResponse{}
			var errs []error
			for _, id := range ids {
				sandbox, err := call(ctx, c, id)
				if err != nil {
					errs = append(errs, fmt.Errorf("%s %s: %w", doing, id, err))
					continue
				}
				whole.Sandboxes = append(whole.Sandboxes, sandbox)
				if err := check(sandbox); err != nil {
					errs = append(errs, fmt.Errorf("%s %s: %w", doing, id, err))
				}
			}
			if len(whole.GetSandboxes()) > 0 {
				errs = append(errs, sandboxView.list(cmd.OutOrStdout(), a.output, whole.GetSandboxes(), whole))
			}
			return errors.Join(errs...)
		})
	}
}
