// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

// ended are the flags of commands about ended sandboxes.
type ended struct {
	only          bool
	after, before string
}

func (e *ended) bind(cmd *cobra.Command, filter *sandboxv1.ListSandboxesRequest) {
	flags := cmd.Flags()
	flags.BoolVar(&e.only, "ended", false, "sandboxes that have ended, in the order in which they were claimed")
	flags.StringVar(&e.after, "ended-after", "", "only those that have ended since: a time (2026-03-01T12:00:00Z), or how long ago (2h)")
	flags.StringVar(&e.before, "ended-before", "", "only those that had ended by then")
	bindEnum(cmd, flags, &filter.StopReason, "stop-reason", "", "only those that ended so: Completed, Canceled, Released or Failed",
		"Completed", "Canceled", "Released", "Failed")
}

func (e *ended) apply(filter *sandboxv1.ListSandboxesRequest, now time.Time) (err error) {
	if e.only {
		if filter.Phase != sandboxv1.Phase_PHASE_UNSPECIFIED && filter.Phase != sandboxv1.Phase_ENDED {
			return usagef("--ended and --phase %s exclude each other", filter.Phase)
		}
		filter.Phase = sandboxv1.Phase_ENDED
	}
	if filter.EndedAfter, err = moment("ended-after", e.after, now); err != nil {
		return err
	}
	filter.EndedBefore, err = moment("ended-before", e.before, now)
	return err
}

// moment is instant for a message, in which nil means none.
func moment(flag, text string, now time.Time) (*timestamppb.Timestamp, error) {
	if text == "" {
		return nil, nil
	}
	at, err := instant(flag, text, now)
	return timestamppb.New(at), err
}
