// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

// dropUnshowable takes out of a worker's sandbox what JSON has no words for: times and durations out of range. With one of
// them in, no page of a list that holds the sandbox could be answered.
func dropUnshowable(s *sandboxv1.Sandbox) {
	for _, t := range []**timestamppb.Timestamp{&s.ClaimedAt, &s.StartedAt, &s.TerminatedAt, &s.LastActiveAt} {
		if *t != nil && !(*t).IsValid() {
			*t = nil
		}
	}
	for _, d := range []**durationpb.Duration{&s.IdleTimeout, &s.StartupTimeout, &s.MaxLifetime, &s.FirstActivityTimeout} {
		if *d != nil && !(*d).IsValid() {
			*d = nil
		}
	}
}
