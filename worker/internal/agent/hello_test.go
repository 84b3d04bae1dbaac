// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"slices"
	"testing"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/link"
)

// scripted is a stream from which these frames come.
type scripted struct {
	link.Stream
	frames []*federationv1.HubFrame
}

func (s *scripted) Send(*federationv1.WorkerFrame) error { return nil }

func (s *scripted) Recv() (*federationv1.HubFrame, error) {
	next := s.frames[0]
	s.frames = slices.Delete(s.frames, 0, 1)
	return next, nil
}

// A hub that has other clusters report first says so, and is not taken for silent.
func TestAHubThatHasOthersFirstIsHeard(t *testing.T) {
	sign := &federationv1.HubFrame{Body: &federationv1.HubFrame_HeartbeatAck{HeartbeatAck: &federationv1.HeartbeatAck{}}}
	last := &federationv1.HubFrame{Body: &federationv1.HubFrame_Refused{Refused: &federationv1.Refused{Reason: "Draining"}}}
	heard := 0
	_, err := (&Agent{}).introduce(t.Context(), &scripted{frames: []*federationv1.HubFrame{sign, sign, last}}, &federationv1.Hello{},
		func() { heard++ })
	var why *refused
	if heard != 2 || !errors.As(err, &why) || why.Reason != "Draining" {
		t.Errorf("heard %d signs, want 2; then %v, want what the hub said at last", heard, err)
	}
}
