// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

// Shown returns the member in the form of the public API.
func (m *Member) Shown() *sandboxv1.EnvMember {
	shape := m.Shape.Get()
	out := &sandboxv1.EnvMember{
		Name: m.Name, State: m.State.String(), ScalingGroup: shape.ScalingGroup, InstanceType: shape.InstanceType,
		Multiplier: shape.Multiplier, Priority: shape.Priority, Image: shape.Image, Idle: m.Idle, ReadyIdle: m.ReadyIdle,
		Running: m.Running, Desired: m.Desired, Pending: m.Pending,
	}
	if m.SaturatedFor > 0 {
		out.SaturatedFor = durationpb.New(m.SaturatedFor)
	}
	return out
}
